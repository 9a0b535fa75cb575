from google import genai

client = genai.Client()
print(client.models.generate_content(model="gemini-2.5-flash", contents="Hi").text)
for chunk in client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hi"):
    print(chunk.text)
