import asyncio
import sys

from pydantic_ai import Agent


async def main() -> None:
    models = ("openai-chat:gpt-4o", "anthropic:claude-sonnet-4-5", "google:gemini-2.5-flash")
    for model in sys.argv[1:] or models:
        agent = Agent(model)
        print((await agent.run("Hi")).output)
        async with agent.run_stream("Hi") as stream:
            async for text in stream.stream_text(delta=True, debounce_by=None):
                print(text)


asyncio.run(main())
