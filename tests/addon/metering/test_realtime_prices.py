"""Realtime and audio: from the words of the wire to the lines of the bill, worked out by hand.

The prices are those of genai-prices, in USD per million tokens, per hour or per million characters.
"""

import json
from datetime import UTC, datetime
from typing import Any

from addon.dialects import routes
from addon.dialects.facts import AnswerContext
from addon.metering.messages import End
from addon.metering.meter import Meter
from addon.metering.settlement import result_of
from ledger.pricing.prices import PriceBook
from tests.ledger.written import opened
from tests.named import for_each

NOW = datetime(2026, 11, 20, tzinfo=UTC)
REALTIME = {
    "total_tokens": 253,
    "input_tokens": 132,
    "output_tokens": 121,
    "input_token_details": {
        "text_tokens": 119,
        "audio_tokens": 13,
        "cached_tokens": 64,
        "cached_tokens_details": {"text_tokens": 60, "audio_tokens": 4},
    },
    "output_token_details": {"text_tokens": 30, "audio_tokens": 91},
}


def lines(
    dialect: str,
    model: str,
    message: dict[str, Any],
    *,
    origin: str = "https://api.openai.com:443",
    provider: str = "openai",
    units: dict[str, int] | None = None,
) -> dict[str, tuple[int, int | None]]:
    """Line -> quantity and amount in pico-USD."""
    meter = Meter(routes.DIALECTS[dialect], context=AnswerContext(provider=provider))
    if message:
        meter.read_message(json.dumps(message).encode())
    exchange, reading = result_of(
        opened("x", at=NOW, origin=origin, provider=provider, dialect=dialect, request_model=model),
        end=End.FINISHED,
        status=200,
        meter=meter,
        request_units=units or {},
        now=NOW,
    )
    charges = PriceBook().price(exchange, reading)
    return {one.line: (one.quantity, one.amount_picousd) for one in charges}


def test_realtime_prices_text_sound_and_what_is_cached_of_each() -> None:
    # gpt-realtime: 4 in, 16 out, 0.4 cached; sound 32 in, 64 out, 0.4 cached. Of 132 input tokens
    # 64 are cached, 4 of them sound; of 13 tokens of sound 9 are not cached; 59 are left.
    done = {"type": "response.done", "response": {"id": "r", "usage": REALTIME}}
    assert lines("openai.realtime", "gpt-realtime", done) == {
        "cache_read_audio": (4, 4 * 400_000),
        "cache_read": (60, 60 * 400_000),
        "input_audio": (9, 9 * 32_000_000),
        "uncached_input": (59, 59 * 4_000_000),
        "output_audio": (91, 91 * 64_000_000),
        "output": (30, 30 * 16_000_000),
    }


def test_realtime_prices_images_apart() -> None:
    # gpt-realtime: images 5 in, 0.5 cached.
    usage = {
        "input_tokens": 300,
        "output_tokens": 0,
        "input_token_details": {
            "text_tokens": 100,
            "image_tokens": 200,
            "cached_tokens": 50,
            "cached_tokens_details": {"image_tokens": 50},
        },
    }
    done = {"type": "response.done", "response": {"id": "r", "usage": usage}}
    assert lines("openai.realtime", "gpt-realtime", done) == {
        "cache_read_image": (50, 50 * 500_000),
        "input_image": (150, 150 * 5_000_000),
        "uncached_input": (100, 100 * 4_000_000),
    }


def test_gemini_live_prices_sound_and_video_apart() -> None:
    # gemini-live-2.5-flash: 0.5 in, 2 out; sound 3 in, 12 out; video 3.
    usage = {
        "promptTokenCount": 1_000,
        "responseTokenCount": 60,
        "promptTokensDetails": [
            {"modality": "TEXT", "tokenCount": 100},
            {"modality": "AUDIO", "tokenCount": 700},
            {"modality": "VIDEO", "tokenCount": 200},
        ],
        "responseTokensDetails": [
            {"modality": "AUDIO", "tokenCount": 50},
            {"modality": "TEXT", "tokenCount": 10},
        ],
    }
    turn = {"serverContent": {"turnComplete": True}, "usageMetadata": usage}
    assert lines(
        "gemini.live",
        "gemini-live-2.5-flash",
        turn,
        origin="https://generativelanguage.googleapis.com:443",
        provider="gcp.gemini",
    ) == {
        "input_audio": (700, 700 * 3_000_000),
        "input_video": (200, 200 * 3_000_000),
        "uncached_input": (100, 100 * 500_000),
        "output_audio": (50, 50 * 12_000_000),
        "output": (10, 10 * 2_000_000),
    }


def test_a_transcription_is_priced_by_the_minute() -> None:
    # whisper-1: 0.36 an hour, 100 000 pico-USD a millisecond; 90 seconds.
    said = {"text": "Hi", "usage": {"type": "duration", "seconds": 90}}
    assert lines("openai.audio", "whisper-1", said) == {
        "audio_milliseconds": (90_000, 90_000 * 100_000)
    }


def test_a_transcription_in_tokens_prices_its_sound_apart() -> None:
    # gpt-4o-transcribe: 2.5 in, 10 out, sound 6.
    usage = {
        "type": "tokens",
        "input_tokens": 14,
        "input_token_details": {"text_tokens": 4, "audio_tokens": 10},
        "output_tokens": 5,
        "total_tokens": 19,
    }
    assert lines("openai.audio", "gpt-4o-transcribe", {"text": "Hi", "usage": usage}) == {
        "input_audio": (10, 10 * 6_000_000),
        "uncached_input": (4, 4 * 2_500_000),
        "output": (5, 5 * 10_000_000),
    }


@for_each("model, picousd", [("tts-1", 15_000_000), ("tts-1-hd", 30_000_000)])
def test_speech_is_priced_by_the_character(model: str, picousd: int) -> None:
    units = {"input_characters": 12}
    assert lines("openai.speech", model, {}, units=units) == {
        "input_characters": (12, 12 * picousd)
    }
