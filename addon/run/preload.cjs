// Leads the LLM calls of Node.js through the proxy of `tokentee run`.
//
// http2 knows no proxy in any version (the AWS SDK calls Bedrock by it). fetch, http and https know one
// from 22.21 and 24.5 on (NODE_USE_ENV_PROXY=1); only in older versions they are led here. Connections to
// LLM hosts, and to no others, are opened with CONNECT; nothing else changes. Whatever fails, the client
// connects as it would have without this file.
'use strict';
(() => {
  const [major, minor] = process.versions.node.split('.').map(Number);
  const knowsProxies = major > 24 || (major === 24 && minor >= 5) || (major === 22 && minor >= 21);
  const value = process.env.HTTPS_PROXY;
  const pattern = process.env.TOKENTEE_NODE_HOSTS;
  if (!value || !pattern) return;
  let proxy, hosts;
  try {
    proxy = new URL(value);
    hosts = new RegExp(pattern, 'i');
  } catch {
    return;
  }
  const http = require('http');
  const https = require('https');
  const createDirectly = http.Agent.prototype.createConnection;
  const authorization = 'Basic ' + Buffer.from(
    `${decodeURIComponent(proxy.username)}:${decodeURIComponent(proxy.password)}`).toString('base64');
  const bare = (host) => String(host).replace(/^\[|\]$/g, ''); // IPv6 in a URL
  const isLed = (host, port) =>
    Boolean(host) && hosts.test(`${bare(host).replace(/\.$/, '')}:${port}`);

  // Open a tunnel; `done(error, socket)`. The agent is new each time and knows no proxy.
  const tunnel = (host, port, done) => {
    const authority = `${host.includes(':') ? `[${bare(host)}]` : host}:${port}`;
    const agent = new http.Agent();
    agent.createConnection = createDirectly;
    const request = http.request({
      agent, host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: authority,
      headers: { host: authority, 'proxy-authorization': authorization },
    });
    request.once('error', done);
    request.once('connect', (response, socket) => {
      if (response.statusCode === 200) return done(null, socket);
      socket.destroy();
      const error = new Error(`connect ECONNREFUSED ${authority}`);
      error.code = 'ECONNREFUSED';
      done(error);
    });
    request.end();
  };

  // http2: a session wants its socket at once, so what it writes waits here for the tunnel.
  const waiting = (host, port) => {
    const { Duplex } = require('stream');
    let socket;
    const begun = []; // what waits: at most the first flight of TLS
    const duplex = new Duplex({
      read() { if (socket) socket.resume(); },
      write(chunk, _, done) {
        if (!socket) begun.push([chunk, done]);
        // TLS says goodbye also where the other side has gone: to nobody, as over a socket of its own.
        else if (socket.readableEnded) done();
        else socket.write(chunk, done);
      },
      final(done) { socket ? socket.end(done) : begun.push([null, done]); },
      destroy(error, done) { if (socket) socket.destroy(); done(error); },
    });
    tunnel(host, port, (error, opened) => {
      if (error) return duplex.destroy(error);
      if (duplex.destroyed) return opened.destroy();
      socket = opened;
      socket.setNoDelay(true);
      socket.on('data', (chunk) => { if (!duplex.push(chunk)) socket.pause(); });
      socket.on('end', () => duplex.push(null));
      socket.on('error', (reason) => duplex.destroy(reason));
      socket.on('close', () => duplex.destroy());
      for (const [chunk, done] of begun.splice(0)) {
        if (chunk) socket.write(chunk, done);
        else socket.end(done);
      }
    });
    return duplex;
  };
  const http2 = require('http2');
  const connectDirectly = http2.connect;
  const { connect: connectLed } = {
    connect(authority, options, listener) {
      if (typeof options === 'function') [options, listener] = [undefined, options];
      let to;
      try {
        to = typeof authority === 'string' ? new URL(authority) : authority;
      } catch {
        return connectDirectly.apply(this, arguments);
      }
      const host = bare(to.hostname || to.host || '');
      const port = Number(to.port || 443);
      const isOwn = options && (options.createConnection || options.socket || options.path);
      if ((to.protocol || (options && options.protocol)) !== 'https:' || isOwn || !isLed(host, port)) {
        return connectDirectly.apply(this, arguments);
      }
      const net = require('net');
      const servername = options && 'servername' in options ? options.servername
        : net.isIP(host) ? '' : host;
      const createConnection = () => require('tls').connect({
        ALPNProtocols: ['h2'], ...options, socket: waiting(host, port), host: undefined,
        port: undefined, servername });
      return connectDirectly.call(this, authority, { ...options, createConnection }, listener);
    },
  };
  http2.connect = connectLed;
  require('module').syncBuiltinESMExports();
  if (knowsProxies) return;

  // http and https: every agent that connects as Node's own agents do.
  for (const [module, port] of [[http, 80], [https, 443]]) {
    const direct = module.Agent.prototype.createConnection;
    const { createConnection } = {
      createConnection(options, done) {
        const host = options.host || options.hostname;
        if (typeof done !== 'function' || options.socketPath || options.socket ||
            !isLed(host, options.port || port)) {
          return direct.apply(this, arguments);
        }
        tunnel(host, Number(options.port || port), (error, socket) => {
          if (error) return done(error);
          if (module === http) return done(null, socket);
          done(null, direct.call(this, { ...options, socket, host: undefined, port: undefined,
            servername: options.servername || host }));
        });
        return undefined;
      },
    };
    module.Agent.prototype.createConnection = createConnection;
  }

  // fetch: its dispatcher is made when fetch is first used, and so is ours.
  const key = Symbol.for('undici.globalDispatcher.1');
  const original = globalThis.fetch;
  if (typeof original !== 'function') return;
  const connect = (options, done) => {
    const secure = options.protocol === 'https:';
    const port = Number(options.port || (secure ? 443 : 80));
    tunnel(options.hostname, port, (error, socket) => {
      if (error) return done(error);
      if (!secure) return done(null, socket);
      const secured = require('tls').connect({ socket, ALPNProtocols: ['http/1.1'],
        servername: options.servername || options.hostname });
      const failed = (reason) => done(reason);
      secured.once('error', failed);
      secured.once('secureConnect', () => {
        secured.off('error', failed);
        done(null, secured);
      });
    });
  };
  globalThis.fetch = function fetch(input, init) {
    globalThis.fetch = original;
    original('data:,').catch(() => {}); // loads what is behind fetch, and its dispatcher with it
    const before = globalThis[key];
    if (before && before.constructor.name === 'Agent') { // else it is the application's own
      class Agent extends before.constructor {
        dispatch(options, handler) {
          const { hostname, port, protocol } = new URL(options.origin);
          const led = isLed(hostname, port || (protocol === 'https:' ? 443 : 80));
          return led ? super.dispatch(options, handler) : before.dispatch(options, handler);
        }
      }
      globalThis[key] = new Agent({ connect });
    }
    return original(input, init);
  };
})();
