from langchain_anthropic import ChatAnthropic

model = ChatAnthropic(model="claude-sonnet-4-5", max_tokens=64)
print(model.invoke("Hi").content)
for chunk in model.stream("Hi"):
    print(chunk.content, sorted(chunk.usage_metadata or {}))
