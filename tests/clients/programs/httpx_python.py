import os

import httpx

ASKED = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
HEADERS = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
URL = "https://api.openai.com/v1/chat/completions"
with httpx.Client(headers=HEADERS, timeout=20) as client:
    print(client.post(URL, json=ASKED).json()["choices"])
    with client.stream("POST", URL, json={**ASKED, "stream": True}) as answer:
        print(sum(line.startswith("data:") for line in answer.iter_lines()))
    print(client.get("https://other.example/page").status_code)
