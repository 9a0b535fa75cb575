from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="gpt-4o")
print(model.invoke("Hi").content)
for chunk in model.stream("Hi"):
    print(chunk.content, sorted(chunk.usage_metadata or {}))
