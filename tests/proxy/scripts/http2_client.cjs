// POSTs a body over HTTP/2, as the AWS SDK does: no proxy variable is read. ORIGIN PATH BODY
'use strict';
const http2 = require('http2');
const [origin, path, body] = process.argv.slice(2);
const session = http2.connect(origin);
session.on('error', (error) => { throw error; });
const stream = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/json' });
stream.on('data', (chunk) => process.stdout.write(chunk));
stream.on('end', () => session.close());
stream.end(body);
