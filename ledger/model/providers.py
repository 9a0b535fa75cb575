"""Pure. The one table of providers: their hosts, price lists, usage policy and base URL variables.

A row holds everything that differs between providers except the wire format: hosts, price list,
whether streams carry usage unasked, the variables from which SDKs read a base URL, and the names
under which gateways sell its models. Adding a provider is one row. Wire formats are in
`addon/dialects`.

Names are OpenTelemetry's `gen_ai.provider.name` where it has one
(https://opentelemetry.io/docs/specs/semconv/registry/attributes/gen-ai/), the provider's own short
name elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

VENDOR = "vendor"
"""Instead of a price list: the list of the vendor that made the model."""


class StreamUsage(StrEnum):
    """When a provider's streams carry usage."""

    OPT_IN = "opt_in"
    """Only when the request asks for it, by the provider's documentation."""
    AUTOMATIC = "automatic"
    """Always, or the provider refuses the parameter: we never ask."""
    UNKNOWN = "unknown"
    """Learnt from its streams."""


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """An environment variable from which SDKs read their base URL."""

    variable: str
    default: str | None = None
    """The SDK's URL without it, with a `*` for a region; None if there is not a single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One row."""

    name: str
    hosts: tuple[str, ...] = ()
    """A name matches itself and all its subdomains; with a `*` it is a glob."""
    unlisted_hosts: tuple[str, ...] = ()
    """Hosts of the same provider that are not billed by its price list (a subscription)."""
    hosts_are_shared: bool = False
    """Other services answer at these hosts too, so a path alone does not prove an LLM call."""
    under_paths: Mapping[str, str] | None = None
    """Part of a path -> the provider that answers under it at the same hosts."""
    prices: str = ""
    """The price list of its hosts: an id of genai-prices or, for lists that it lacks, LiteLLM's
    provider name. `VENDOR` for a gateway whose own prices are in no list. Empty: no list is known;
    a list with the provider's name is tried."""
    prices_at: Mapping[str, str] | None = None
    """One of the hosts -> its price list, if it differs from `prices`."""
    stream_usage: StreamUsage = StreamUsage.UNKNOWN
    base_urls: tuple[BaseUrl, ...] = ()
    model_prefixes: tuple[str, ...] = ()
    """The prefixes that gateways put before this vendor's models: `openai/` in `openai/gpt-5`."""
    closed_models: str = ""
    """Names of models that only this vendor sells, as a regular expression for their beginning:
    every reseller buys them here."""
    open_models: str = ""
    """The same for models that others may also host."""


