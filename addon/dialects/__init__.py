"""What the frames of each wire format say.

dialect      what a dialect is: data and small functions
facts        what the wire has said so far in one exchange
json_door    the one place where JSON becomes values, bounded and cleaned
routes       path -> dialect        providers    host -> provider
request      what a request body says
counts, costs, errors         reading what nobody vouches for
openai_usage the usage object that many dialects share
openai_chat, openai_responses, anthropic, gemini, …   one file per wire format
"""
