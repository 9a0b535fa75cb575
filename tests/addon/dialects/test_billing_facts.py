"""What prices depend on beside the token counts is read from the wire, and handed to the ledger."""

import json

import pytest
from genai_prices.data import providers
from msgspec.structs import replace

from addon.dialects.facts import AnswerContext, Facts
from addon.dialects.request import read_request
from addon.dialects.routes import DIALECTS, match
from addon.dialects.vendors.bedrock import LIFETIMES_MAX
from ledger.model.usage import BILLING_FIELDS, COUNT_MAX, SIZE_STEPS
from ledger.pricing import rules
from ledger.pricing.prices import PriceBook
from tests.addon import feeding
from tests.ledger.priced import amounts, cost, exchange, reading
from tests.named import for_each


def metered(dialect, body, *, headers=None, content_type="application/json", **more):
    read = body if isinstance(body, bytes) else json.dumps(body).encode()
    return feeding.metered(DIALECTS[dialect], read, content_type, headers=headers, **more)


GROUNDED = {
    "webSearchQueries": ["a", "b"],
    "imageSearchQueries": ["c"],
    "groundingChunks": [{"web": {"uri": "u"}}, {"maps": {"uri": "m"}}, {"maps": {"uri": "n"}}],
}


def test_gemini_grounding_counts_queries_images_and_the_prompt_that_maps_grounded():
    """https://ai.google.dev/gemini-api/docs/pricing: Maps per prompt, searches per query."""
    body = {
        "candidates": [{"finishReason": "STOP", "groundingMetadata": GROUNDED}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5},
    }
    units = metered("gemini.generate_content", body).usage().tool_units
    assert units == {"web_searches": 2, "image_searches": 1, "maps_prompts": 1}


@for_each(
    "dialect, header, body",
    [
        (
            "gemini.generate_content",
            "x-gemini-service-tier",
            {"candidates": [], "usageMetadata": {"promptTokenCount": 10}},
        ),
        (
            "bedrock.invoke",
            "x-amzn-bedrock-service-tier",
            {"prompt_token_count": 3, "generation_token_count": 2, "stop_reason": "stop"},
        ),
    ],
)
def test_the_tier_of_an_answer_may_stand_in_a_header(dialect, header, body):
    """InvokeModel booked at the list price costs twice what the flex tier does."""
    meter = metered(dialect, body, headers={header: "flex"}, requested={"service_tier": "priority"})
    assert meter.facts.service_tier == "flex"


def test_what_a_gateway_answers_from_its_cache_only_its_answer_says():
    body = {"choices": [], "usage": {"prompt_tokens": 3}}
    meter = metered("openai.chat", body, headers={"x-portkey-cache-status": "SEMANTIC HIT"})
    assert meter.facts.rare.beside == {"gateway_cache_mode": "SEMANTIC_HIT"}
    meter = metered("openai.chat", body, headers={"cf-aig-cache-status": "HIT"})
    assert meter.facts.rare.beside == {"gateway_cache_mode": "HIT"}
    assert '"HIT"' in (meter.usage_json or "")
    for value, is_hit in (("a1b2", True), ("<redacted>", True), ("", False)):
        meter = metered("anthropic.messages", body, headers={"x-litellm-cache-key": value})
        assert (meter.facts.rare.beside == {"gateway_cache_mode": "HIT"}) == is_hit
    route = match("POST", "gateway.ai.cloudflare.com", "/v1/a/g/openai/chat/completions")
    assert route is not None
    asked = read_request(
        route,
        b'{"model":"m","gateway_cache_mode":"HIT"}',
        headers={"cf-aig-cache-status": "HIT"},
    )
    assert not asked.billing


def test_the_requested_tier_counts_if_the_answer_names_none():
    """https://docs.fireworks.ai/serverless/serverless-modes: in the request alone."""
    body = {"choices": [{"finish_reason": "stop", "message": {"content": "x"}}], "usage": {}}
    for answered, tier in (({}, "priority"), ({"service_tier": "default"}, "default")):
        meter = metered("openai.chat", body | answered, requested={"service_tier": "priority"})
        assert meter.facts.service_tier == tier


@for_each(
    "asked, answered, tier",
    [
        ("priority", "default", "priority"),
        ("priority", "auto", "priority"),
        ("priority", "flex", "flex"),
        (None, "default", "default"),
    ],
)
def test_what_chatgpt_says_of_a_tier(asked, answered, tier):
    """It answers `default` whatever served the request (router-for-me/CLIProxyAPI#4355)."""
    facts = Facts(of=AnswerContext(tier_is_asked=True))
    facts.record_tier(asked)
    facts.record_tier(answered)
    assert facts.service_tier == tier


