"""Why: why requests cost what they cost, read from their segments.

In: requests with segments, prices. Out: for each request whether it was served from the prompt
cache, and if not, why; what fills the input. Pure: `cache` judges one request after another,
`caches` holds what providers document (`caches.toml`), `context` adds up the parts of the input.
`questions` reads the requests and prices them. `commits` adds requests up by the commit of git that
they led to.
Uses: commands, figures, model, pricing, reports, store, store.schema, text.
"""
