"""Workers: `tokentee run --workers N`. Several proxies on one address, and their supervisor.

In: a call of `tokentee run` without a command. Out: N processes that record into one ledger, one
log on stderr, one `/metrics`.

    supervisor     a call -> the start parameters; starts, replaces and stops the workers; signals
    listeners      the sockets, which the supervisor holds open for all, and who accepts next
    worker_process the workers in the supervisor's process: processes, log, health and metrics
    worker_messages  the messages between supervisor and worker
    __main__       the process itself: `python -m ...run.workers`
    worker_addon   what a worker does beside recording: it reports, and retires
Uses: proxy, proxy.host, run, run.call, run.command, telemetry; of the ledger: model, text.
"""
