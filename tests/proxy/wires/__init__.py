"""The wire formats as upstreams speak them, with the figures they hold, worked out by hand.

Spelling differs on purpose (blanks, CRLF, padding keys, comments, escapes): all of it must reach
the client untouched.

wire    what a wire is
chat    chat completions, whose usage may have to be asked for
others  Anthropic, Gemini, OpenAI Responses, Cohere, Ollama, Bedrock
"""

from tests.proxy.wires.chat import CHAT_WIRES
from tests.proxy.wires.others import OTHER_WIRES

WIRES = (*CHAT_WIRES, *OTHER_WIRES)