_WITH_A_LIST = {
    "abliteration": "api.abliteration.ai",
    "aiand": "api.aiand.com",
    "aihubmix": "aihubmix.com",
    "amazon_nova": "api.nova.amazon.com",
    "anyscale": "api.endpoints.anyscale.com",
    "clf_ai_gateway": "api.clfaigateway.dev",
    "cognition": "api.cognition.ai",
    "coralbricks": "inference.coralbricks.ai",
    "darkbloom": "api.darkbloom.dev",
    "empiriolabs": "api.empiriolabs.ai",
    "friendliai": "friendli.ai",
    "gmi": "api.gmi-serving.com",
    "gradient_ai": "inference.do-ai.run",
    "hostinger_router": "router.hostinger.com",
    "hyperbolic": "api.hyperbolic.xyz",
    "inception": "api.inceptionlabs.ai",
    "inferenceapis": "api.inferenceapis.com",
    "jina_ai": "api.jina.ai",
    "kyma": "kymaapi.com",
    "libertai": "api.libertai.io",
    "llamagate": "api.llamagate.dev",
    "morph": "api.morphllm.com",
    "nlp_cloud": "api.nlpcloud.io",
    "nscale": "inference.api.nscale.com",
    "openinfer": "api.openinfer.ai",
    "pinstripes": "pinstripes.io",
    "prism": "api.prisminference.com",
    "publicai": "api.publicai.co",
    "refuseless": "api.refuseless.com",
    "sail": "api.sailresearch.com",
    "scx-ai": "api.scx.ai",
    "streamlake": "vanchin.streamlake.ai",
    "tensormesh": "serverless.tensormesh.ai",
    "v0": "api.v0.dev",
    "wally": "inference.runanywhere.ai",
    "wandb": "api.inference.wandb.ai",
    "xiaomi_mimo": "api.xiaomimimo.com",
    "zerogpu": "api.zerogpu.ai",
}
"""Sellers of which nothing is known but a host and LiteLLM's price list of the same name."""
_WITHOUT_A_LIST = {
    "aimlapi": "api.aimlapi.com",
    "apertis": "api.stima.tech",
    "assemblyai": "llm-gateway.assemblyai.com",
    "bytez": "api.bytez.com",
    "charity_engine": "api.charityengine.services",
    "chutes": "llm.chutes.ai",
    "clarifai": "api.clarifai.com",
    "cometapi": "api.cometapi.com",
    "compactifai": "api.compactif.ai",
    "cortecs": "api.cortecs.ai",
    "edenai": "api.edenai.run",
    "empower": "app.empower.dev",
    "featherless_ai": "api.featherless.ai",
    "galadriel": "api.galadriel.com",
    "helicone": "helicone.ai",
    "maritalk": "chat.maritaca.ai",
    "modelscope": "api-inference.modelscope.cn",
    "nano-gpt": "nano-gpt.com",
    "neosantara": "api.neosantara.xyz",
    "parasail": "api.parasail.io",
    "poe": "api.poe.com",
    "predibase": "serving.app.predibase.com",
    "reka": "api.reka.ai",
    "synthetic": "api.synthetic.new",
}
"""Sellers of other vendors' models, without a list of their own."""
_OPENAI = "https://api.openai.com/v1"
_OPT_IN = StreamUsage.OPT_IN
_AUTOMATIC = StreamUsage.AUTOMATIC

