"""What a request authenticates with is known as a secret, wherever it stands."""

import base64

from addon.metering.attribution import credentials_of
from tests.named import for_each

PASSWORD = "a-long-password-0123456789"


@for_each(
    "name, value, secret",
    [
        ("x-api-key", PASSWORD, PASSWORD),
        (
            "sec-websocket-protocol",
            f"realtime, openai-insecure-api-key.{PASSWORD}, openai-beta.realtime-v1",
            PASSWORD,
        ),
        ("cookie", f"theme=dark; session={PASSWORD}", PASSWORD),
        ("authorization", f"Bearer {PASSWORD}", PASSWORD),
        (
            "authorization",
            f"Basic {base64.b64encode(f'me:{PASSWORD}'.encode()).decode()}",
            PASSWORD,
        ),
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261125/us-east-1/bedrock/aws4_request,"
            " SignedHeaders=host, Signature=0123456789abcdef0123456789abcdef",
            "0123456789abcdef0123456789abcdef",
        ),
    ],
)
def test_a_credential_is_known(name: str, value: str, secret: str) -> None:
    assert secret in credentials_of({name: value}, "/v1/messages")


@for_each(
    "query, secret",
    [
        ("key=AIza0123456789&alt=sse", "AIza0123456789"),
        ("alt=sse&api-key=abc%2Fdefgh1%3D%3D", "abc/defgh1=="),
        ("alt=sse&api-key=abc%2Fdefgh1%3D%3D", "abc%2Fdefgh1%3D%3D"),
        ("code=abc%2Fdefgh1ijk%3D%3D", "abc/defgh1ijk=="),
    ],
)
def test_a_credential_in_a_query_is_known_as_it_is_sent_and_decoded(
    query: str, secret: str
) -> None:
    assert secret in credentials_of({}, f"/v1beta/models/x:generateContent?{query}")


UNREADABLE = ("no-base64-at-all!!", base64.b64encode(b"\xff\xfe" * 8).decode())


@for_each("word", UNREADABLE)
def test_a_basic_password_that_cannot_be_read_hides_no_other(word: str) -> None:
    """The word itself may be one."""
    given = {"authorization": f"Basic {word}", "x-api-key": PASSWORD}
    assert set(credentials_of(given, "/v1/messages")) == {word, PASSWORD}


@for_each(
    "headers, path",
    [
        ({"content-type": "application/json"}, "/x?api-version=2024-10-21"),
        ({"authorization": "Basic !"}, "/x"),
        ({"authorization": "Bearer lm-studio"}, "/x?keys=0123456789abcdef0123"),
        ({"idempotency-key": "0123456789abcdef0123"}, "/x"),
        ({"cookie": "theme=dark; v=1234567890"}, "/x"),
        ({"sec-websocket-protocol": "realtime, openai-beta.realtime-v1"}, "/x"),
    ],
)
def test_what_is_no_credential(headers: dict[str, str], path: str) -> None:
    assert credentials_of(headers, path) == ()
