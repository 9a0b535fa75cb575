"""Patches: what mitmproxy has no hook for, one file each.

Each file says why it is needed, and what happens without it; `versions` says for which mitmproxy.
In: mitmproxy's classes. Out: the same classes with wrapped methods, and a function that unwraps
them.
Uses: mitmproxy, nothing of ours.
"""
