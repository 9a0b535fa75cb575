import openai

client = openai.OpenAI()
MESSAGES = [{"role": "user", "content": "Hi"}]
print(client.chat.completions.create(model="gpt-4o", messages=MESSAGES).choices[0].message.content)
for chunk in client.chat.completions.create(model="gpt-4o", messages=MESSAGES, stream=True):
    print(chunk.choices[0].delta.content if chunk.choices else chunk, chunk.usage)
with client.responses.stream(model="gpt-4.1", input="Hi") as stream:
    print(stream.get_final_response().output_text)
