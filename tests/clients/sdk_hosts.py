"""Hosts that LLM SDKs call by default and the table of providers lacks.

    uv run python -m tests.clients.sdk_hosts [PACKAGE...]

downloads the newest release of each SDK below, or of the named ones (`npm:NAME` is one of npm), reads
the URLs that stand in its code beside a word for a base URL, and prints those whose host no row of
`ledger/model/providers.py` has. Exit code 1 if there are any. Run by name: it needs the network, and
a new release adds hosts without a change of ours.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ledger.model import provider_table

SDKS = (
    *("openai", "anthropic", "google-genai", "google-cloud-aiplatform", "mistralai", "cohere"),
    *("groq", "xai-sdk", "together", "fireworks-ai", "cerebras-cloud-sdk", "replicate"),
    *("huggingface-hub", "ai21", "writer-sdk", "voyageai", "dashscope", "zai-sdk", "zhipuai"),
    *("sarvamai", "ibm-watsonx-ai", "perplexityai", "volcengine-python-sdk", "qianfan"),
    *("yandex-cloud-ml-sdk", "gigachat", "portkey-ai", "openrouter", "ollama", "sambanova"),
    *("baseten", "deepinfra", "litellm", "llama-api-client", "aleph-alpha-client", "dify-client"),
    *("npm:@aws-sdk/client-bedrock-runtime", "npm:@openrouter/sdk", "npm:@fal-ai/client"),
    *("npm:@ai-sdk/xai", "npm:@ai-sdk/deepinfra", "npm:@ai-sdk/baseten", "npm:@ai-sdk/gateway"),
    *("npm:@ai-sdk/alibaba", "npm:@ai-sdk/moonshotai", "npm:@ai-sdk/cerebras"),
    *("npm:@ai-sdk/huggingface", "npm:@ai-sdk/togetherai", "npm:@ai-sdk/vercel"),
)
PARTS = {"litellm": ("litellm/llms/", "litellm/litellm_core_utils/get_llm_provider_logic.py")}
"""What of a package names upstreams, if its other code names much else."""
NOT_SHIPPED = re.compile(r"(^|/)(tests?|docs|examples|_test\w*|\w*_tests?)(/|\.py$)")
CODE = (".py", ".js", ".mjs", ".cjs", ".json")
FILE_BYTES_MAX = 4 * 2**20
_URL = re.compile(r"(?:https?|wss?)://([A-Za-z0-9.{}$<>_-]+\.[a-z]{2,})(?![\w.-])")
_DEFAULT = re.compile(
    r"base_?ur[li]|api_?base|endpoint|default|host\b|origin|server|environment|prefix|_?url\b", re.I
)
_HOLE = re.compile(r"\$?\{[^}]*\}|<[^>]*>")
NO_HOST = re.compile(
    r"[{}]|^(docs|dev|learn|hub|example|service)\.|example|(^|[.-])(your|my|new|acme|test|x)[.-]"
)
NO_INFERENCE = (
    *("cloudfront.net", "us-kfp.pkg.dev", "pypi.org", "b10.run"),
    *("api.e2b.app", "api.manus.im", "api.scaledown.xyz", "apiserpent.com", "fastcrw.com"),
    # documentation, code, examples, standards
    *("github.com", "github.io", "githubusercontent.com", "w3.org", "mozilla.org", "python.org"),
    *(
        "example.com",
        "example.org",
        ".test",
        ".local",
        "readthedocs.io",
        "docs.rs",
        "rust-lang.org",
    ),
    *(
        "wikipedia.org",
        "json-schema.org",
        "stackoverflow.com",
        "arxiv.org",
        "npmjs.com",
        "ietf.org",
    ),
    *("creativecommons.org", "britannica.com", "nationalgeographic.org", "slack.com", "discord.gg"),
    *("openapis.org", "swagger.io", "spdx.org", "keras.io", "hf.co", "huggingface.co", "hf.space"),
    *("hf.jobs", "platform.claude.com", "docker.internal", "litellm.ai", "medium.com"),
    # logins, metadata of machines, storage, consoles
    *(
        "storage.googleapis.com",
        "oauth2.googleapis.com",
        "www.googleapis.com",
        "accounts.google.com",
    ),
    *(
        "cloud.google.com",
        "metadata.google.internal",
        "googleusercontent.com",
        "microsoftonline.com",
    ),
    *("management.azure.com", "monitor.azure.com", "graph.microsoft.com", "amazonaws.com"),
    *(
        "aws.amazon.com",
        "iam.cloud.ibm.com",
        "bluemix.net",
        "saas.ibm.com",
        "ngw.devices.sberbank.ru",
    ),
    *("iam.bj.baidubce.com", "console.bce.baidu.com", "softlayer.net", "networklayer.com"),
    *(
        "platform.ibmforusgov.com",
        "platform.prep.ibmforusgov.com",
        "alicdn.com",
        "sandbox.googleapis.com",
    ),
    # measurements, search, tools, guards
    *("sentry.io", "datadoghq.com", "datadoghq.eu", "grafana.net", "arize.com", "braintrust.dev"),
    *(
        "langchain.com",
        "trace.wandb.ai",
        "langfuse.com",
        "posthog.com",
        "api.ramp.com",
        "zapier.com",
    ),
    *("telemetry.googleapis.com", "telemetry.mtls.googleapis.com", "webhook.site", "searchapi.io"),
    *("api.search.brave.com", "api.tavily.com", "api.exa.ai", "api.firecrawl.dev", "api.linkup.so"),
    *("google.serper.dev", "api.you.com", "ydc-index.io", "api.parallel.ai", "nimbleway.com"),
    *("api.dataforseo.com", "tinyfish.ai", "api.duckduckgo.com", "pubsub.googleapis.com"),
    # speech, pictures, films: billed by the second or the piece
    *("fal.run", "api.stability.ai", "api.bfl.ai", "recraft.ai", "topazlabs.com", "runwayml.com"),
    *("bria-api.com", "elevenlabs.io", "deepgram.com", "soniox.com", "texttospeech.googleapis.com"),
    *("api.assemblyai.com", "eu.assemblyai.com", "api.wavespeed.ai"),
)
"""Ends of hosts that a person has looked at: no LLM answers there."""


def main(names: tuple[str, ...]) -> int:
    """Print what is missing; 1 if anything is."""
    missing: dict[str, set[str]] = defaultdict(set)
    with tempfile.TemporaryDirectory() as folder:
        for name in names or SDKS:
            try:
                archive = download(name, Path(folder) / re.sub(r"\W", "-", name))
            except (subprocess.SubprocessError, StopIteration) as error:
                sys.stdout.write(f"not read: {name} ({type(error).__name__})\n")
                continue
            for host in set(default_hosts(archive, PARTS.get(name, ("",)))):
                if provider_table.TABLE.at(host) is None:
                    missing[host].add(name)
            archive.unlink()
    for host, found_in in sorted(missing.items()):
        sys.stdout.write(f"{host}\t{', '.join(sorted(found_in))}\n")
    return 1 if missing else 0


def download(name: str, folder: Path) -> Path:
    """The newest release of an SDK. Raises SubprocessError if there is none."""
    folder.mkdir()
    manager, _, package = name.rpartition(":")
    if manager == "npm":
        command = ["npm", "pack", "--silent", package]
    else:
        command = ["pip", "download", "-q", "--no-deps", package]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return next(folder.iterdir())


def default_hosts(archive: Path, folders: tuple[str, ...]) -> Iterator[str]:
    """Hosts of the URLs that an archive's code has beside a word for a base URL."""
    for text in _texts(archive, folders):
        for line in text.splitlines():
            for piece in re.split(r"[;\n]", line) if len(line) > 2_000 else (line,):
                for found in _URL.finditer(piece):
                    near = piece[max(0, found.start() - 120) : found.start()]
                    host = _HOLE.sub("x", found[1]).lower()
                    if host.endswith(NO_INFERENCE) or NO_HOST.search(host):
                        continue
                    if _DEFAULT.search(near):
                        yield host


def _texts(archive: Path, folders: tuple[str, ...]) -> Iterator[str]:
    def is_read(name: str, size: int) -> bool:
        is_code = name.endswith(CODE) and not NOT_SHIPPED.search(name)
        return is_code and name.startswith(folders) and size <= FILE_BYTES_MAX

    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as files:
            for entry in files.infolist():
                if is_read(entry.filename, entry.file_size):
                    yield files.read(entry).decode("utf-8", "replace")
        return
    with tarfile.open(archive) as tape:
        for member in tape:
            content = tape.extractfile(member) if is_read(member.name, member.size) else None
            if content is not None:
                yield content.read().decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
