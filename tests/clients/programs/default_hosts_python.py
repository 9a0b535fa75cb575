"""One call, and a streamed one where there is such, by the SDK that is named, at its default host.

Prints of each answer its text, and the input and output tokens as the SDK reads them.
"""

import asyncio
import sys

MESSAGES = [{"role": "user", "content": "Hi"}]
CONVERSE = {
    "modelId": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
}


def show(text, *tokens):
    print(text, *tokens, flush=True)


def xai_sdk():
    from xai_sdk import Client
    from xai_sdk.chat import user

    chat = Client(api_key="xai-made-up-0123456789").chat.create(
        model="grok-4", messages=[user("Hi")]
    )
    answer = chat.sample()
    show(answer.content, answer.usage.prompt_tokens, answer.usage.completion_tokens)
    for answer, _ in chat.stream():  # noqa: B007  # the last one is shown
        pass
    show(answer.content, answer.usage.prompt_tokens, answer.usage.completion_tokens)


def google_cloud_aiplatform():
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import aiplatform_v1

    client = aiplatform_v1.PredictionServiceClient(credentials=AnonymousCredentials())
    asked = {
        "model": "projects/p/locations/global/publishers/google/models/gemini-2.5-flash",
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }
    for answer in (
        client.generate_content(asked),
        *client.stream_generate_content(asked),
    ):
        usage = answer.usage_metadata
        tokens = (usage.prompt_token_count, usage.candidates_token_count) if usage else ()
        show(answer.candidates[0].content.parts[0].text, *tokens)


def yandex_ai_studio_sdk():
    from yandex_ai_studio_sdk import AIStudio
    from yandex_ai_studio_sdk.auth import APIKeyAuth

    sdk = AIStudio(folder_id="b1gmadeup", auth=APIKeyAuth("AQVNmadeup0123456789"))
    answer = sdk.models.completions("yandexgpt").run("Hi")
    show(
        answer.alternatives[0].text, answer.usage.input_text_tokens, answer.usage.completion_tokens
    )


def boto3():
    import boto3

    client = boto3.client("bedrock-runtime", region_name="us-east-1")
    answer = client.converse(**CONVERSE)
    usage = answer["usage"]
    show(
        answer["output"]["message"]["content"][0]["text"],
        usage["inputTokens"],
        usage["outputTokens"],
    )
    for event in client.converse_stream(**CONVERSE)["stream"]:
        if "contentBlockDelta" in event:
            show(event["contentBlockDelta"]["delta"]["text"])
        if "metadata" in event:
            usage = event["metadata"]["usage"]
            show("", usage["inputTokens"], usage["outputTokens"])


def aws_sdk_bedrock_runtime():
    from aws_sdk_bedrock_runtime import models
    from aws_sdk_bedrock_runtime.client import AsyncBedrockRuntimeClient

    async def main():
        client = AsyncBedrockRuntimeClient()
        message = models.Message(role="user", content=[models.ContentBlockText("Hi")])
        model = CONVERSE["modelId"]
        asked = models.ConverseInput(model_id=model, messages=[message])
        answer = await client.converse(asked)
        text = answer.output.value.content[0].value
        show(text, answer.usage.input_tokens, answer.usage.output_tokens)
        asked = models.ConverseStreamInput(model_id=model, messages=[message])
        stream = await client.converse_stream(asked)
        async for event in stream.output_stream:
            if isinstance(event, models.ConverseStreamOutputContentBlockDelta):
                show(event.value.delta.value)
            if isinstance(event, models.ConverseStreamOutputMetadata):
                usage = event.value.usage
                show("", usage.input_tokens, usage.output_tokens)
        await client.close()

    asyncio.run(main())


def replicate():
    import replicate

    model = "meta/meta-llama-3-8b-instruct"
    asked = {"prompt": "Hi"}
    prediction = replicate.models.predictions.create(model, input=asked, wait=True)
    metrics = prediction.metrics
    show("".join(prediction.output), metrics["input_token_count"], metrics["output_token_count"])
    show("".join(str(event) for event in replicate.stream(model, input=asked)))


def dashscope():
    from dashscope import Generation

    asked = {"model": "qwen-plus", "messages": MESSAGES, "result_format": "message"}
    streamed = {**asked, "stream": True, "incremental_output": True}
    for answer in (Generation.call(**asked), *Generation.call(**streamed)):
        text = answer.output.choices[0].message.content
        show(text, answer.usage.input_tokens, answer.usage.output_tokens)


def sarvamai():
    from sarvamai import SarvamAI

    client = SarvamAI(api_subscription_key="sk_made_up_0123456789")
    answer = client.chat.completions(model="sarvam-m", messages=MESSAGES)
    show(
        answer.choices[0].message.content,
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
    )
    for chunk in client.chat.completions(model="sarvam-m", messages=MESSAGES, stream=True):
        show("".join(choice.delta.content or "" for choice in chunk.choices))


def voyageai():
    import voyageai

    for key in ("pa-made-up-0123456789", "al-made-up-0123456789"):  # of Voyage, of MongoDB
        answer = voyageai.Client(api_key=key).embed(["Hi"], model="voyage-3.5")
        show(answer.embeddings, answer.total_tokens)


def mistralai():
    from mistralai.client import Mistral

    client = Mistral(api_key="made-up-0123456789")
    answer = client.chat.complete(model="mistral-small-latest", messages=MESSAGES)
    show(
        answer.choices[0].message.content,
        answer.usage.prompt_tokens,
        answer.usage.completion_tokens,
    )
    for event in client.chat.stream(model="mistral-small-latest", messages=MESSAGES):
        text = "".join(choice.delta.content or "" for choice in event.data.choices)
        usage = event.data.usage
        show(text, *((usage.prompt_tokens, usage.completion_tokens) if usage else ()))


def cohere():
    import cohere

    client = cohere.ClientV2(api_key="made-up-0123456789")
    answer = client.chat(model="command-a-03-2025", messages=MESSAGES)
    tokens = answer.usage.tokens
    show(answer.message.content[0].text, int(tokens.input_tokens), int(tokens.output_tokens))
    for event in client.chat_stream(model="command-a-03-2025", messages=MESSAGES):
        if event.type == "content-delta":
            show(event.delta.message.content.text)
        if event.type == "message-end":
            tokens = event.delta.usage.tokens
            show("", int(tokens.input_tokens), int(tokens.output_tokens))


globals()[sys.argv[1].replace("-", "_")]()
