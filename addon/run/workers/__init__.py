"""Workers: `tokentee run --workers N`. Several proxies on one address, and their supervisor.

In: a call of `tokentee run` without a command. Out: N processes that record into one ledger, one
log on stderr, one `/metrics`.

    supervisor     starts, replaces and stops the workers; the signals
    plan           a call -> the start parameters of a worker
    listeners      the sockets, which the supervisor holds open for all, and who accepts next
    worker_process one worker in the supervisor's process
    messages       the messages between supervisor and worker
    log            the lines of all workers, each whole
    metrics        health and metrics of all workers
    __main__       the process itself: `python -m ...run.workers`
    worker_addon   what a worker does beside recording: it reports, and retires
Uses: proxy, proxy.host, run, run.call, run.command, telemetry; of the ledger: model, text.
"""
