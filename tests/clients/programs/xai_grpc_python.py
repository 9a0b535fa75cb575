"""xai-sdk over gRPC: `serve PEM` answers as xAI does, `ask HOST:PORT` plays its client, and
`refused` and `bounded HOST:PORT` ones that print the errors of their calls."""

import queue
import re
import sys
import time
from concurrent import futures
from pathlib import Path

import grpc
from xai_sdk import Client
from xai_sdk.chat import assistant, system, tool, user
from xai_sdk.proto import chat_pb2, chat_pb2_grpc, usage_pb2

USAGE = usage_pb2.SamplingUsage(
    completion_tokens=12,
    prompt_tokens=100,
    total_tokens=142,
    prompt_text_tokens=100,
    reasoning_tokens=30,
    cached_prompt_text_tokens=64,
)
BOTH_WAYS = "/xai_api.Dream/Both"


class Chat(chat_pb2_grpc.ChatServicer):
    def GetCompletion(self, request, context):  # noqa: N802  # the SDK's name
        if request.model == "bad":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no")
        answer = chat_pb2.GetChatCompletionResponse(id="c-1", model="grok-4", usage=USAGE)
        output = answer.outputs.add()
        output.finish_reason, output.message.content, output.message.role = 3, "hello", 2
        return answer

    def GetCompletionChunk(self, request, context):  # noqa: N802  # as above
        for number in range(20):
            chunk = chat_pb2.GetChatCompletionChunk(id="c-2", model="grok-4")
            output = chunk.outputs.add()
            output.delta.content, output.delta.role = "word ", 2
            if number == 19:
                output.finish_reason = 3
                chunk.usage.CopyFrom(USAGE)
            yield chunk


def serve(pem: bytes) -> None:
    keys, certificates = (
        re.findall(
            rb"-----BEGIN [A-Z ]*%b-----.*?-----END [A-Z ]*%b-----" % (kind, kind), pem, re.S
        )
        for kind in (b"PRIVATE KEY", b"CERTIFICATE")
    )
    server = grpc.server(futures.ThreadPoolExecutor(4))
    chat_pb2_grpc.add_ChatServicer_to_server(Chat(), server)
    echo = grpc.stream_stream_rpc_method_handler(lambda messages, _: messages)
    dream = grpc.method_handlers_generic_handler("xai_api.Dream", {"Both": echo})
    server.add_generic_rpc_handlers((dream,))
    chain = b"\n".join(certificates)
    credentials = grpc.ssl_server_credentials([(keys[0], chain)])
    print(server.add_secure_port("127.0.0.1:0", credentials), flush=True)
    server.start()
    time.sleep(120)


def ask(where: str) -> None:
    client = Client(api_key="xai-test-key-0123456789", api_host=where)
    chat = client.chat.create(model="grok-4", messages=[user("Hi")])
    print(chat.sample().content)
    print("".join(chunk.content for _, chunk in chat.stream()))
    try:
        client.chat.create(model="bad", messages=[user("Hi")]).sample()
    except grpc.RpcError as error:
        print(error.code().name)
    channel = grpc.secure_channel(where, grpc.ssl_channel_credentials())
    asked: queue.Queue[bytes | None] = queue.Queue()
    call = channel.stream_stream(BOTH_WAYS)(iter(asked.get, None), timeout=10)
    for word in (b"one", b"two"):
        asked.put(word)
        print(next(call).decode())
    asked.put(None)
    print(list(call), call.code().name)


def bounded(where: str) -> None:
    """A tenth of a dollar at most, and then too much."""
    client = Client(api_key="xai-test-key-0123456789", api_host=where)
    for most in (16, 2_000_000_000):
        function = tool("look", "Looks.", {"type": "object", "properties": {}})
        said = [system("Be short."), user("Hi"), assistant("Hello"), user("Again")]
        chat = client.chat.create(model="grok-4", messages=said, max_tokens=most, tools=[function])
        try:
            print(chat.sample().content)
            print("".join(chunk.content for _, chunk in chat.stream()))
        except grpc.RpcError as error:
            print(error.code().name, error.details())


def refused(where: str) -> None:
    """The last call keeps its side open: it waits for an answer."""
    client = Client(api_key="xai-test-key-0123456789", api_host=where)
    chat = client.chat.create(model="grok-4", messages=[user("Hi")])
    channel = grpc.secure_channel(where, grpc.ssl_channel_credentials())
    never: queue.Queue[bytes] = queue.Queue()
    never.put(b"one")
    call = channel.stream_stream(BOTH_WAYS)(iter(never.get, None), timeout=20)
    for ask_for in (chat.sample, lambda: list(chat.stream()), lambda: next(call)):
        try:
            print(ask_for())
        except grpc.RpcError as error:
            print(error.code().name, error.details())
    never.put(None)


if sys.argv[1] == "serve":
    serve(Path(sys.argv[2]).read_bytes())
elif sys.argv[1] == "refused":
    refused(sys.argv[2])
elif sys.argv[1] == "bounded":
    bounded(sys.argv[2])
else:
    ask(sys.argv[2])
