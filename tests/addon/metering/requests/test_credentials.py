"""What a request authenticates with is known as a secret, wherever it stands."""

import base64

import pytest

from addon.metering.requests.attribution import credentials_of

PASSWORD = "a-long-password-0123456789"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
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


@pytest.mark.parametrize("word", ["no-base64-at-all!!", base64.b64encode(b"\xff\xfe" * 8).decode()])
def test_a_basic_password_that_cannot_be_read_is_not_one(word: str) -> None:
    found = credentials_of({"authorization": f"Basic {word}"}, "/v1/messages")
    assert all(each in (word, "") or each.startswith(word[:8]) for each in found)
