import OpenAI from 'openai';

const client = new OpenAI();
const messages = [{ role: 'user', content: 'Hi' }];
console.log((await client.chat.completions.create({ model: 'gpt-4o', messages })).choices[0].message.content);
for await (const chunk of await client.chat.completions.create({ model: 'gpt-4o', messages, stream: true }))
  console.log(chunk.choices[0]?.delta?.content, chunk.usage);
console.log((await client.responses.create({ model: 'gpt-4.1', input: 'Hi' })).output_text);
