// POSTs a body over HTTP/2, as the AWS SDK does: no proxy variable is read, and the session is closed (GOAWAY)
// while the answer is still to come. ORIGIN PATH BODY
'use strict';
const http2 = require('http2');
const [origin, path, body] = process.argv.slice(2);
const session = http2.connect(origin);
session.on('error', (error) => { throw error; });
const stream = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/json' });
stream.on('data', (chunk) => process.stdout.write(chunk));
stream.on('response', () => {
  session.close();
  setImmediate(() => console.error('closed'));
});
stream.end(body);
