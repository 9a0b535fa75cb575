"""Pure. The key of an exchange in a database."""

type Key = tuple[str, str]
"""opened_at as text, and the exchange's id."""
