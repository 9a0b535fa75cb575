"""Models in the words of a cloud's bill."""

from datetime import date

from ledger.parts.reconcile.model_names import UNMATCHED, matched, words_of
from ledger.parts.reconcile.statement import Line
from tests.named import for_each

DAY = date(2026, 11, 2)
AWS, AZURE = "aws.bedrock", "azure.ai.openai"


@for_each(
    "provider, bill, ledger, is_same",
    [
        (AWS, "Claude4.6Opus", "global.anthropic.claude-opus-4-6-v1", True),
        (AWS, "Claude Opus 4.6", "arn:aws:bedrock:x:1:y/us.anthropic.claude-opus-4-6-v1:0", True),
        (AWS, "Claude4Sonnet", "anthropic.claude-sonnet-4-20250514-v1:0", True),
        (AWS, "Claude3.5Sonnet", "anthropic.claude-3-5-sonnet-20240620-v1:0", True),
        (AWS, "Claude3.5Sonnetv2", "us.anthropic.claude-3-5-sonnet-20241022-v2:0", True),
        (AWS, "Claude3.5Sonnet", "us.anthropic.claude-3-5-sonnet-20241022-v2:0", False),
        (AWS, "Claude4.5Opus", "us.anthropic.claude-opus-5-4-v1:0", False),
        (AWS, "Claude4.6Opus", "us.anthropic.claude-sonnet-4-6", False),
        (AWS, "NovaPro", "amazon.nova-pro-v1:0", True),
        (AWS, "Nova2.0Lite", "us.amazon.nova-2-lite-v1:0", True),
        (AWS, "Llama3-3-70B", "us.meta.llama3-3-70b-instruct-v1:0", True),
        (AWS, "gpt-oss-120b", "openai.gpt-oss-120b-1:0", True),
        (AWS, "DeepSeek-R1", "us.deepseek.r1-v1:0", True),
        (AZURE, "gpt 4o 0806 Inp glbl Tokens", "gpt-4o-2024-08-06", True),
        (AZURE, "gpt 4.1 mini cached Inp Data Zone Tokens", "gpt-4.1-mini-2025-04-14", True),
        (AZURE, "gpt-5-codex-ccchd-inp-glbl Tokens", "gpt-5-codex", True),
        (AZURE, "GPT 5 Mini outpt Glbl 1M Tokens", "gpt-5-mini", True),
        (AZURE, "gpt-4o-aud-1217 Inp glbl", "gpt-4o", False),
        (AZURE, "5.4 pp inp Gl 1M Tokens", "gpt-5.4", False),
        (AZURE, "gpt 5.6 Inp Std 1M Tokens", "gpt-5.6-sol", False),
        ("openai", "GPT 5", "gpt-5", True),
    ],
)
def test_two_spellings_of_one_model(provider, bill, ledger, is_same):
    assert (words_of(provider, bill) == words_of(provider, ledger)) is is_same


def names(provider, lines, ours):
    found, renamed = matched(provider, lines, ours)
    return [(line.model, line.item) for line in found], dict(renamed)


def of(model=None, item=None):
    return Line(day=DAY, model=model, item=item, figures={"cost_picousd": 1})


def test_a_name_that_is_not_certain_stays_a_row_of_its_own():
    ours = ["us.anthropic.claude-opus-4-6-v1", "eu.anthropic.claude-opus-4-6-v1", "cohere.x"]
    found, renamed = names(AWS, [of("Claude4.6Opus"), of("Titan"), of(None, "Guardrail")], ours)
    assert found == [
        ("eu.anthropic.claude-opus-4-6-v1", None),
        ("Titan", None),
        (None, "Guardrail"),
    ]
    assert renamed == {
        "us.anthropic.claude-opus-4-6-v1": "eu.anthropic.claude-opus-4-6-v1",
        "eu.anthropic.claude-opus-4-6-v1": "eu.anthropic.claude-opus-4-6-v1",
        "cohere.x": "cohere.x",
    }


def test_meters_that_are_not_certain_are_one_row_with_the_models_that_none_names():
    meters = [of(None, f"{name} Tokens") for name in ("gpt 4.1 Inp", "5.4 inp", "gpt 4.1 Outp")]
    found, renamed = names(AZURE, [*meters, of(None, "Code Interpreter")], ["gpt-4.1", "gpt-5.4"])
    assert found == [
        ("gpt-4.1", None),
        (UNMATCHED, None),
        ("gpt-4.1", None),
        (None, "Code Interpreter"),
    ]
    assert renamed == {"gpt-4.1": "gpt-4.1", "gpt-5.4": UNMATCHED}


@for_each(
    "meters, ours",
    [
        (["gpt 4o Inp glbl Tokens", "gpt 4o strange Inp glbl Tokens"], ["gpt-4o"]),
        (["gpt 5.6 Inp Std 1M Tokens"], ["gpt-5.6", "gpt-5.6-sol"]),
        (["gpt 5.6 Inp Std 1M Tokens"], ["gpt-5.6-sol"]),
        (["5.4 inp Gl 1M Tokens"], ["gpt-5.4"]),
    ],
)
def test_a_bill_of_which_no_meter_is_certain_is_compared_by_day(meters, ours):
    lines = [of(None, meter) for meter in meters]
    assert matched(AZURE, lines, ours) == (lines, {})


@for_each("provider", [None, "openai"])
def test_names_of_other_vendors_are_exact(provider):
    lines = [of("Claude4.6Opus")]
    assert matched(provider, lines, ["claude-opus-4-6"]) == (lines, {})
