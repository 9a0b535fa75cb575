"""What the frames of each wire format say.

dialect      what a dialect is: data and small functions
facts        what the wire has said so far in one exchange
json_door    the one place where JSON becomes values, bounded and cleaned
routes       path -> dialect, host -> provider
openai_chat, openai_responses, anthropic, gemini, …   one file per wire format
"""
