import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic();
const asked = { model: 'claude-sonnet-4-5', max_tokens: 64, messages: [{ role: 'user', content: 'Hi' }] };
console.log((await client.messages.create(asked)).content[0].text);
console.log(await client.messages.stream(asked).finalText());
