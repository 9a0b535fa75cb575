"""Database. The schema, one MetaData for SQLite and PostgreSQL.

exchanges   one row per HTTP exchange; `open` when its request goes upstream, settled once
readings    what the meter read, with its first pricing; append-only, the highest revision counts
pricings    further pricings of a reading; append-only, the highest revision counts
sums, unpriced_lines, stale_days   what days that are over add up to (`rollup.py`)
segments    sizes and hashes of the parts of a chat request; dropped before the others
meta, learned, nodes, cap_shares, outbox, set_aside   internal state of the ledger

Every key holds the exchange's id and its `opened_at`: PostgreSQL partitions the large tables by
time, a distributed one spreads them by exchange, and rows of one exchange lie together in either.
`opened_at` comes first, so that new rows go to one end of each index and a report over a period
reads adjacent rows.

The partial indexes have a condition for SQLite only, and the partitioned tables do not mention
partitions: a PostgreSQL keyword imports its dialect, which costs each `tokentee report` on a file
40 ms. The migrations create the tables, and contain both.

A partition key must not change, so `opened_at` belongs to the identity: code that makes an exchange
from a recorded flow uses the flow's own start, to the microsecond, and not the current time.
"""

from typing import Any

import sqlalchemy as sa

from ledger.model.charge import Charge, Pricing
from ledger.model.exchange import QUOTA_KEY, WINDOW_MINUTES_MAX, Exchange, Reading
from ledger.model.usage import COUNT_MAX, TOKENS, Usage
from ledger.store.schema.columns import Figure, Instant, JsonText, sql_columns
from ledger.store.schema.dimensions import SUMMED
from ledger.store.schema.sums import COUNT_TERMS, HISTOGRAMS, SUM_TERMS
from ledger.store.schema.views import HOURLY, UNPRICED

CAP_PARTS = {"spent": "Spent", "held": "Held for requests under way"}
CAP_AMOUNTS = ("usd", "list_value_usd", "tokens", "requests")
PARTITIONED = ("exchanges", "readings")
"""Tables that PostgreSQL keeps in one partition a month."""

metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _column(name: str, kind: Any, comment: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, comment=comment, **options)


def _text(name: str, comment: str, *, nullable: bool = True) -> sa.Column[Any]:
    return _column(name, sa.Text, comment, nullable=nullable)


def _count(name: str, comment: str, *, nullable: bool = True) -> sa.Column[Any]:
    return _column(name, sa.BigInteger, comment, nullable=nullable)


def _instant(name: str, comment: str, *, nullable: bool = True) -> sa.Column[Any]:
    return _column(name, Instant, comment, nullable=nullable)


def _check(rule: str, name: str, *, only: str | None = None) -> sa.CheckConstraint:
    constraint = sa.CheckConstraint(rule, name=name)
    return constraint.ddl_if(dialect=only) if only else constraint


def _not_negative(*names: str) -> list[sa.CheckConstraint]:
    return [_check(f"{name} >= 0", f"{name}_not_negative") for name in names]


def _valid_json(*names: str) -> list[sa.CheckConstraint]:
    # PostgreSQL's type checks the same. SQLite before 3.45 calls NULL invalid.
    return [
        _check(f"{name} IS NULL OR json_valid({name})", f"{name}_is_json", only="sqlite")
        for name in names
    ]


def _reference(columns: list[str], referred: list[str]) -> sa.ForeignKeyConstraint:
    # Not on PostgreSQL: a reference to a partitioned table costs 70 µs per row, four fifths of the
    # time to ship an exchange, and a month could not be dropped as a whole. Shipped rows come
    # complete from SQLite.
    constraint = sa.ForeignKeyConstraint(columns, referred)
    constraint.ddl_if(dialect="sqlite")
    return constraint


def _pricing() -> list[sa.Column[Any] | sa.CheckConstraint]:
    """The lines of a pricing, and what they add up to."""
    lines = "Its lines, a JSON array each, in the order of `batch_insert.CHARGE_COLUMNS`"
    return [
        *sql_columns(Pricing),
        _column("charges", JsonText, lines, nullable=False, server_default="[]"),
        _check("cost_state IN ('priced', 'partial', 'unpriced', 'reported')", "cost_state"),
        _check(
            "amount_picousd IS NULL OR COALESCE(cost_state, 'unpriced') <> 'unpriced'",
            "amount_where_priced",
        ),
        *_not_negative(
            "amount_picousd", "list_value_picousd", "extra_input_tokens", "extra_output_tokens"
        ),
        *_valid_json("charges"),
    ]


