"""Pure. The hosts that serve the agents' models: a log has a word for one, or an answer's id."""

from addon.parts.agent_logs.call import UNKNOWN_SERVER

VERTEX, BEDROCK, LOCAL = "aiplatform.googleapis.com", "bedrock-runtime.amazonaws.com", "localhost"
REGIONAL = (VERTEX, BEDROCK, "openai.azure.com")
"""Hosts whose bill depends on a region, which no log states."""
SERVER_OF_ID = {"msg_vrtx_": VERTEX, "msg_bdrk_": BEDROCK, "gen-": "openrouter.ai"}
"""How an answer's id begins -> the host that served it, whatever the agent believes."""
SERVERS = {
    "anthropic": "api.anthropic.com",
    "openai": "api.openai.com",
    "openai-codex": "chatgpt.com",
    "openai-native": "api.openai.com",
    "google": "generativelanguage.googleapis.com",
    "gemini": "generativelanguage.googleapis.com",
    "google-vertex": VERTEX,
    "google-vertex-anthropic": VERTEX,
    "vertexai": VERTEX,
    "amazon-bedrock": BEDROCK,
    "bedrock": BEDROCK,
    "azure": "openai.azure.com",
    "openrouter": "openrouter.ai",
    "opencode": "opencode.ai",
    "github-copilot": "api.githubcopilot.com",
    "copilot": "api.githubcopilot.com",
    "deepseek": "api.deepseek.com",
    "groq": "api.groq.com",
    "xai": "api.x.ai",
    "mistral": "api.mistral.ai",
    "moonshotai": "api.moonshot.ai",
    "zai": "api.z.ai",
    "cerebras": "api.cerebras.ai",
    "fireworks-ai": "api.fireworks.ai",
    "togetherai": "api.together.xyz",
    "ollama": LOCAL,
    "oss": LOCAL,
    "lmstudio": LOCAL,
    "llama.cpp": LOCAL,
}
"""An agent's word for who serves it -> the host. Any other word is a server of the user's own."""


def server_of(
    own: str,
    models: str,
    *,
    word: str | None = None,
    response_id: str | None = None,
    model: str | None,
) -> str:
    """The host that served an answer: by its id, by the agent's word, by its model: the agent's
    `own` host serves those whose names begin with `models`."""
    for beginning, host in SERVER_OF_ID.items():
        if response_id is not None and response_id.startswith(beginning):
            return host
    if word is not None:
        return SERVERS.get(word.lower(), UNKNOWN_SERVER)
    return own if model is None or model.startswith(models) else UNKNOWN_SERVER
