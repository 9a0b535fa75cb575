import anthropic

client = anthropic.Anthropic()
ASKED = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "Hi"}],
}
print(client.messages.create(**ASKED).content[0].text)
with client.messages.stream(**ASKED) as stream:
    print("".join(stream.text_stream))
