"""Bytes -> frames with exact spans, for any way of cutting the bytes.

frame         what every framing gives and promises
sse           server-sent events (WHATWG)
document      one plain JSON body
ndjson, json_array, eventstream
choice        content type and first bytes -> framing
"""
