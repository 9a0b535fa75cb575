#!/usr/bin/env bash
# Guess: where a part is larger than its whole (Azure's grok states 163 cached beside a prompt of 7; some
#   gateways more reasoning than output), the AI SDK leaves the difference out, or bounds it by zero.
# Seen: output is bounded (0 of text beside 50 of reasoning, in an output of 5), input is not:
#   `noCacheTokens` is -156. Where the server states no details, cached input and reasoning are 0 and not
#   absent, so that "none" and "not said" are one.
# Why it matters to a meter: a cost by parts is below zero and takes from the sum of the day. Figures of
#   an SDK are not the provider's: `raw` beside them is.
# Versions: ai 7.0.173, @ai-sdk/openai 4.0.118; 2026-11-28.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund --prefix . ai@7.0.173 @ai-sdk/openai@4.0.118 node@22.23.3 2>/dev/null
[ -x node_modules/node/bin/node ] || node node_modules/node/installArchSpecificPackage.js
cat >seen.mjs <<'JAVASCRIPT'
import assert from 'node:assert'
import http from 'node:http'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, streamText } from 'ai'

let usage
const head = { id: 'c', created: 1, model: 'm' }
const server = http.createServer((request, response) => {
  let sent = ''
  request.on('data', (part) => (sent += part))
  request.on('end', () => {
    const stop = { index: 0, finish_reason: 'stop' }
    if (JSON.parse(sent).stream) {
      response.setHeader('content-type', 'text/event-stream')
      const chunks = [{ choices: [{ ...stop, delta: { content: 'a' } }] }, { choices: [], usage }]
      const lines = chunks.map((chunk) => JSON.stringify({ ...head, object: 'chat.completion.chunk', ...chunk }))
      response.end([...lines, '[DONE]'].map((line) => `data: ${line}\n\n`).join(''))
    } else {
      response.setHeader('content-type', 'application/json')
      const choices = [{ ...stop, message: { role: 'assistant', content: 'a' } }]
      response.end(JSON.stringify({ ...head, object: 'chat.completion', choices, usage }))
    }
  })
})
await new Promise((done) => server.listen(0, '127.0.0.1', done))
const baseURL = `http://127.0.0.1:${server.address().port}`
const model = createOpenAI({ baseURL, apiKey: 'none' }).chat('m')

async function figures(prompt, output, details) {
  usage = { prompt_tokens: prompt, completion_tokens: output, total_tokens: prompt + output, ...details }
  const plain = (await generateText({ model, prompt: '?' })).usage
  const stream = streamText({ model, prompt: '?' })
  for await (const _ of stream.textStream);
  const kinds = [plain, await stream.usage].map(({ inputTokenDetails: i, outputTokenDetails: o }) =>
    [i.noCacheTokens, i.cacheReadTokens, o.textTokens, o.reasoningTokens])
  assert.deepEqual(kinds[0], kinds[1])
  console.log(JSON.stringify(usage), '\n  uncached, cached, text, reasoning:', ...kinds[0])
  return kinds[0]
}

assert.deepEqual(await figures(10, 5, {}), [10, 0, 5, 0])
assert.deepEqual(await figures(7, 1, { prompt_tokens_details: { cached_tokens: 163 } }), [-156, 163, 1, 0])
assert.deepEqual(await figures(10, 5, { completion_tokens_details: { reasoning_tokens: 50 } }), [10, 0, 0, 50])
process.exit(0)
JAVASCRIPT
node_modules/node/bin/node seen.mjs
