"""Why: why requests cost what they cost, read from their segments.

In: requests with segments, prices. Out: for each request whether it was served from the prompt
cache, and if not, why. `cache` is pure and judges one request after another; `reading` reads the
requests and prices the misses. Uses: pricing, store, model.
"""
