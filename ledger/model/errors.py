"""Pure. What the operator can put right."""


class LedgerError(Exception):
    """What happened, which value, what to do next, in one line; shown without a traceback."""
