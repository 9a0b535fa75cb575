"""Run: `tokentee run`. A lean mitmproxy, alone or around a command.

    standalone       the proxy without a command
    proxied_command  the proxy, the command and the bill
    workers          several proxies on one address: their supervisor, health and bill
    worker           one of them, and what it reports
    ports            where they listen, until they stop
    master           mitmproxy with only the addons that recording needs
    bill             what the command used
    leftovers        the folder of a run, and those of runs that were killed
    imports          imports without the garbage collector, for a quick start
    call/            the command line and the config file
    command/         the command: its environment, its process, its connections
    preload.cjs      sets the proxy for older Node.js

In: a command line and the parent's environment. Out: the command's exit code; its bill and warnings
about bypassed requests, on stderr.
Uses: proxy, run.call, run.command; of the ledger: figures, model, reports, settings, store,
store.engines, text.
"""
