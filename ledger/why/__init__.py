"""Why: why requests cost what they cost, read from their segments.

In: requests with segments, prices. Out: for each request whether it was served from the prompt
cache, and if not, why; what fills the input; what another model would have cost. Pure: `cache`
judges one request after another, `simulation` is a cache, `caches` holds what providers document
(`caches.toml`), `context` adds up the parts of the input. `reading` reads the requests and prices
them.
Uses: model, pricing, store, store.schema.
"""
