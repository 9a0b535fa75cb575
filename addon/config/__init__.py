"""Config: one TOML file for `tokentee run`: upstreams with listeners, ledger, tags, and the rest.

In: a file, the environment. Out: settings with the line of every mistake; words for the proxy's
command line. An environment variable stands above the file, an option above both.
Uses: the ledger's model and names (where files of settings lie).
"""
