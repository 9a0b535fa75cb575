"""The tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

INSTANT = sa.Text().with_variant(postgresql.TIMESTAMP(timezone=True), "postgresql")
DOCUMENT = sa.Text().with_variant(postgresql.JSON(), "postgresql")
PARTITIONED = ("exchanges", "readings", "charges")


def upgrade() -> None:
    _create_exchanges()
    _create_readings()
    _create_charges()
    _create_meta()
    _create_learned()
    _create_nodes()
    _create_outbox()
    _create_set_aside()
    if op.get_context().dialect.name == "postgresql":
        # Takes what no month's partition takes: no row is refused for its date.
        for table in PARTITIONED:
            op.execute(f"CREATE TABLE {table}_pdefault PARTITION OF {table} DEFAULT")


def downgrade() -> None:
    raise NotImplementedError("this would delete every fact; drop the database by hand")


def _column(name: str, kind: Any, comment: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, comment=comment, **options)


def _text(name: str, comment: str, *, nullable: bool = True) -> sa.Column[Any]:
    return _column(name, sa.Text, comment, nullable=nullable)


def _count(name: str, comment: str, *, nullable: bool = True) -> sa.Column[Any]:
    return _column(name, sa.BigInteger, comment, nullable=nullable)


def _fact(name: str, comment: str) -> sa.Column[Any]:
    return _column(name, sa.Boolean, comment, nullable=False, server_default=sa.false())


def _instant(name: str, comment: str, *, nullable: bool = True) -> sa.Column[Any]:
    return _column(name, INSTANT, comment, nullable=nullable)


def _document(name: str, comment: str, *, nullable: bool = True) -> sa.Column[Any]:
    return _column(name, DOCUMENT, comment, nullable=nullable)


def _check(table: str, rule: str, name: str, *, only: str | None = None) -> sa.CheckConstraint:
    constraint = sa.CheckConstraint(rule, name=op.f(f"ck_{table}_{name}"))
    return constraint.ddl_if(dialect=only) if only else constraint


def _not_negative(table: str, *names: str) -> list[sa.CheckConstraint]:
    return [_check(table, f"{name} >= 0", f"{name}_not_negative") for name in names]


def _valid_json(table: str, *names: str) -> list[sa.CheckConstraint]:
    # PostgreSQL's type says the same. SQLite before 3.45 calls NULL invalid.
    return [
        _check(table, f"{name} IS NULL OR json_valid({name})", f"{name}_is_json", only="sqlite")
        for name in names
    ]


def _reference(columns: list[str], referred: list[str], name: str) -> sa.ForeignKeyConstraint:
    # Not on PostgreSQL: to a partitioned table each row would cost 70 µs.
    constraint = sa.ForeignKeyConstraint(columns, referred, name=op.f(name))
    constraint.ddl_if(dialect="sqlite")
    return constraint


def _sortable(table: str, name: str) -> sa.CheckConstraint:
    day, time = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]", "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
    return _check(
        table, f"{name} GLOB '{day} {time}.{'[0-9]' * 6}Z'", f"{name}_is_instant", only="sqlite"
    )


def _create_exchanges() -> None:
    op.create_table(
        "exchanges",
        _text("id", "Ours, made before the request goes upstream: the flow's id", nullable=False),
        _instant("opened_at", "When the request was seen, UTC", nullable=False),
        _text("state", "open, settled, or lost: the recording process died first", nullable=False),
        _text(
            "outcome",
            "complete, client_left, upstream_cut, error_frame (an error inside HTTP 200), "
            "http_error, lost; NULL while open",
        ),
        _text("source", "live, replay or import", nullable=False),
        _text("origin", "scheme://host:port of the upstream", nullable=False),
        _text("provider", "Who answers", nullable=False),
        _text("dialect", "The wire format: openai.chat, anthropic.messages, …", nullable=False),
        _text("operation", "What was asked for: chat, embeddings, images, …", nullable=False),
        _text("path", "The request's path, without its query", nullable=False),
        _text("request_model", "The model asked for"),
        _text("response_model", "The model that answered, as the provider says"),
        _text(
            "response_id",
            "The provider's stable chunk id, the first non-empty one; not unique: see duplicate_of "
            "and id_collision",
        ),
        _fact("id_unstable", "The response id changed inside the stream; the first is kept"),
        _text(
            "content_digest",
            "Digest of model, created, finish reason and usage: tells a response seen again from "
            "an id that collides",
        ),
        _text(
            "duplicate_of",
            "The exchange that counts where the same billed response was seen again; such rows are "
            "in no total (derived)",
        ),
        _fact("id_collision", "Another response of this origin has the same id (derived)"),
        _fact("streamed", "The answer was asked for as a stream"),
        _column("http_status", sa.Integer, "The upstream's status; NULL: no answer"),
        _text("finish_reason", "Why the model stopped, in the provider's word"),
        _text("error_type", "The provider's error type"),
        _text("error_code", "The provider's error code"),
        _text("error_message", "The provider's error message, cut to a bound"),
        _text("service_tier", "The service tier of the response"),
        _instant("first_byte_at", "First byte of the answer, UTC"),
        _instant("first_token_at", "First token of the answer, UTC"),
        _instant("settled_at", "When the outcome was known, UTC"),
        _count("request_bytes", "Body of the request, as the client sent it"),
        _count("response_bytes", "Body of the answer, as upstream sent it"),
        _count("client_bytes", "Body of the answer, as it was handed to the client"),
        _count("removed_bytes", "What was taken out of the answer: usage that we had asked for"),
        _text("upstream_digest", "SHA-256 of what upstream sent, hex"),
        _text("client_digest", "SHA-256 of what the client was handed, hex"),
        _text("removed_digest", "SHA-256 of what was taken out, hex; NULL: nothing was"),
        _count("events", "Frames of the answer; 1 for a plain document"),
        _column("usage_asked", sa.Boolean, "The client's own include_usage; NULL: it said nothing"),
        _fact("usage_injected", "We asked for usage on the wire"),
        _fact("usage_stripped", "We took usage out of the client's bytes"),
        _fact("resent", "Upstream refused what we had added, and was asked again without it"),
        _text("degraded", "Why our code fell back to plain pass-through; NULL: it did not"),
        _text("key_fingerprint", "Keyed hash of the API key"),
        _text("key_hint", "At most the last 4 characters of the API key"),
        _text("user_agent", "The client's User-Agent"),
        _text("end_user", "The end user that the request names"),
        _text("session_id", "From x-tokentee-session, or what the client sends of the kind"),
        _document(
            "tags", "From x-tokentee-tag and tee_tags, a JSON object of texts", nullable=False
        ),
        _text("node", "The recording process: host/pid/start"),
        _text("capture", "Where the raw bytes are kept"),
        sa.PrimaryKeyConstraint("opened_at", "id", name=op.f("pk_exchanges")),
        _check("exchanges", "state IN ('open', 'settled', 'lost')", "state"),
        _check("exchanges", "source IN ('live', 'replay', 'import')", "source"),
        _check(
            "exchanges",
            "outcome IN ('complete', 'client_left', 'upstream_cut', 'error_frame', 'http_error', "
            "'lost')",
            "outcome",
        ),
        _check("exchanges", "(state = 'open') = (outcome IS NULL)", "outcome_when_ended"),
        _check("exchanges", "(state = 'open') = (settled_at IS NULL)", "settled_at_when_ended"),
        _check(
            "exchanges", "state = 'open' OR (state = 'lost') = (outcome = 'lost')", "lost_is_lost"
        ),
        _check("exchanges", "duplicate_of <> id", "not_its_own_duplicate"),
        *_not_negative(
            "exchanges",
            "request_bytes",
            "response_bytes",
            "client_bytes",
            "removed_bytes",
            "events",
        ),
        *_valid_json("exchanges", "tags"),
        _sortable("exchanges", "opened_at"),
        comment="One row per HTTP exchange",
        postgresql_partition_by="RANGE (opened_at)",
    )
    op.create_index(
        "ix_exchanges_id",
        "exchanges",
        ["id"],
    )
    op.create_index(
        "ix_exchanges_response_id",
        "exchanges",
        ["response_id", "origin", "id_collision", "content_digest", "opened_at", "id"],
        sqlite_where=sa.text("response_id IS NOT NULL"),
        postgresql_where=sa.text("response_id IS NOT NULL"),
    )
    op.create_index(
        "ix_exchanges_open",
        "exchanges",
        ["node"],
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )
    op.create_index(
        "ix_exchanges_session_id",
        "exchanges",
        ["session_id", "opened_at"],
        sqlite_where=sa.text("session_id IS NOT NULL"),
        postgresql_where=sa.text("session_id IS NOT NULL"),
    )
    op.create_index(
        "ix_exchanges_key_fingerprint",
        "exchanges",
        ["key_fingerprint", "opened_at"],
    )


def _create_readings() -> None:
    op.create_table(
        "readings",
        _text("id", "Digest of the reading and its charges", nullable=False),
        _text("exchange_id", "The exchange that was read", nullable=False),
        _instant("opened_at", "The exchange's opened_at", nullable=False),
        _column(
            "revision",
            sa.Integer,
            "The highest counts, of equal ones the earliest; 0 stands in for a lost exchange",
            nullable=False,
        ),
        _text("meter_version", "The version that read it", nullable=False),
        _text("usage_source", "reported, partial, estimated or none", nullable=False),
        _count("input_tokens", "All input tokens, cached ones included"),
        _count("cache_read_tokens", "Part of input_tokens served from the provider's cache"),
        _count("cache_write_tokens", "Part of input_tokens stored into the provider's cache"),
        _count("cache_write_5m_tokens", "Part of cache_write_tokens kept for five minutes"),
        _count("cache_write_1h_tokens", "Part of cache_write_tokens kept for one hour"),
        _count("output_tokens", "All output tokens, reasoning included"),
        _count("reasoning_tokens", "Part of output_tokens spent on reasoning"),
        _count("input_audio_tokens", "Part of input_tokens that is audio"),
        _count("output_audio_tokens", "Part of output_tokens that is audio"),
        _document("tool_units", "Billable units that are no text tokens, by name", nullable=False),
        _document("further", "Further iterations billed beside the figures above", nullable=False),
        _document("remarks", "What was reported but cannot be a count, in words", nullable=False),
        _document("usage_json", "The provider's usage object, verbatim; NULL: none"),
        _count("estimated_output_tokens", "Our estimate of what passed before an early end"),
        _count("reported_cost_picousd", "What the provider says it charges, in pico-USD"),
        _count(
            "reported_upstream_cost_picousd",
            "What a gateway says its upstream charges, in pico-USD; billed apart only under BYOK",
        ),
        _column("is_byok", sa.Boolean, "The gateway used the caller's own upstream key"),
        _instant("read_at", "When it was read, UTC", nullable=False),
        _text("reason", "Why there is a further revision"),
        sa.PrimaryKeyConstraint("opened_at", "exchange_id", "id", name=op.f("pk_readings")),
        _reference(
            ["opened_at", "exchange_id"],
            ["exchanges.opened_at", "exchanges.id"],
            "fk_readings_exchanges",
        ),
        _check(
            "readings",
            "usage_source IN ('reported', 'partial', 'estimated', 'none')",
            "usage_source",
        ),
        *_not_negative(
            "readings",
            "revision",
            "input_tokens",
            "cache_read_tokens",
            "cache_write_tokens",
            "cache_write_5m_tokens",
            "cache_write_1h_tokens",
            "output_tokens",
            "reasoning_tokens",
            "input_audio_tokens",
            "output_audio_tokens",
            "estimated_output_tokens",
            "reported_cost_picousd",
            "reported_upstream_cost_picousd",
        ),
        *_valid_json("readings", "tool_units", "further", "remarks", "usage_json"),
        comment="What the meter read from an exchange; append-only",
        postgresql_partition_by="RANGE (opened_at)",
    )


def _create_charges() -> None:
    op.create_table(
        "charges",
        _text("id", "Digest of the charge", nullable=False),
        _text("exchange_id", "The exchange that is charged", nullable=False),
        _instant("opened_at", "The exchange's opened_at", nullable=False),
        _text("reading_id", "The reading that is priced", nullable=False),
        _column("ordinal", sa.Integer, "The line's place in its reading, from 0", nullable=False),
        _column(
            "revision",
            sa.Integer,
            "1 when first priced; of one reading and ordinal the highest counts, of equal ones the "
            "one with the smallest id",
            nullable=False,
        ),
        _text(
            "line",
            "uncached_input, cache_read, cache_write_5m, output, …; a further iteration's kind "
            "stands before a dot: compaction.output",
            nullable=False,
        ),
        _text("model", "The model priced, where it is not the answer's own"),
        _count("quantity", "How many units", nullable=False),
        _count("unit_picousd", "Price of one unit in pico-USD; NULL: no price is known"),
        _count("amount_picousd", "quantity x unit_picousd, exactly; NULL: no price is known"),
        _text(
            "price_source", "Library and version, override file digest, or provider", nullable=False
        ),
        _instant("priced_at", "When it was priced, UTC", nullable=False),
        _text("supersedes", "The id of the charge that this one replaces"),
        _text("reason", "Why there is no price, or why it was priced again"),
        sa.PrimaryKeyConstraint(
            "opened_at",
            "exchange_id",
            "reading_id",
            "ordinal",
            "revision",
            "id",
            name=op.f("pk_charges"),
        ),
        _reference(
            ["opened_at", "exchange_id", "reading_id"],
            ["readings.opened_at", "readings.exchange_id", "readings.id"],
            "fk_charges_readings",
        ),
        *_not_negative("charges", "ordinal", "quantity", "unit_picousd", "amount_picousd"),
        _check("charges", "revision >= 1", "revision_from_1"),
        _check("charges", "(revision = 1) = (supersedes IS NULL)", "revisions_supersede"),
        _check("charges", "(unit_picousd IS NULL) = (amount_picousd IS NULL)", "priced_or_not"),
        _check("charges", "amount_picousd = quantity * unit_picousd", "amount_is_exact"),
        comment="Priced lines of a reading; append-only",
        postgresql_partition_by="RANGE (opened_at)",
        # Clustered by its key: four lines per exchange are one place to read, and no second index.
        sqlite_with_rowid=False,
    )
    for name, rule in (
        ("ix_charges_revised", "revision > 1"),
        ("ix_charges_further", "line LIKE '%.%'"),
        ("ix_charges_unpriced", "amount_picousd IS NULL"),
    ):
        op.create_index(
            name,
            "charges",
            ["opened_at", "exchange_id", "reading_id"],
            sqlite_where=sa.text(rule),
            postgresql_where=sa.text(rule),
        )


def _create_meta() -> None:
    op.create_table(
        "meta",
        _text(
            "key",
            "secret (of the keyed hash of API keys), rolled_until, retention (while rows are "
            "dropped); in a spool also target, trouble, shipped_at",
            nullable=False,
        ),
        _text("value", "Its value", nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_meta")),
        comment="What the ledger keeps about itself",
    )


def _create_learned() -> None:
    op.create_table(
        "learned",
        _text("origin", "scheme://host:port of the upstream", nullable=False),
        _text("path", "The request's path", nullable=False),
        _text("verdict", "opt_in, automatic or refuses", nullable=False),
        _instant("learned_at", "When, UTC", nullable=False),
        _instant("expires_at", "Until when it is believed, UTC", nullable=False),
        sa.PrimaryKeyConstraint("origin", "path", name=op.f("pk_learned")),
        comment="What traffic has taught about asking an upstream for usage",
    )


def _create_nodes() -> None:
    op.create_table(
        "nodes",
        _text("node", "A recording process: host/pid/start", nullable=False),
        _instant("seen_at", "When it was last heard of, UTC", nullable=False),
        sa.PrimaryKeyConstraint("node", name=op.f("pk_nodes")),
        comment="Recording processes that write here from afar; a silent one's open rows are lost",
    )


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        _column("seq", sa.Integer().with_variant(sa.BigInteger(), "postgresql"), "Order of change"),
        _text("exchange_id", "The exchange that changed", nullable=False),
        _instant("opened_at", "The exchange's opened_at", nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_outbox")),
        comment="In a spool: exchanges that the shared database does not know yet",
        sqlite_autoincrement=True,
    )


def _create_set_aside() -> None:
    op.create_table(
        "set_aside",
        _text("exchange_id", "The exchange that was refused", nullable=False),
        _instant("opened_at", "The exchange's opened_at", nullable=False),
        _text("error", "What the shared database said", nullable=False),
        _instant("refused_at", "When, UTC", nullable=False),
        sa.PrimaryKeyConstraint("opened_at", "exchange_id", name=op.f("pk_set_aside")),
        comment="In a spool: exchanges that the shared database refuses",
    )
