"""Patches: what mitmproxy has no hook for, one file each.

Each file says why it is needed, for which versions, and what happens without it.
In: mitmproxy's classes. Out: the same classes with wrapped methods, and a function that unwraps
them.
Uses: mitmproxy, nothing of ours.
"""
