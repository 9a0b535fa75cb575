"""The bills of clouds, of which a service is one among many: AWS, Azure, Google Cloud."""

import json

from ledger.parts.reconcile.statement_files import read
from tests.ledger.parts.reconcile.test_statement_files import CUR, DAY
from tests.named import for_each

BEDROCK = [
    (
        "AmazonBedrock,USE1-Claude4.5Sonnet-input-tokens,2026-11-02T10:00:00Z,1.5,0.0045,USD,"
        "1K tokens,123",
        ("Claude4.5Sonnet", None, {"input_tokens": 1500, "cost_picousd": 4_500_000_000}),
    ),
    (
        "AmazonBedrock,EUW1-Claude4.5Sonnet-cache-read-input-token-count,2026-11-02T10:00:00Z,"
        "4000,0.0012,USD,Tokens,123",
        (
            "Claude4.5Sonnet",
            None,
            {
                "input_tokens": 4000,
                "cache_read_tokens": 4000,
                "cost_picousd": 1_200_000_000,
            },
        ),
    ),
    (
        "AmazonBedrock,USE1-Nova-Pro-output-tokens,2026-11-02T10:00:00Z,0.002,0.0064,USD,"
        "1M tokens,123",
        ("Nova-Pro", None, {"output_tokens": 2000, "cost_picousd": 6_400_000_000}),
    ),
    (
        "AmazonBedrock,USE1-Guardrail-ContentPolicyUnitsConsumed,2026-11-02T10:00:00Z,3,0.1,,"
        "Units,123",
        (None, "USE1-Guardrail-ContentPolicyUnitsConsumed", {"cost_picousd": 10**11}),
    ),
    (
        "AmazonBedrock,USE1-Nova-Pro-output-tokens,2026-11-02T10:00:00Z,,0,USD,Tokens,123",
        ("Nova-Pro", None, {"cost_picousd": 0}),
    ),
    (
        "AmazonBedrock,USE1-Nova-Pro-output-tokens,2026-11-02T10:00:00Z,1e-31,0,USD,Tokens,123",
        ("Nova-Pro", None, {"output_tokens": 0, "cost_picousd": 0}),
    ),
]


MANTLE = (
    "AmazonBedrock,USW2-anthropic.claude-opus-4-8-mantle-cache-write-tokens-global-standard,"
    "2026-11-02T10:00:00Z,2,0.0125,USD,1K tokens,123",
    (
        "anthropic.claude-opus-4-8",
        None,
        {"input_tokens": 2000, "cache_write_tokens": 2000, "cost_picousd": 12_500_000_000},
    ),
)


@for_each("row, expected", [*BEDROCK, MANTLE])
def test_bedrock_in_the_cost_and_usage_report(row, expected):
    """One line item for each kind of tokens; rows of other services are left out."""
    other = "AmazonEC2,BoxUsage:t3.micro,2026-11-02T10:00:00Z,24,0.25,USD,Hrs,123"
    statement = read("file", f"{CUR}{other}\n{row}\n")
    assert (statement.kind, statement.provider) == ("AWS Cost and Usage Report", "aws.bedrock")
    (line,) = statement.lines
    assert (line.day, line.project) == (DAY, "123")
    assert (line.model, line.item, line.figures) == expected


@for_each("code", ["AmazonBedrockFoundationModels", "AmazonBedrock", "4a524th30q694o538qndh9ucht"])
@for_each("column", ["product_servicename", "product_product_name", "product"])
def test_bedrock_through_the_marketplace(code, column):
    """Its usage types name no model, its product does; its units are millions of tokens."""
    name = "Claude Opus 4.6 (Amazon Bedrock Edition)"
    name = json.dumps({"product_name": name}).replace('"', '""') if column == "product" else name
    text = CUR.replace("\n", f",{column}\n") + "".join(
        f'{code},USE1-MP:USE1_{kind}-Units,2026-11-02T10:00:00Z,0.01,0.05,USD,Units,1,"{name}"\n'
        for kind in (
            "InputTokenCount",
            "CacheWrite1hInputTokenCount_Global",
            "cache_read_tokens_global_standard",
            "search_units",
        )
    )
    found = read("file", text).lines
    cost = {"cost_picousd": 5 * 10**10}
    assert [line.model for line in found] == [*["Claude Opus 4.6"] * 3, None]
    assert [line.figures for line in found] == [
        {"input_tokens": 10_000, **cost},
        {"input_tokens": 10_000, "cache_write_tokens": 10_000, **cost},
        {"input_tokens": 10_000, "cache_read_tokens": 10_000, **cost},
        cost,
    ]
    assert found[-1].item == "USE1-MP:USE1_search_units-Units"


AZURE = [
    (
        "Date,MeterCategory,MeterSubCategory,MeterName,ResourceGroup,CostInBillingCurrency,"
        "BillingCurrency",
        "11/02/2026,Foundry Models,Azure OpenAI,gpt 4o 0806 Inp glbl Tokens,search,0.25,USD",
    ),
    (
        "date,meterCategory,productName,meterName,resourceGroupName,costInBillingCurrency,"
        "billingCurrency",
        "2026-11-02,Cognitive Services,Azure OpenAI,gpt 4o 0806 Inp glbl Tokens,search,0.25,USD",
    ),
    (
        "UsageDateTime,MeterCategory,MeterSubCategory,MeterName,ResourceGroup,PreTaxCost",
        "2026-11-02T00:00:00Z,Azure OpenAI,,gpt 4o 0806 Inp glbl Tokens,search,0.25",
    ),
]


@for_each("header, row", AZURE)
def test_azure_cost_details(header, row):
    other = ",".join("1" for _ in row.split(","))
    statement = read("file", f"{header}\n{other}\n{row}\n")
    assert (statement.kind, statement.provider) == ("Azure cost details", "azure.ai.openai")
    (line,) = statement.lines
    assert (line.day, line.model, line.item, line.project, line.figures) == (
        DAY,
        None,
        "gpt 4o 0806 Inp glbl Tokens",
        "search",
        {"cost_picousd": 250_000_000_000},
    )


@for_each(
    "sku",
    [
        {"sku": {"id": "1", "description": "Gemini 2.5 Flash Text Input"}},
        {"sku.description": "Gemini 2.5 Flash Text Input"},
        {"sku_description": "Gemini 2.5 Flash Text Input"},
    ],
)
def test_google_cloud_billing_export(sku):
    def row(service, **more):
        return json.dumps(
            {
                "service": {"description": service},
                "usage_start_time": "2026-11-02 10:00:00 UTC",
                "cost": 0.25,
                "currency": "USD",
                "project": {"id": "p-1"},
                **sku,
                **more,
            }
        )

    text = f"{row('Compute Engine')}\n{row('Vertex AI')}\n{row('Gemini API', project=None)}\n"
    statement = read("file", text)
    assert (statement.kind, statement.provider) == ("Google Cloud billing export", "gcp.vertex_ai")
    assert [(line.day, line.item, line.project, line.figures) for line in statement.lines] == [
        (DAY, "Gemini 2.5 Flash Text Input", "p-1", {"cost_picousd": 250_000_000_000}),
        (DAY, "Gemini 2.5 Flash Text Input", None, {"cost_picousd": 250_000_000_000}),
    ]
