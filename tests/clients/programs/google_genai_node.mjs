import { GoogleGenAI } from '@google/genai';

const client = new GoogleGenAI({ apiKey: process.env.GEMINI_API_KEY });
const asked = { model: 'gemini-2.5-flash', contents: 'Hi' };
console.log((await client.models.generateContent(asked)).text);
for await (const chunk of await client.models.generateContentStream(asked)) console.log(chunk.text);