@for_each(
    "path, body, headers",
    [
        ("/v1/chat/completions", {"service_tier": "flex"}, {}),
        ("/v1beta/models/gemini-3.5-flash:generateContent", {"serviceTier": "flex"}, {}),
        ("/model/amazon.nova-pro-v1:0/converse", {"serviceTier": {"type": "flex"}}, {}),
        ("/model/amazon.nova-pro-v1:0/invoke", {}, {"x-amzn-bedrock-service-tier": "flex"}),
    ],
)
def test_the_places_of_a_requested_tier(path, body, headers):
    route = match("POST", "api.example.com", path)
    assert route is not None
    assert read_request(route, json.dumps(body).encode(), headers).billing == {
        "service_tier": "flex"
    }


CLAUDE = {"type": "message", "model": "claude-opus-5-5", "usage": {"input_tokens": 1}}


@for_each(
    "path, body, headers, found",
    [
        ("/v1/messages", {"inference_geo": "us"}, {}, {"inference_geo": "us"}),
        ("/v1/messages", {"speed": "fast"}, {}, {"speed": "fast"}),
        ("/v1/audio/speech", {"speed": 1.25}, {}, {}),
        (
            "/chat/completions",
            {"web_search_options": {"search_context_size": "high", "search_type": "pro"}},
            {},
            {"search_context_size": "high", "search_type": "pro"},
        ),
        ("/chat/completions", {"disable_search": True}, {}, {"disable_search": "true"}),
        (
            "/model/amazon.nova-pro-v1:0/converse",
            {"performanceConfig": {"latency": "optimized"}},
            {},
            {"latency_mode": "optimized"},
        ),
        (
            "/model/amazon.nova-pro-v1:0/invoke",
            {},
            {"x-amzn-bedrock-performanceconfig-latency": "optimized"},
            {"latency_mode": "optimized"},
        ),
        (
            "/v1/ocr",
            {"document_annotation_format": {"type": "json_object"}},
            {},
            {"annotation_format": "json_object"},
        ),
    ],
)
def test_what_prices_depend_on_may_stand_in_the_request_alone(path, body, headers, found):
    host = "api.mistral.ai" if path == "/v1/ocr" else "api.example.com"
    route = match("POST", host, path)
    assert route is not None
    assert read_request(route, json.dumps(body).encode(), headers).billing == found
    meter = metered("anthropic.messages", CLAUDE, requested=found)
    assert rules.published().fields_of(meter.usage_json) == found
    own = {**CLAUDE, "usage": {"input_tokens": 1, **dict.fromkeys(found, "own")}}
    told = metered("anthropic.messages", own, requested=found)
    assert set(rules.published().fields_of(told.usage_json).values()) <= {"own"}


def test_a_fast_answer_may_say_so_in_the_request_alone():
    requested = {"speed": "fast"}
    assert metered("anthropic.messages", CLAUDE, requested=requested).facts.service_tier == "fast"
    slow = {**CLAUDE, "usage": {"input_tokens": 1, "speed": "standard"}}
    assert metered("anthropic.messages", slow, requested=requested).facts.service_tier is None
    empty = metered("openai.embeddings", {"data": [], "usage": {}}, requested=requested)
    assert empty.usage_json == '{"beside:speed":"fast"}'


def test_optimized_latency_has_no_known_price():
    """https://docs.aws.amazon.com/bedrock/latest/userguide/latency-optimized-inference.html"""
    usage = {"inputTokens": 10, "outputTokens": 5}
    body = {"stopReason": "end_turn", "usage": usage, "performanceConfig": {"latency": "optimized"}}
    meter = metered("bedrock.converse", body)
    read = replace(reading(input_tokens=10), usage_json=meter.usage_json)
    about = exchange(
        "amazon.nova-pro-v1:0", origin="https://bedrock-runtime.us-east-1.amazonaws.com"
    )
    charges = PriceBook().price(about, read)
    assert charges[-1].reason == "usage.latency_mode 'optimized': no billing rule knows this value"


