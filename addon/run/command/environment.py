"""Pure. The child's environment: the parent's, with variables that send its LLM traffic to the
recorder.

Only variables that redirect traffic are set, and none that would change a client's behaviour. A
base URL in particular changes much: with `OPENAI_BASE_URL` LangChain stops asking for streamed
usage, gemini-cli refuses to start with `GOOGLE_GEMINI_BASE_URL` alone. So only base URLs that the
user has set are changed: one of a server on this machine, which clients do not call through a
proxy, is replaced by a listener with the same path after a secret prefix.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from addon.run.command.hosts import local_base_urls, origin_of


def environment_for(
    environment: Mapping[str, str],
    *,
    proxy_url: str,
    no_proxy: Sequence[str],
    bundles: Mapping[str, str],
    listeners: Mapping[str, str],
    preload: str,
    node_hosts: str,
) -> dict[str, str]:
    """The child's environment.

    `proxy_url`: with its credential; `no_proxy`: its entries; `bundles`: variable -> file;
    `listeners`: origin -> URL of the listener that replaces it; `preload`: the script that sets the
    proxy for older Node; `node_hosts`: the hosts that it proxies, as a regular expression.
    """
    child = dict(environment)
    for variable in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        child[variable] = proxy_url
    for variable in ("ALL_PROXY", "all_proxy"):
        if environment.get(variable):
            child[variable] = proxy_url
    for variable in ("NO_PROXY", "no_proxy"):
        child[variable] = ",".join(no_proxy)
    child.update(bundles)
    for variable, url in local_base_urls(environment).items():
        if origin_of(url) in listeners:
            child[variable] = listeners[origin_of(url)] + urlsplit(url).path
    child["NODE_USE_ENV_PROXY"] = "1"
    child["NODE_OPTIONS"] = node_options(environment.get("NODE_OPTIONS", ""), preload)
    child["TOKENTEE_NODE_HOSTS"] = node_hosts
    return child


def node_options(before: str, preload: str) -> str:
    """NODE_OPTIONS with the preload after the user's own options.

    Node reads a path with blanks in double quotes, with backslashes escaped
    (https://nodejs.org/api/cli.html#node_optionsoptions).
    """
    quoted = preload.replace("\\", "\\\\").replace('"', '\\"')
    return f'{before} --require "{quoted}"'.strip()
