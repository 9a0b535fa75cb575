import asyncio

from pydantic_ai import Agent


async def main() -> None:
    for model in (
        "openai-chat:gpt-4o",
        "anthropic:claude-sonnet-4-5",
        "google:gemini-2.5-flash",
    ):
        agent = Agent(model)
        print((await agent.run("Hi")).output)
        async with agent.run_stream("Hi") as stream:
            async for text in stream.stream_text(delta=True, debounce_by=None):
                print(text)


asyncio.run(main())
