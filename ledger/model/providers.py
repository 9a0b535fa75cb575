"""Pure. Host -> provider: who answers. A row here names a new provider.

OpenTelemetry's `gen_ai.provider.name` where it has one
(https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/), the provider's own
short name where not.
"""

PROVIDERS = {
    "openai.com": "openai",
    "chatgpt.com": "openai",
    "openai.azure.com": "azure.ai.openai",
    "cognitiveservices.azure.com": "azure.ai.openai",
    "services.ai.azure.com": "azure.ai.inference",
    "inference.ai.azure.com": "azure.ai.inference",
    "amazonaws.com": "aws.bedrock",
    "api.aws": "aws.bedrock",
    "anthropic.com": "anthropic",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "cloudcode-pa.googleapis.com": "gcp.gemini",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
    "firebasevertexai.googleapis.com": "gcp.vertex_ai",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "mistral.ai": "mistral_ai",
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "x.ai": "x_ai",
    "perplexity.ai": "perplexity",
    "ml.cloud.ibm.com": "ibm.watsonx.ai",
    "aivene.com": "aivene",
    "opentoken.kr": "opentoken",
    "chuizi.ai": "chuizi",
    "sansaml.com": "sansa",
    "trysansa.com": "sansa",
    "ai21.com": "ai21",
    "aliyuncs.com": "dashscope",
    "avian.io": "avian",
    "cerebras.ai": "cerebras",
    "cloudflare.com": "cloudflare",
    "crusoecloud.com": "crusoe",
    "azuredatabricks.net": "databricks",
    "cloud.databricks.com": "databricks",
    "deepinfra.com": "deepinfra",
    "doubleword.ai": "doubleword",
    "fireworks.ai": "fireworks",
    "githubcopilot.com": "github_copilot",
    "models.github.ai": "github_models",
    "heroku.com": "heroku",
    "huggingface.co": "huggingface",
    "huggingface.cloud": "huggingface",
    "moonshot.ai": "moonshot",
    "moonshot.cn": "moonshot",
    "nebius.com": "nebius",
    "novita.ai": "novita",
    "ollama.com": "ollama",
    "openrouter.ai": "openrouter",
    "portkey.ai": "portkey",
    "replicate.com": "replicate",
    "sambanova.ai": "sambanova",
    "snowflakecomputing.com": "snowflake",
    "together.ai": "together",
    "together.xyz": "together",
    "venice.ai": "venice",
    "ai-gateway.vercel.sh": "vercel",
    "voyageai.com": "voyage",
    "writer.com": "writer",
    "z.ai": "zai",
    "bigmodel.cn": "zai",
}


def provider_of(host: str, path: str) -> str:
    """Who answers at a host; the host itself if no row fits any suffix of it."""
    host = host.lower().rstrip(".")
    if host.endswith("services.ai.azure.com") and "/openai/" in path:
        return "azure.ai.openai"  # one resource answers for both, by path
    if host.endswith("-aiplatform.googleapis.com"):
        return "gcp.vertex_ai"  # a region stands before it: us-east5-aiplatform.…
    suffix = host
    while suffix:
        provider = PROVIDERS.get(suffix)
        if provider is not None:
            return provider
        suffix = suffix.partition(".")[2]
    return host
