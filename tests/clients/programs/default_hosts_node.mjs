// The AWS SDK at Bedrock: a call and a streamed one, by HTTP/2 as it comes.
import { BedrockRuntimeClient, ConverseCommand, ConverseStreamCommand } from '@aws-sdk/client-bedrock-runtime';

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
client.destroy();
