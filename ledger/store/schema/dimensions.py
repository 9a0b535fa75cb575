"""Pure. The dimensions of reports (`--by`), filters (`--only`), stored sums and the form on the
page of requests: one row each.

A new row is a dimension everywhere. Reports read one without stored sums from the requests; one
with stored sums needs its column in table `sums`, which a migration adds.
"""

from typing import NamedTuple


class DimensionRow(NamedTuple):
    """A word of reports, and the column of view `requests` that it stands for."""

    word: str
    column: str
    is_summed: bool = False
    """Table `sums` has the column."""
    has_field: bool = False
    """The page of requests has a field for it."""


DIMENSIONS = (
    DimensionRow("model", "model", is_summed=True, has_field=True),
    DimensionRow("provider", "provider", is_summed=True, has_field=True),
    DimensionRow("key", "key_fingerprint", is_summed=True, has_field=True),
    DimensionRow("account", "account"),
    DimensionRow("session", "session_id", is_summed=True, has_field=True),
    DimensionRow("project", "project", is_summed=True, has_field=True),
    DimensionRow("branch", "git_branch", is_summed=True),
    DimensionRow("agent", "agent", is_summed=True, has_field=True),
    DimensionRow("purpose", "purpose", is_summed=True),
    DimensionRow("billing", "billing", is_summed=True),
    DimensionRow("tag", "tags", is_summed=True, has_field=True),
    DimensionRow("request_model", "request_model", is_summed=True),
    DimensionRow("origin", "origin", is_summed=True),
    DimensionRow("dialect", "dialect", is_summed=True),
    DimensionRow("operation", "operation", is_summed=True),
    DimensionRow("tier", "service_tier", is_summed=True),
    DimensionRow("outcome", "outcome", is_summed=True, has_field=True),
    DimensionRow("http_status", "http_status", has_field=True),
    DimensionRow("error_type", "error_type", has_field=True),
    DimensionRow("finish_reason", "finish_reason", has_field=True),
    DimensionRow("usage_source", "usage_source", has_field=True),
    DimensionRow("end_user", "end_user", is_summed=True),
    DimensionRow("user_agent", "user_agent", is_summed=True),
    DimensionRow("source", "source", is_summed=True),
    DimensionRow("node", "node"),
)
COLUMN_OF = {row.word: row.column for row in DIMENSIONS}
SUMMED = tuple(row.column for row in DIMENSIONS if row.is_summed)
TIME_CHARACTERS = {"day": 10, "week": 10, "month": 7, "hour": 13}
"""Dimension of time -> its characters of `YYYY-MM-DD HH`. A week is named by its Monday."""
