import { generateText, streamText } from 'ai';

const [provider, model] = process.argv.slice(2);
const made = (await import(`@ai-sdk/${provider}`))[provider](model);
const { text } = await generateText({ model: made, prompt: 'Hi' });
console.log(text);
for await (const piece of streamText({ model: made, prompt: 'Hi' }).textStream) console.log(piece);
