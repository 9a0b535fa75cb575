"""Workers: `tokentee run --workers N`. Several proxies on one address, and their supervisor.

In: a call of `tokentee run` without a command. Out: N processes that record into one ledger, one
log on stderr, one `/metrics`.

    supervisor     starts, replaces and stops the workers; the signals
    plan           a call -> the start parameters of a worker
    listeners      the sockets, which the supervisor holds open for all
    worker_process one worker in the supervisor's process
    messages       the messages between supervisor and worker
    log            the lines of all workers, each whole
    worker         the process itself: `python -m ...workers.worker`
    attendant      the worker's addon: it reports, closes its listeners, and retires
Uses: proxy, proxy.host, run, run.call, run.command, telemetry; of the ledger: model, text.
"""
