"""Run: `tokentee run`. A lean mitmproxy, alone or around a command.

In: a command line and the parent's environment. Out: the command's exit code, its bill and what
may have gone past, on stderr.

    arguments     the words -> a call
    alone, around the proxy alone; the proxy, the command and the bill
    child         the command's process
    environment, authorities, hosts, outbound
                  what the command is told; certificates; which hosts are decrypted; the way out
    gate          who may use the proxy, what is decrypted, through which proxy it goes out
    bypass        connections that went past
    lean, master  mitmproxy with only the addons that recording needs
    summary       the bill
    workers/      several proxies on one address, and their supervisor
    preload.cjs   leads older Node.js

Uses: proxy and what it uses, the ledger.
"""