_SORTABLE = "####-##-## ##:##:##.######Z".replace("#", "[0-9]")
"""A moment as text, of which none has another width."""

exchanges = sa.Table(
    "exchanges",
    metadata,
    *sql_columns(Exchange),
    _text(
        "duplicate_of",
        "The exchange that counts where the same billed response was seen again; such rows are in "
        "no total (derived)",
    ),
    _column(
        "id_collision",
        sa.Boolean,
        "Another response of this origin has the same id (derived)",
        nullable=False,
        server_default=sa.false(),
    ),
    sa.PrimaryKeyConstraint("opened_at", "id"),
    _check("state IN ('open', 'settled', 'lost')", "state"),
    _check("source IN ('live', 'replay', 'import')", "source"),
    _check(
        "outcome IN ('complete', 'client_left', 'upstream_cut', 'error_frame', 'http_error', "
        "'lost', 'refused')",
        "outcome",
    ),
    _check("(state = 'open') = (outcome IS NULL)", "outcome_when_ended"),
    _check("(state = 'open') = (settled_at IS NULL)", "settled_at_when_ended"),
    _check("state = 'open' OR (state = 'lost') = (outcome = 'lost')", "lost_is_lost"),
    _check("duplicate_of <> id", "not_its_own_duplicate"),
    *_not_negative(
        *("request_bytes", "response_bytes", "client_bytes", "removed_bytes", "events"),
        *("tool_calls", "retry_after_ms"),
        *("hold_tokens", "hold_picousd", "hold_list_value_picousd"),
    ),
    *_valid_json("tags"),
    _check(f"opened_at GLOB '{_SORTABLE}'", "opened_at_is_instant", only="sqlite"),
    comment="One row per HTTP exchange",
)
sa.Index("ix_exchanges_id", exchanges.c.id)
# For lookups by response id and for `schema/links.py`: rows that count come first.
sa.Index(
    "ix_exchanges_response",
    exchanges.c.response_id,
    exchanges.c.origin,
    exchanges.c.duplicate_of,
    exchanges.c.id_collision,
    exchanges.c.upstream_digest,
    exchanges.c.request_digest,
    exchanges.c.key_fingerprint,
    exchanges.c.content_digest,
    sqlite_where=exchanges.c.response_id.is_not(None),
)
sa.Index(
    "ix_exchanges_recorded",
    exchanges.c.response_id,
    exchanges.c.origin,
    exchanges.c.upstream_digest,
    exchanges.c.content_digest,
    sqlite_where=exchanges.c.response_id.is_not(None) & (exchanges.c.source != "live"),
)
sa.Index(
    "ix_exchanges_open",
    exchanges.c.node,
    sqlite_where=exchanges.c.state == "open",
)
sa.Index(
    "ix_exchanges_session_id",
    exchanges.c.session_id,
    exchanges.c.opened_at,
    sqlite_where=exchanges.c.session_id.is_not(None),
)
sa.Index("ix_exchanges_key_fingerprint", exchanges.c.key_fingerprint, exchanges.c.opened_at)

readings = sa.Table(
    "readings",
    metadata,
    _text("id", "Digest of the reading and its charges", nullable=False),
    *sql_columns(Reading),
    *sql_columns(Usage),
    *_pricing(),
    sa.PrimaryKeyConstraint("opened_at", "exchange_id", "id"),
    _reference(["opened_at", "exchange_id"], ["exchanges.opened_at", "exchanges.id"]),
    _check("usage_source IN ('reported', 'partial', 'estimated', 'none')", "usage_source"),
    _check("billing IN ('metered', 'plan', 'free')", "billing"),
    *_not_negative(
        "revision",
        *TOKENS,
        "estimated_output_tokens",
        "reported_cost_picousd",
        "reported_upstream_cost_picousd",
    ),
    *_valid_json("tool_units", "further", "remarks", "usage_json"),
    comment="What the meter read from an exchange; append-only",
)

pricings = sa.Table(
    "pricings",
    metadata,
    _text("id", "Digests of its own lines", nullable=False),
    _text("exchange_id", "The exchange that is charged", nullable=False),
    _instant("opened_at", "The exchange's opened_at", nullable=False),
    _text("reading_id", "The reading that is priced", nullable=False),
    _column(
        "revision",
        sa.Integer,
        "From 2; of one reading the highest counts, of equal ones the one with the smallest id",
        nullable=False,
    ),
    *_pricing(),
    sa.PrimaryKeyConstraint("opened_at", "exchange_id", "reading_id", "revision", "id"),
    _reference(
        ["opened_at", "exchange_id", "reading_id"],
        ["readings.opened_at", "readings.exchange_id", "readings.id"],
    ),
    _check("revision >= 2", "revision_from_2"),
    comment="Further pricings of a reading, each with all of its lines; append-only",
    sqlite_with_rowid=False,
)


