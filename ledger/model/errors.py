"""Pure. What the operator can put right."""


class LedgerError(Exception):
    """What happened, which value, what to do next, in one line; shown without a traceback."""


class WrongCallError(LedgerError):
    """A word of the command line that means nothing: exit code 2, as for an unknown option."""
