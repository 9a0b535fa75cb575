"""Command: what the proxy runs: its environment, its process, and its connections.

    environment   the parent's environment, and what leads LLM traffic to the proxy
    authorities   certificates that are trusted on the way out, and bundles for the command
    hosts         which hosts are decrypted
    outbound      the proxy that the parent's environment names
    socks_bridge  an HTTP proxy on loopback before a SOCKS proxy of the parent's
    credential    what a request to the proxy must show
    gate          who may use the proxy, and through which proxy a connection goes out
    bypass        connections that went past the proxy
    child         the process

In: the parent's environment and the command. Out: its exit code, and what went past.
Uses: mitmproxy, dialects, the ledger's model and settings.
"""
