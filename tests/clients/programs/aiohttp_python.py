import asyncio
import os
import ssl
import sys

import aiohttp

ASKED = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
HEADERS = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
URL = "https://api.openai.com/v1/chat/completions"


async def main() -> None:
    async with aiohttp.ClientSession(headers=HEADERS, trust_env="trust" in sys.argv) as session:
        async with session.post(URL, json=ASKED, ssl=ssl.create_default_context()) as answer:
            print((await answer.json())["choices"])
        await asyncio.sleep(0.5)  # an answer of a real model takes longer


asyncio.run(main())
