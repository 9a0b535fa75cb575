"""Pure. Errors that the operator can fix."""


class LedgerError(Exception):
    """An error that the operator can fix. One line: what happened, which value, what to do next;
    shown without a traceback."""


class WrongCallError(LedgerError):
    """An invalid word on the command line: exit code 2, as for an unknown option."""