def test_a_cache_write_of_another_lifetime_has_no_known_price():
    details = [{"ttl": "1h", "inputTokens": 3}, {"ttl": "1d", "inputTokens": 4}, {"ttl": "9d"}]
    usage = {"inputTokens": 1, "cacheWriteInputTokens": 7, "cacheDetails": details}
    found = metered("bedrock.converse", {"stopReason": "end_turn", "usage": usage}).usage()
    assert (found.cache_write_1h_tokens, found.tool_units) == (3, {"cache_write_1d_tokens": 4})
    many = [{"ttl": f"{n}h", "inputTokens": n} for n in range(1, 99)]
    usage["cacheDetails"] = [*details, *many, {"ttl": "5m", "inputTokens": 5}]
    bounded = metered("bedrock.converse", {"stopReason": "end_turn", "usage": usage}).usage()
    assert (bounded.cache_write_1h_tokens, len(bounded.tool_units)) == (4, LIFETIMES_MAX - 2)
    assert bounded.cache_write_5m_tokens == 5, "a known lifetime is kept beside any others"


def test_an_iteration_of_another_kind_has_no_known_price():
    iterations = [{"type": "message", "input_tokens": 1}, {"type": "oracle", "input_tokens": 9}]
    body = {**CLAUDE, "usage": {"input_tokens": 1, "iterations": iterations}}
    found = metered("anthropic.messages", body).usage()
    assert found.tool_units == {"oracle_iterations": 1}


def test_free_tokens_make_no_tool_free():
    """https://openrouter.ai/docs/faq: what a free model searches is billed."""
    for host, model in (("openrouter.ai", "a/b:free"), ("generativelanguage.googleapis.com", "")):
        about = exchange(model or "gemma-3-27b-it", origin=f"https://{host}")
        units = {"web_searches": 2, "hologram_tokens": 7}
        charges = PriceBook().price(about, reading(input_tokens=9, tool_units=units))
        found = {each.line: each.amount_picousd for each in charges}
        assert found == {"uncached_input": 0, "web_searches": None, "hologram_tokens": None}


def test_every_unit_of_a_format_has_the_name_of_its_price():
    """A page of OCR was read as `pages` and priced as `document_pages`."""
    page = {"pages": [], "model": "mistral-ocr-4-1", "usage_info": {"pages_processed": 3}}
    found = metered("mistral.ocr", page).usage()
    about = exchange("mistral-ocr-4-1", origin="https://api.mistral.ai", provider="mistral_ai")
    assert cost(PriceBook().price(about, replace(reading(), usage=found))) == 3 * 4_000_000_000


@for_each("traffic, tier", [(1, "ON_DEMAND"), (2, "PROVISIONED_THROUGHPUT"), (9, "9"), (0, None)])
def test_enums_of_vertex_may_be_numbers(traffic, tier):
    body = {"candidates": [], "usageMetadata": {"promptTokenCount": 5, "trafficType": traffic}}
    assert metered("gemini.generate_content", body).facts.service_tier == tier


@for_each("provider, units", [("zai", {"web_searches": 1}), ("openai", {})])
def test_a_search_that_stands_beside_the_usage(provider, units):
    body = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 1}}
    found = metered("openai.chat", body | {"web_search": [{"link": "l"}]}, provider=provider)
    assert found.usage().tool_units == units


RESPONSE = {
    "object": "response",
    "status": "completed",
    "model": "gpt-4.1",
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {
            "cached_tokens": 0,
            "cache_write_tokens": 60,
            "cache_write_tokens_details": {"ttl_12h_tokens": 40},
        },
        "output_tokens": 5,
        "total_tokens": 105,
    },
}


def test_tokens_that_are_kept_for_twelve_hours():
    usage = metered("openai.responses", RESPONSE).usage()
    assert (usage.cache_write_tokens, usage.tool_units) == (60, {"cache_write_12h_tokens": 40})


@for_each(
    "kind, unit",
    [
        ("web_search", "web_searches"),
        ("web_search_preview", "web_search_previews"),
        ("web_search_preview_2025_03_11", "web_search_previews"),
    ],
)
def test_the_kind_of_a_search_tool_decides_its_price(kind, unit):
    """https://developers.openai.com/api/docs/pricing#built-in-tools: $10 or $25 per 1 000."""
    call = {"type": "web_search_call", "status": "completed", "action": {"type": "search"}}
    body = {**RESPONSE, "tools": [{"type": kind}], "output": [call, call]}
    assert metered("openai.responses", body).usage().tool_units[unit] == 2


def test_the_image_tool_is_billed_by_the_tokens_of_its_own_model():
    image = {
        "input_tokens": 30,
        "input_tokens_details": {"text_tokens": 30, "image_tokens": 0},
        "output_tokens": 1056,
        "total_tokens": 1086,
    }
    body = {
        **RESPONSE,
        "tools": [{"type": "image_generation", "model": "gpt-image-1"}],
        "output": [{"type": "image_generation_call", "status": "completed"}],
        "tool_usage": {"image_gen": image},
    }
    usage = metered("openai.responses", body).usage()
    (further,) = usage.further
    assert (further.kind, further.model) == ("image_generation", "gpt-image-1")
    assert "image_generations" not in usage.tool_units
    charges = PriceBook().price(
        exchange("gpt-4.1"), reading(output_tokens=5, further=usage.further)
    )
    # gpt-image-1: $5 in, $40 out per million
    assert amounts(charges)["image_generation.uncached_input"][2] == 30 * 5_000_000
    assert amounts(charges)["image_generation.output"][2] == 1056 * 40_000_000


