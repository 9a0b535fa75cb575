"""Pure. How one exchange is named to a database."""

type Key = tuple[str, str]
"""opened_at as text, and the exchange's id."""
