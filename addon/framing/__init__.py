"""Framing: bytes -> frames with exact spans, for any way of cutting the bytes.

In: the bytes of one body, in any chunks. Out: frames (SSE events, NDJSON lines, JSON array
elements, event-stream messages, or one plain document), and JSON values. Sans-IO.
Uses: nothing of ours.
"""
