import os

import requests

ASKED = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]}
HEADERS = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
URL = "https://api.openai.com/v1/chat/completions"
print(requests.post(URL, json=ASKED, headers=HEADERS, timeout=20).json()["choices"])
with requests.post(
    URL, json={**ASKED, "stream": True}, headers=HEADERS, stream=True, timeout=20
) as answer:
    for line in answer.iter_lines():
        print(line.decode().replace(line.decode()[line.decode().find("chatcmpl-") :][:12], "ID"))
print(requests.get("https://other.example/page", timeout=20).status_code)