@for_each("provider, billed", [("vercel", 70), ("perplexity", 70), ("openai", 50)])
def test_reasoning_that_is_billed_beside_the_completion(provider, billed):
    body = {
        "choices": [{"finish_reason": "stop", "message": {"content": "x"}}],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 50,
            "total_tokens": 60,
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
    }
    usage = metered("openai.chat", body, provider=provider).usage()
    assert (usage.output_tokens, usage.reasoning_tokens) == (50, 20)
    read = reading(output_tokens=50, reasoning_tokens=20, tool_units=usage.tool_units)
    assert amounts(PriceBook().price(exchange("gpt-4.1"), read))["output"][0] == billed


def test_a_sum_of_completion_and_reasoning_beyond_any_count_is_not_billed():
    most = COUNT_MAX
    details = {"reasoning_tokens": 1}
    usage = {"completion_tokens": most, "completion_tokens_details": details}
    body = {"choices": [{"message": {"content": "x"}}], "usage": usage}
    read = metered("openai.chat", body, provider="vercel").usage()
    assert (read.output_tokens, read.tool_units) == (most, {})


@for_each("response", ["lost", {"chat_get_completion": "lost"}, {}, None])
def test_a_page_of_batch_results_without_an_answer_gives_no_figures(response):
    results = [{"batch_request_id": "a", "batch_result": {"response": response}}]
    usage = metered("xai.batch_results", {"results": results}).usage()
    assert (usage.input_tokens, usage.output_tokens) == (None, None)


def batch_of(*answers):
    return b"".join(
        json.dumps({"custom_id": "c", "result": {"type": "succeeded", "message": answer}}).encode()
        + b"\n"
        for answer in answers
    )


def answer_of(input_tokens, **usage):
    return {
        "type": "message",
        "id": f"msg_{input_tokens}",
        "model": "claude-haiku-5-5",
        "usage": {"input_tokens": input_tokens, "output_tokens": 10, **usage},
    }


def test_attempts_of_a_batch_that_were_declined_are_groups_of_their_category():
    """A model that gave up, and the one that answered in its place."""
    attempt = {"type": "message", "model": "claude-opus-5", "input_tokens": 1_000}
    answered = {"type": "fallback_message", "model": "claude-haiku-5-5", "input_tokens": 1_000}
    iterations = [{**attempt, "output_tokens": 0}, {**answered, "output_tokens": 10}]
    usage = metered(
        "anthropic.batch_results",
        batch_of(answer_of(1_000, iterations=iterations), answer_of(1_000)),
        content_type="application/x-jsonl",
    ).usage()
    assert (usage.input_tokens, usage.output_tokens) == (2_000, 20)
    assert [(one.kind, one.model, one.usage.input_tokens) for one in usage.further] == [
        ("refusal_none", "claude-opus-5", 1_000)
    ]


def priced(lines):
    meter = metered("anthropic.batch_results", lines, content_type="application/x-jsonl")
    usage = meter.usage()
    read = reading(**{name: getattr(usage, name) for name in type(usage).__struct_fields__})
    return PriceBook().price(
        exchange("claude-haiku-5-5", provider="anthropic", service_tier="batch"),
        replace(read, usage_json=meter.usage_json),
    )


def test_a_batch_is_priced_request_by_request():
    """Haiku 5.5 over 100 000 costs five times as much; the average of these is below it."""
    charges = priced(batch_of(*[answer_of(1000)] * 9, answer_of(150_000)))
    # half of $0.10 and $0.50 in, of $0.50 and $2.50 out
    assert cost(charges) == 9 * (1000 * 50_000 + 10 * 250_000) + 150_000 * 250_000 + 10 * 1_250_000


def test_a_batch_in_one_region_is_billed_for_it_and_a_mixed_one_is_partial():
    in_us = priced(batch_of(*[answer_of(1000, inference_geo="us")] * 2))
    assert cost(in_us) == 2 * (1000 * 55_000 + 10 * 275_000)
    mixed = priced(
        batch_of(answer_of(1000, inference_geo="us"), answer_of(1000, inference_geo="global"))
    )
    assert mixed[-1].reason == "usage.inference_geo 'mixed': no billing rule knows this value"


