"""Workers: `tokentee run --workers N`. Several proxies on one port, and their supervisor.

In: a call of `tokentee run` without a command. Out: N processes that record into one ledger, one
log on stderr, one `/metrics`.

    supervisor  starts, replaces and stops the workers; their health and metrics
    worker      what a worker does beside recording: it listens, reports, and retires
    job         the job of a worker, and its report
    __main__    the process of a worker: `python -m ...run.workers`

The kernel distributes the connections over the processes that listen on a port with SO_REUSEPORT
(https://lwn.net/Articles/542629/); only Linux does. Between supervisor and worker pass a job on
stdin, signals, an exit code, and files in a folder: the last report, and the metrics.
Uses: proxy, run, run.call, run.command; of the ledger: model, settings, store.engines,
store.processes, text.
"""