def _lines(view: str) -> sa.Table:
    """A view of single lines, which is not in `metadata`."""
    return sa.Table(
        view,
        sa.MetaData(),
        _text("id", "Digest of the charge", nullable=False),
        _text("exchange_id", "The exchange that is charged", nullable=False),
        _instant("opened_at", "The exchange's opened_at", nullable=False),
        _text("reading_id", "The reading that is priced", nullable=False),
        _column("ordinal", sa.Integer, "The line's place in its reading, from 0", nullable=False),
        _column("revision", sa.Integer, "1 when first priced", nullable=False),
        *sql_columns(Charge),
    )


charges = _lines("charges")
current_charges = _lines("current_charges")

segments = sa.Table(
    "segments",
    metadata,
    _instant("opened_at", "The exchange's opened_at", nullable=False),
    _text("exchange_id", "The exchange", nullable=False),
    _text("packed", "Kinds, names, sizes and keyed hashes of its parts, packed", nullable=False),
    sa.PrimaryKeyConstraint("opened_at", "exchange_id"),
    comment="The parts of a chat request, without their text",
    sqlite_with_rowid=False,
)

quotas = sa.Table(
    "quotas",
    metadata,
    _instant("opened_at", "The exchange's opened_at", nullable=False),
    _text("exchange_id", "The exchange whose answer stated it", nullable=False),
    _text("kind", "plan (what a flat plan covers) or rate (what a key may use)", nullable=False),
    _text("window", "5h, 7d, where its length is known; else the provider's name", nullable=False),
    _text("window_name", "The provider's name", nullable=False),
    _column("window_minutes", Figure(WINDOW_MINUTES_MAX), "Its length; NULL: unknown"),
    _text("provider", "As in exchanges", nullable=False),
    _text("key_fingerprint", "As in exchanges"),
    _text("account", "Keyed hash of the account or organization; NULL: the wire names none"),
    _text("holder", "Whose it is: the account, else the key, else empty", nullable=False),
    _column("limit_value", Figure(COUNT_MAX), "The limit; NULL: not stated"),
    _column("remaining", Figure(COUNT_MAX), "What is left of it; NULL: not stated"),
    _column("used_ppm", Figure(COUNT_MAX), "Used share in millionths; NULL: not stated"),
    _text("status", "The provider's word: allowed, rejected, …"),
    _instant("resets_at", "When it begins anew; NULL: not stated"),
    _instant("observed_at", "When the answer arrived", nullable=False),
    sa.PrimaryKeyConstraint(*QUOTA_KEY),
    sa.Index("ix_quotas_holder", "kind", "provider", "holder", "window", "observed_at"),
    _check("kind IN ('plan', 'rate')", "kind"),
    comment="What answers stated of limits; a row where a figure changed; append-only",
    sqlite_with_rowid=False,
)

OF_EXCHANGES = (segments, quotas, pricings, readings, exchanges)
"""The tables with rows of an exchange, in the order in which these can be dropped. A copy of a
ledger with an older schema does not have all of them."""

sums = sa.Table(
    "sums",
    metadata,
    _text(
        "summed_by",
        "The grouping: hour, exchanges, day, everything, or a dimension",
        nullable=False,
    ),
    _instant("opened_at", "Begin of the hour (hour, exchanges) or of the day, UTC", nullable=False),
    *(
        _column(name, exchanges.c[name].type if name in exchanges.c else sa.Text, "As in requests")
        for name in SUMMED
    ),
    _text("key_hint", "At most the last 4 characters of the API key"),
    *(_count(name, "Of requests") for name in COUNT_TERMS),
    *(_count(name, "Sum over requests") for name in SUM_TERMS),
    *(_text(name, "Milliseconds to three digits; 450*3: three times") for name in HISTOGRAMS),
    *(_count(name, "As in completeness") for name in HOURLY if name not in COUNT_TERMS),
    comment="What finished days add up to, by each grouping",
)
sa.Index("ix_sums_summed_by_opened_at", sums.c.summed_by, sums.c.opened_at)

