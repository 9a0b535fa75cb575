"""The command of `test_run`: tries every way, and prints as JSON what it met."""

import json
import os
import socket
import ssl
import sys
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit

LLM, OTHER, PLAIN, BODY = sys.argv[1:5]
PROXY = urlsplit(os.environ["HTTPS_PROXY"])
found = {}


def post(url, headers=()):
    request = urllib.request.Request(
        url, BODY.encode(), {"content-type": "application/json", **dict(headers)}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def raw(first, authorization=None, read=False):
    """Answer to one request to the proxy, as text."""
    head = f"{first}\r\nHost: x\r\n"
    if authorization:
        head += f"Proxy-Authorization: {authorization}\r\n"
    connection = socket.create_connection((PROXY.hostname, PROXY.port), 60)
    connection.sendall(head.encode() + b"\r\n")
    return connection, connection.recv(65536).decode()


def certificate(address):
    """Issuer of the certificate that a TLS server behind the proxy shows."""
    import base64

    assert PROXY.username is not None
    assert PROXY.password is not None
    who = base64.b64encode(f"{unquote(PROXY.username)}:{unquote(PROXY.password)}".encode()).decode()
    connection, answer = raw(f"CONNECT {address} HTTP/1.1", f"Basic {who}")
    assert " 200 " in answer, answer
    context = ssl.create_default_context()
    context.check_hostname = False
    with context.wrap_socket(connection, server_hostname="localhost") as tls:
        shown = tls.getpeercert()
        assert shown is not None
        return str(shown["issuer"])


found["llm"] = post(f"https://{LLM}/v1/chat/completions", {"x-tokentee-session": "s1"}.items())
found["llm_issuer"] = certificate(LLM)
found["other_issuer"] = certificate(OTHER)
found["refused"] = [
    raw(f"CONNECT {LLM} HTTP/1.1")[1],
    raw(f"CONNECT {LLM} HTTP/1.1", "Basic dG9rZW50ZWU6d3Jvbmc=")[1],
    raw(f"GET http://{PLAIN}/v1/models HTTP/1.1")[1],
]
base = os.environ["OPENAI_BASE_URL"]
found["base_url_path"] = urlsplit(base).path
found["local"] = post(f"{base}/chat/completions")
found["local_without_secret"] = post(f"http://{urlsplit(base).netloc}/v1/chat/completions")
found["environment"] = dict(os.environ)
print(json.dumps(found))
sys.exit(7)