PROVIDERS: tuple[Provider, ...] = (
    Provider(
        name="openai",
        hosts=("openai.com",),
        unlisted_hosts=("chatgpt.com",),
        prices="openai",
        stream_usage=_OPT_IN,
        base_urls=(BaseUrl("OPENAI_BASE_URL", _OPENAI), BaseUrl("OPENAI_API_BASE", _OPENAI)),
        model_prefixes=("openai", "azure"),
        closed_models=r"(ft:)?(gpt-(?!oss)|chatgpt-|o\d(-|$)|codex-|davinci-|babbage-"
        r"|text-embedding-)|dall-e-|whisper-1|tts-1|sora-",
    ),
    Provider(
        name="azure.ai.openai",
        # The last one is of a region: eastus.api.cognitive.microsoft.com.
        hosts=(
            "openai.azure.com",
            "cognitiveservices.azure.com",
            "api.cognitive.microsoft.com",
        ),
        prices="azure",
        stream_usage=_OPT_IN,
        base_urls=(BaseUrl("AZURE_OPENAI_ENDPOINT"),),
    ),
    Provider(
        name="azure.ai.inference",
        hosts=("services.ai.azure.com",),
        unlisted_hosts=("inference.ai.azure.com",),
        under_paths={"/openai/": "azure.ai.openai"},
        prices="azure",
    ),
    Provider(
        name="azure.api_management",
        hosts=("azure-api.net",),
        hosts_are_shared=True,
        prices="azure",
    ),
    Provider(
        name="aws.bedrock",
        hosts=(
            "bedrock-runtime*.amazonaws.com*",
            "bedrock-runtime*.api.aws",  # with IPv6
            "*.bedrock-runtime*.amazonaws.com*",  # an endpoint inside a private network
            "bedrock-mantle.*.api.aws",
        ),
        unlisted_hosts=("bedrock-agent-runtime*.amazonaws.com*",),
        prices="aws",
        base_urls=(
            BaseUrl("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "https://bedrock-runtime.*.amazonaws.com"),
        ),
    ),
    Provider(
        # Billed per machine hour; any model may run there.
        name="aws.sagemaker",
        hosts=("runtime.sagemaker*.amazonaws.com*", "runtime-fips.sagemaker*.amazonaws.com*"),
        hosts_are_shared=True,
    ),
    Provider(
        name="anthropic",
        hosts=("anthropic.com", "aws-external-anthropic.*.api.aws"),
        prices="anthropic",
        base_urls=(BaseUrl("ANTHROPIC_BASE_URL", "https://api.anthropic.com"),),
        model_prefixes=("anthropic",),
        closed_models=r"claude-",
    ),
    Provider(
        # Claude on Google Cloud that Anthropic manages; Vertex sells the one that Google manages.
        name="gcp.claude",
        hosts=("claude.googleapis.com",),
        prices=VENDOR,
        base_urls=(BaseUrl("ANTHROPIC_GOOGLE_CLOUD_BASE_URL", "https://claude.googleapis.com"),),
    ),
    Provider(
        name="gcp.gemini",
        hosts=(
            "generativelanguage.googleapis.com",
            "generativelanguage.mtls.googleapis.com",
            "cloudcode-pa.googleapis.com",
        ),
        prices="google",
        base_urls=(BaseUrl("GOOGLE_GEMINI_BASE_URL", "https://generativelanguage.googleapis.com"),),
        model_prefixes=("google", "gemini", "vertex"),
        closed_models=r"gemini-",
    ),
    Provider(
        name="gcp.vertex_ai",
        # A region stands before the name: us-east5-aiplatform.googleapis.com.
        hosts=(
            "aiplatform.googleapis.com",
            "*-aiplatform.googleapis.com",
            "aiplatform.*.rep.googleapis.com",  # several regions
            "*aiplatform.mtls.googleapis.com",
            "firebasevertexai.googleapis.com",
            "discoveryengine.googleapis.com",
            "*-discoveryengine.googleapis.com",
        ),
        prices="google",
        base_urls=(BaseUrl("GOOGLE_VERTEX_BASE_URL"),),
    ),
    Provider(
        name="cohere",
        hosts=("cohere.com", "cohere.ai"),
        prices="cohere",
        base_urls=(BaseUrl("CO_API_URL", "https://api.cohere.com"),),
        model_prefixes=("cohere",),
        open_models=r"command-|c4ai-|embed-|rerank-",
    ),
    Provider(
        name="mistral_ai",
        hosts=("mistral.ai",),
        prices="mistral",
        stream_usage=_AUTOMATIC,
        base_urls=(BaseUrl("MISTRAL_BASE_URL"),),
        model_prefixes=("mistralai", "mistral"),
        open_models=r"mistral-|ministral-|magistral-|codestral|devstral-|pixtral-|voxtral-",
    ),
    Provider(
        name="deepseek",
        hosts=("deepseek.com",),
        prices="deepseek",
        stream_usage=_AUTOMATIC,
        base_urls=(BaseUrl("DEEPSEEK_BASE_URL"),),
        model_prefixes=("deepseek", "deepseek-ai"),
        open_models=r"deepseek-",
    ),
    Provider(
        name="groq",
        hosts=("groq.com",),
        prices="groq",
        stream_usage=_AUTOMATIC,
        base_urls=(BaseUrl("GROQ_BASE_URL", "https://api.groq.com"),),
    ),
    Provider(
        name="x_ai",
        hosts=("x.ai",),
        prices="x-ai",
        stream_usage=_OPT_IN,
        base_urls=(BaseUrl("XAI_BASE_URL"),),
        model_prefixes=("x-ai", "xai"),
        closed_models=r"grok-",
    ),
    Provider(
        name="perplexity",
        hosts=("perplexity.ai",),
        prices="perplexity",
        stream_usage=_AUTOMATIC,
        model_prefixes=("perplexity",),
        open_models=r"sonar",
    ),
    Provider(
        name="ibm.watsonx.ai",
        hosts=("ml.cloud.ibm.com", "*.aws.wxai.ibm.com"),
        unlisted_hosts=("wxai.ibmforusgov.com",),
        prices="watsonx",
    ),
    # The five systems that the ledger first supported.
    Provider(name="aivene", hosts=("aivene.com",), prices=VENDOR, stream_usage=_OPT_IN),
    Provider(name="opentoken", hosts=("opentoken.kr",), prices=VENDOR, stream_usage=_AUTOMATIC),
    Provider(name="chuizi", hosts=("chuizi.ai",), prices=VENDOR, stream_usage=_OPT_IN),
    Provider(
        name="sansa",
        hosts=("sansaml.com", "trysansa.com"),
        prices=VENDOR,
        stream_usage=_AUTOMATIC,
    ),
    # Model makers and hosts of models.
    Provider(name="ai21", hosts=("ai21.com",), prices="ai21"),
    Provider(name="aleph_alpha", hosts=("aleph-alpha.com",), prices="aleph_alpha"),
    Provider(name="arcee", hosts=("api.arcee.ai",), prices="arcee", model_prefixes=("arcee-ai",)),
    Provider(name="avian", hosts=("avian.io",), prices="avian"),
    Provider(name="baidu", hosts=("aip.baidubce.com", "qianfan.baidubce.com")),
    Provider(name="baseten", hosts=("baseten.co",), prices="baseten"),
    Provider(
        name="cerebras",
        hosts=("cerebras.ai",),
        prices="cerebras",
        stream_usage=_OPT_IN,
        base_urls=(BaseUrl("CEREBRAS_BASE_URL"),),
    ),
    Provider(name="charm", hosts=("hyper.charm.land",)),
    Provider(
        name="cloudflare",
        hosts=("api.cloudflare.com",),
        hosts_are_shared=True,
        prices="cloudflare",
    ),
    Provider(name="crusoe", hosts=("crusoecloud.com",)),
    Provider(
        name="dashscope",
        # The last ones are of a region or a workspace.
        hosts=(
            "dashscope*.aliyuncs.com",
            "*.dashscope.aliyuncs.com",
            "*.maas.aliyuncs.com",
        ),
        prices="dashscope",
        stream_usage=_OPT_IN,
        base_urls=(BaseUrl("DASHSCOPE_HTTP_BASE_URL", "https://dashscope.aliyuncs.com/api/v1"),),
    ),
    Provider(
        name="databricks",
        hosts=("azuredatabricks.net", "cloud.databricks.com", "gcp.databricks.com"),
        hosts_are_shared=True,
        prices="databricks",
    ),
    Provider(name="datarobot", hosts=("datarobot.com",), hosts_are_shared=True, prices=VENDOR),
    Provider(name="deepinfra", hosts=("deepinfra.com",), prices="deepinfra", stream_usage=_OPT_IN),
    Provider(name="dify", hosts=("api.dify.ai",)),
    Provider(name="doubleword", hosts=("doubleword.ai",), prices="doubleword"),
    Provider(name="fireworks", hosts=("fireworks.ai",), prices="fireworks", stream_usage=_OPT_IN),
    Provider(name="gigachat", hosts=("gigachat.devices.sberbank.ru", "api.giga.chat")),
    Provider(name="github_copilot", hosts=("githubcopilot.com",), prices="github-copilot"),
    Provider(name="github_models", hosts=("models.github.ai",)),
    Provider(
        name="huggingface",
        hosts=("router.huggingface.co", "api-inference.huggingface.co", "huggingface.cloud"),
    ),
    Provider(name="lambda", hosts=("api.lambda.ai",)),
    Provider(name="meta", hosts=("api.meta.ai", "api.llama.com"), prices="meta"),
    Provider(
        name="minimax",
        hosts=("api.minimax*.*",),
        prices="minimax",
        model_prefixes=("minimax", "minimaxai"),
        open_models=r"minimax-",
    ),
    Provider(
        name="moonshot",
        hosts=("moonshot.ai", "moonshot.cn"),
        prices="moonshotai",
        model_prefixes=("moonshotai", "moonshot"),
        open_models=r"kimi-|moonshot-",
    ),
    Provider(name="nebius", hosts=("nebius.com", "nebius.ai")),
    Provider(name="novita", hosts=("novita.ai",), prices="novita"),
    Provider(name="nvidia", hosts=("integrate.api.nvidia.com", "ai.api.nvidia.com")),
    Provider(name="oci", hosts=("inference.generativeai.*.oraclecloud.com",), prices="oci"),
    Provider(name="ollama", hosts=("ollama.com",), base_urls=(BaseUrl("OLLAMA_HOST"),)),
    Provider(name="ovhcloud", hosts=("*.ai.cloud.ovh.net",), prices="ovhcloud"),
    Provider(
        name="replicate",
        hosts=("api.replicate.com", "stream.replicate.com"),
        base_urls=(BaseUrl("REPLICATE_BASE_URL", "https://api.replicate.com"),),
    ),
    Provider(name="sambanova", hosts=("sambanova.ai",), prices="sambanova"),
    Provider(name="sap", hosts=("api.ai.*.ml.hana.ondemand.com",)),
    Provider(name="sarvam", hosts=("api.sarvam.ai",), prices="sarvam", stream_usage=_OPT_IN),
    Provider(name="scaleway", hosts=("api.scaleway.ai",)),
    Provider(name="siliconflow", hosts=("api.siliconflow.com", "api.siliconflow.cn")),
    Provider(
        name="snowflake",
        hosts=("snowflakecomputing.com",),
        hosts_are_shared=True,
        prices="snowflake",
    ),
    Provider(
        name="tencent",
        hosts=(
            "hunyuan*.tencentcloudapi.com",
            "api.hunyuan.cloud.tencent.com",
            "*.tencentcloudmaas.com",
        ),
    ),
    Provider(
        name="together",
        hosts=("together.ai", "together.xyz"),
        prices="together",
        base_urls=(BaseUrl("TOGETHER_BASE_URL"),),
    ),
    Provider(
        name="volcengine",
        hosts=("ark.*.volces.com",),
        unlisted_hosts=("ark.*.bytepluses.com",),
        prices="volcengine",
        stream_usage=_OPT_IN,
    ),
    Provider(
        name="voyage",
        hosts=("voyageai.com", "ai.mongodb.com"),
        prices="voyageai",
        model_prefixes=("voyage", "voyageai"),
    ),
    Provider(name="writer", hosts=("api.writer.com",), base_urls=(BaseUrl("WRITER_BASE_URL"),)),
    Provider(name="yandex", hosts=("llm.api.cloud.yandex.net", "ai.api.cloud.yandex.net")),
    Provider(
        name="zai",
        hosts=("z.ai", "bigmodel.cn"),
        prices="zai",
        prices_at={"bigmodel.cn": "zhipuai"},
        model_prefixes=("z-ai", "zai", "zai-org"),
        open_models=r"glm-",
    ),
    # Gateways.
    Provider(name="cloudflare_gateway", hosts=("gateway.ai.cloudflare.com",), prices=VENDOR),
    Provider(name="heroku", hosts=("inference.heroku.com",), prices=VENDOR),
    Provider(
        name="openrouter",
        hosts=("openrouter.ai",),
        prices="openrouter",
        stream_usage=_AUTOMATIC,
        base_urls=(BaseUrl("OPENROUTER_BASE_URL"),),
    ),
    Provider(name="opencode", hosts=("opencode.ai",), hosts_are_shared=True, prices=VENDOR),
    Provider(name="portkey", hosts=("portkey.ai",), prices=VENDOR),
    Provider(name="pydantic_gateway", hosts=("gateway.pydantic.dev",), prices=VENDOR),
    Provider(name="requesty", hosts=("requesty.ai",), prices=VENDOR),
    Provider(name="venice", hosts=("venice.ai",), prices=VENDOR),
    Provider(name="vercel", hosts=("ai-gateway.vercel.sh",), prices=VENDOR),
    *(Provider(name=name, hosts=(host,), prices=name) for name, host in _WITH_A_LIST.items()),
    *(Provider(name=name, hosts=(host,), prices=VENDOR) for name, host in _WITHOUT_A_LIST.items()),
)
