// The AWS SDK at Bedrock, by HTTP/2 as it comes: a call, a streamed one, and one in both directions, which
// sends its second event when it has the first answer.
import {
  BedrockRuntimeClient, ConverseCommand, ConverseStreamCommand, InvokeModelWithBidirectionalStreamCommand,
} from '@aws-sdk/client-bedrock-runtime';

const asked = {
  modelId: 'anthropic.claude-sonnet-4-5-20250929-v1:0',
  messages: [{ role: 'user', content: [{ text: 'Hi' }] }],
};
const client = new BedrockRuntimeClient();
const answer = await client.send(new ConverseCommand(asked));
console.log(answer.output.message.content[0].text, answer.usage.inputTokens, answer.usage.outputTokens);
const { stream } = await client.send(new ConverseStreamCommand(asked));
for await (const event of stream) {
  if (event.contentBlockDelta) console.log(event.contentBlockDelta.delta.text);
  if (event.metadata) console.log('', event.metadata.usage.inputTokens, event.metadata.usage.outputTokens);
}
let answered, ended;
const lastEvent = new Promise((resolve) => { ended = resolve; });
const firstAnswer = new Promise((resolve) => { answered = resolve; });
const chunk = (text) => ({ chunk: { bytes: Buffer.from(JSON.stringify({ event: { sessionStart: { text } } })) } });
async function* events() {
  yield chunk('one');
  await firstAnswer;
  yield chunk('two');
  setImmediate(ended);
}
const { body } = await client.send(new InvokeModelWithBidirectionalStreamCommand({
  modelId: 'amazon.nova-sonic-v1:0', body: events(),
}));
for await (const each of body) {
  answered();
  const { usageEvent } = JSON.parse(Buffer.from(each.chunk.bytes)).event;
  if (usageEvent) console.log('', usageEvent.totalInputTokens, usageEvent.totalOutputTokens);
}
await lastEvent;
await new Promise((resolve) => { setTimeout(resolve, 200); }); // its end goes out, too
client.destroy();
