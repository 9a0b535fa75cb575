import asyncio

from agents import Agent, Runner


async def main() -> None:
    agent = Agent(name="Assistant", model="gpt-4o")
    print((await Runner.run(agent, "Hi")).final_output)
    stream = Runner.run_streamed(agent, "Hi")
    async for event in stream.stream_events():
        print(event.type)


asyncio.run(main())
