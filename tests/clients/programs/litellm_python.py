import os
import sys

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm

MESSAGES = [{"role": "user", "content": "Hi"}]
MODELS = ("gpt-4o", "anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-flash")
for model in sys.argv[1:] or MODELS:
    print(litellm.completion(model=model, messages=MESSAGES).choices[0].message.content)
    for chunk in litellm.completion(model=model, messages=MESSAGES, stream=True):
        print(chunk.choices[0].delta.content)