unpriced_lines = sa.Table(
    "unpriced_lines",
    metadata,
    _instant("opened_at", "The exchange's opened_at", nullable=False),
    _text("exchange_id", "The exchange", nullable=False),
    _column(
        "ordinal",
        sa.Integer,
        "The line's place in its reading; -1: no line was charged",
        nullable=False,
    ),
    *(
        _column(
            name,
            sa.BigInteger if name == "quantity" else sa.Text,
            "As in unpriced",
            nullable=name != "provider",
        )
        for name in UNPRICED
    ),
    sa.PrimaryKeyConstraint("opened_at", "exchange_id", "ordinal"),
    comment="Rows of unpriced of days that are over",
    sqlite_with_rowid=False,
)

stale_days = sa.Table(
    "stale_days",
    metadata,
    _column("day", sa.Date, "The UTC day", nullable=False),
    _instant("starts_at", "Its begin", nullable=False),
    _instant("ends_at", "The next day's begin", nullable=False),
    _count("writes", "Number of writes to the day since it ended", nullable=False),
    sa.PrimaryKeyConstraint("day"),
    comment="Finished days that changed after they were summed up: the views sum their rows",
)

meta = sa.Table(
    "meta",
    metadata,
    _text(
        "key",
        "secret (of the keyed hash of API keys), rolled_until, retention (while rows are "
        "dropped); in a spool also target, trouble, shipped_at",
        nullable=False,
    ),
    _text("value", "Its value", nullable=False),
    sa.PrimaryKeyConstraint("key"),
    comment="The ledger's own settings and state",
)

learned = sa.Table(
    "learned",
    metadata,
    _text("origin", "scheme://host:port of the upstream", nullable=False),
    _text("path", "The request's path", nullable=False),
    _text("verdict", "opt_in, automatic or refuses", nullable=False),
    _instant("learned_at", "When it was learned, UTC", nullable=False),
    _instant("expires_at", "Until when the verdict is used, UTC", nullable=False),
    sa.PrimaryKeyConstraint("origin", "path"),
    comment="Whether an upstream accepts requests for usage, learned from traffic",
)

alerts = sa.Table(
    "alerts",
    metadata,
    _text("budget", "The budget's name", nullable=False),
    _instant("period_start", "When its period began, UTC", nullable=False),
    _column("threshold", sa.Integer, "In percent of the limit", nullable=False),
    _instant("claimed_at", "When a process last claimed the alert, UTC", nullable=False),
    _column("attempts", sa.Integer, "Number of claims", nullable=False),
    _instant("sent_at", "When a destination accepted the alert, UTC; NULL: not yet"),
    sa.PrimaryKeyConstraint("budget", "period_start", "threshold"),
    comment="Alerts of budgets, each sent once per period and threshold",
)

nodes = sa.Table(
    "nodes",
    metadata,
    _text("node", "A recording process: host/pid/start", nullable=False),
    _instant("seen_at", "Time of its last heartbeat, UTC", nullable=False),
    sa.PrimaryKeyConstraint("node"),
    comment="Recording processes on other machines; without a heartbeat, a node's open rows become "
    "lost",
)

cap_shares = sa.Table(
    "cap_shares",
    metadata,
    _text(
        "cap",
        "The cap's name, and a digest of what it is for; empty: a sign of life",
        nullable=False,
    ),
    _text(
        "account", "Its period's begin, its session, or a minute of a rolling one", nullable=False
    ),
    _text("node", "The process and a number; empty: all of them together", nullable=False),
    *(
        _column(f"{part}_{amount}", sa.BigInteger, meaning, nullable=False, server_default="0")
        for part, meaning in CAP_PARTS.items()
        for amount in CAP_AMOUNTS
    ),
    _column("at", sa.Double, "When it was last written, in seconds of 1970", nullable=False),
    sa.PrimaryKeyConstraint("cap", "account", "node"),
    comment="What processes have spent and hold of caps; on SQLite a file of its own has it",
)

outbox = sa.Table(
    "outbox",
    metadata,
    _column("seq", sa.Integer().with_variant(sa.BigInteger(), "postgresql"), "Order of change"),
    _text("exchange_id", "The exchange that changed", nullable=False),
    _instant("opened_at", "The exchange's opened_at", nullable=False),
    sa.PrimaryKeyConstraint("seq"),
    comment="In a spool: exchanges that are not in the shared database yet",
    sqlite_autoincrement=True,
)

set_aside = sa.Table(
    "set_aside",
    metadata,
    _text("exchange_id", "The exchange that was refused", nullable=False),
    _instant("opened_at", "The exchange's opened_at", nullable=False),
    _text("error", "Error of the shared database", nullable=False),
    _instant("refused_at", "When, UTC", nullable=False),
    sa.PrimaryKeyConstraint("opened_at", "exchange_id"),
    comment="In a spool: exchanges that the shared database refused",
)
