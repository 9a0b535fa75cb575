const url = 'https://api.openai.com/v1/chat/completions';
const headers = { 'content-type': 'application/json', authorization: `Bearer ${process.env.OPENAI_API_KEY}` };
const asked = { model: 'gpt-4o', messages: [{ role: 'user', content: 'Hi' }] };
const whole = await fetch(url, { method: 'POST', headers, body: JSON.stringify(asked) });
console.log(JSON.stringify((await whole.json()).choices));
const stream = await fetch(url, { method: 'POST', headers, body: JSON.stringify({ ...asked, stream: true }) });
let text = '';
for await (const piece of stream.body) text += new TextDecoder().decode(piece);
console.log(text.split('\n').filter((line) => line.startsWith('data:')).length);
const https = await import('node:https');
await new Promise((resolve, reject) => {
  const request = https.request(url, { method: 'POST', headers }, (answer) => {
    console.log('https', answer.statusCode);
    answer.resume();
    answer.on('end', resolve);
  });
  request.on('error', reject);
  request.end(JSON.stringify(asked));
});
console.log((await fetch('https://other.example/page')).status);
