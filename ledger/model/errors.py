"""Pure. Errors that the operator can fix."""


class LedgerError(Exception):
    """An error that the operator can fix. One line: what happened, which value, what to do next;
    shown without a traceback."""


def named(failure: BaseException) -> str:
    """The type of an error and the place that raised it. Its text is left out: it may quote what it
    was about (`UnicodeEncodeError` has all of it)."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return f"{type(failure).__name__} in unknown place"
    return (
        f"{type(failure).__name__} in {trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"
    )


class NoLedgerError(LedgerError):
    """The file of the ledger is not there."""


class EmptyLedgerError(LedgerError):
    """Nothing was found, and the ledger has no request at all. The command has done what it was
    asked for: exit code 0."""


class WrongCallError(LedgerError):
    """An invalid word on the command line: exit code 2, as for an unknown option."""