@pytest.mark.large
def test_every_step_of_a_published_price_is_one_that_sums_respect():
    steps = {step.input_tokens for rule in rules.published().rules for step in rule.table.above}
    for provider in providers:
        for model in provider.models:
            prices = [each.prices for each in model.price_variants or ()]
            prices += (
                [each.prices for each in model.prices]
                if isinstance(model.prices, list)
                else [model.prices]
            )
            for price in prices:
                for figure in vars(price).values():
                    steps |= {tier.start for tier in getattr(figure, "tiers", ())}
    assert steps <= set(SIZE_STEPS)


def test_the_billing_fields_are_those_that_the_rules_have():
    assert set(rules.published().known) == set(BILLING_FIELDS)


def by_modality(key, **tokens):
    return [{"modality": modality, key: count} for modality, count in tokens.items()]


@for_each("dialect", ["gemini.generate_content", "gemini.interactions"])
def test_every_modality_is_counted_apart(dialect):
    """An image costs ten times as much as text (https://ai.google.dev/gemini-api/docs/pricing); one
    of a kind that no list names yet has no price, and is not priced as text."""
    if dialect == "gemini.interactions":
        usage = {
            "total_input_tokens": 100,
            "total_output_tokens": 60,
            "total_cached_tokens": 30,
            "input_tokens_by_modality": by_modality("tokens", text=40, audio=50, hologram=10),
            "output_tokens_by_modality": by_modality("tokens", text=10, image=50),
            "cached_tokens_by_modality": by_modality("tokens", audio=30),
        }
        whole: dict[str, object] = {"object": "interaction", "id": "i", "status": "completed"}
        body = whole | {"usage": usage}
    else:
        usage = {
            "promptTokenCount": 100,
            "candidatesTokenCount": 60,
            "cachedContentTokenCount": 30,
            "promptTokensDetails": by_modality("tokenCount", TEXT=40, AUDIO=50, HOLOGRAM=10),
            "candidatesTokensDetails": by_modality("tokenCount", TEXT=10, IMAGE=50),
            "cacheTokensDetails": by_modality("tokenCount", AUDIO=30),
        }
        body = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    found = metered(dialect, body).usage()
    assert (found.input_tokens, found.output_tokens, found.input_audio_tokens) == (100, 60, 50)
    assert found.tool_units == {
        "input_hologram_tokens": 10,
        "output_image_tokens": 50,
        "cache_read_audio_tokens": 30,
    }
    about = exchange("gemini-3-pro-image-preview", provider="google")
    charges = PriceBook().price(about, replace(reading(), usage=found))
    priced = {each.line: each.amount_picousd for each in charges}
    assert priced["input_hologram_tokens"] is None
    assert priced["output_image"] == 50 * 120_000_000


def test_modalities_are_bounded():
    many = by_modality("tokenCount", **{f"KIND_{'A' * n}": 1 for n in range(60)})
    details = [*many, {"modality": 7, "tokenCount": 1}]
    usage = {"promptTokenCount": 60, "promptTokensDetails": details}
    body = {"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}
    assert len(metered("gemini.generate_content", body).usage().tool_units) == 16


def test_an_unknown_count_is_a_unit_of_its_own():
    """A new unit in `usage` must not be priced as nothing; a speed is not billed."""
    counts = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "hologram_tokens": 7,
        "zero_tokens": 0,
        "tokens_per_minute": 900,
        "details": {"teleportRequests": 2, "note_tokens": "many"},
        "prompt_tokens_details": {"dreamTokens": 3},
        "portals": [{"kind": "red", "portal_calls": 2}, {"portal_calls": 1}],
        "a_details": {"b_details": {"c_details": [{"deep_tokens": 4}]}},
        "warp_units": 1.5,
        "spell_tokens": "9",
        "lost_tokens": float("nan"),
    }
    choices = [{"finish_reason": "stop", "message": {"content": "x"}}]
    units = metered("openai.chat", {"choices": choices, "usage": counts}).usage().tool_units
    assert units == {
        "hologram_tokens": 7,
        "details_teleport_requests": 2,
        "prompt_tokens_details_dream_tokens": 3,
        "portals_portal_calls": 3,
        "a_details_b_details_c_details_deep_tokens": 4,
        "warp_units": 2,
        "spell_tokens": 9,
    }
    charges = PriceBook().price(exchange("gpt-4.1"), reading(input_tokens=10, tool_units=units))
    assert {each.line for each in charges if each.amount_picousd is None} == set(units)
