"""The lines of a pricing are one value, and what they add up to stands beside them.

Three charges of a request were three rows, a quarter of the time to commit it and a third of its
place on disk. The first lines of a reading are part of its row now, lines that were priced again
one row of `pricings` for each reading; `charges` is a view that shows both.
"""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

FIGURES = {
    "cost_state": "priced, partial (some lines have no price), unpriced, or reported (the "
    "provider''s own figure); NULL: no usage to price",
    "amount_picousd": "Sum of the lines; NULL: none is priced",
    "list_value_picousd": "The same without the provider''s own figures, which are no list price",
    "saved_picousd": "What the cached tokens would have cost as uncached input, less their cost",
    "extra_input_tokens": "Input tokens of further iterations, billed beside input_tokens",
    "extra_output_tokens": "Output tokens of further iterations, billed beside output_tokens",
}

CHECKS = {
    "cost_state": {"cost_state": "cost_state IN ('priced', 'partial', 'unpriced', 'reported')"},
    "amount_picousd": {
        "amount_picousd_not_negative": "amount_picousd >= 0",
        "amount_where_priced": "amount_picousd IS NULL "
        "OR COALESCE(cost_state, 'unpriced') <> 'unpriced'",
    },
    **{
        name: {f"{name}_not_negative": f"{name} >= 0"}
        for name in ("list_value_picousd", "extra_input_tokens", "extra_output_tokens")
    },
}

# The terms of the views of the schema before.
CACHED = (
    "c.line IN ('cache_read', 'cache_write', 'cache_write_5m', 'cache_write_1h', "
    "'cache_write_12h') AND c.amount_picousd IS NOT NULL AND c.quantity <= 1000000000"
)
INPUT = (
    "c.line LIKE '%.%' AND c.quantity <= 1000000000 AND (c.line LIKE '%.uncached_input' "
    "OR c.line LIKE '%.cache_%' OR c.line LIKE '%.input_%')"
)
OUTPUT = (
    "c.line LIKE '%.%' AND c.quantity <= 1000000000 AND (c.line LIKE '%.output%' "
    "OR c.line LIKE '%.reasoning' OR c.line LIKE '%.citation')"
)
KEY = "{0}.opened_at = {1}.opened_at AND {0}.exchange_id = {1}.exchange_id"
IS_FIRST = "c.id = c.reading_id || '.' || c.ordinal"
IS_CURRENT = f"""NOT EXISTS (
    SELECT 1 FROM charges n
    WHERE {KEY.format("n", "c")} AND n.reading_id = c.reading_id AND n.ordinal = c.ordinal
      AND n.revision > 1
      AND (n.revision > c.revision OR (n.revision = c.revision AND n.id < c.id)))"""


def total(term: str, which: str) -> str:
    """A sum that cannot overflow."""
    high, low = (
        f"SUM({part}) FILTER (WHERE {which})"
        for part in (f"{term} / 1000000000", f"{term} % 1000000000")
    )
    return f"CASE WHEN {high} < 9000000000 THEN CAST({high} * 1000000000 + {low} AS BIGINT) END"


def figures(usage_source: str, which: str = "true") -> str:
    """The figures of these charges `c`, in the order of `FIGURES`."""
    count = f"COUNT(*) FILTER (WHERE {which})"
    priced = f"COUNT(c.amount_picousd) FILTER (WHERE {which})"
    provider = f"COUNT(*) FILTER (WHERE {which} AND c.price_source = 'provider')"

    def tokens(condition: str) -> str:
        return f"CAST(SUM(c.quantity) FILTER (WHERE {which} AND {condition}) AS BIGINT)"

    return f"""CASE WHEN {count} = 0 THEN CASE WHEN {usage_source} <> 'none' THEN 'unpriced' END
    WHEN {priced} = 0 THEN 'unpriced' WHEN {priced} < {count} THEN 'partial'
    WHEN {provider} = {count} THEN 'reported' ELSE 'priced' END,
  {total("c.amount_picousd", which)},
  {total("c.amount_picousd", f"{which} AND c.price_source <> 'provider'")},
  {tokens(CACHED)}
    * MAX(c.unit_picousd) FILTER (WHERE {which} AND c.line = 'uncached_input'
      AND c.unit_picousd <= 1000000000)
    - CAST(SUM(c.amount_picousd) FILTER (WHERE {which} AND {CACHED}) AS BIGINT),
  {tokens(INPUT)},
  {tokens(OUTPUT)}"""


def upgrade() -> None:
    is_postgresql = op.get_context().dialect.name == "postgresql"
    for name, text in FIGURES.items():
        _run(f"ALTER TABLE readings ADD COLUMN {_figure('readings', name)}")
        if is_postgresql:
            _run(f"COMMENT ON COLUMN readings.{name} IS '{text}'")
    kind = "JSON" if is_postgresql else "TEXT"
    _run(
        f"ALTER TABLE readings ADD COLUMN charges {kind} DEFAULT '[]' NOT NULL "
        f"{_is_json('readings')}"
    )
    of_reading = "" if is_postgresql else ", FOREIGN KEY (opened_at, exchange_id, reading_id) "
    if of_reading:
        of_reading += "REFERENCES readings (opened_at, exchange_id, id)"
    _run(
        f"""CREATE TABLE pricings (
  id TEXT NOT NULL,
  exchange_id TEXT NOT NULL,
  opened_at {"TIMESTAMP WITH TIME ZONE" if is_postgresql else "TEXT"} NOT NULL,
  reading_id TEXT NOT NULL,
  revision INTEGER NOT NULL,
  {", ".join(_figure("pricings", name) for name in FIGURES)},
  charges {kind} DEFAULT '[]' NOT NULL {_is_json("pricings")},
  CONSTRAINT pk_pricings PRIMARY KEY (opened_at, exchange_id, reading_id, revision, id),
  CONSTRAINT ck_pricings_revision_from_2 CHECK (revision >= 2){of_reading}
) {"" if is_postgresql else "WITHOUT ROWID"}"""
    )
    (_postgresql if is_postgresql else _sqlite)()


def _figure(table: str, name: str) -> str:
    checks = (
        f" CONSTRAINT ck_{table}_{check} CHECK ({rule})"
        for check, rule in CHECKS.get(name, {}).items()
    )
    return f"{name} {'TEXT' if name == 'cost_state' else 'BIGINT'}{''.join(checks)}"


def _is_json(table: str) -> str:
    if op.get_context().dialect.name == "postgresql":
        return ""  # its type checks the same
    return f"CONSTRAINT ck_{table}_charges_is_json CHECK (charges IS NULL OR json_valid(charges))"


def _move(*, own: str, all_lines: str, ids: str) -> None:
    """Move the charges: the first ones into their readings, later ones into `pricings`."""
    names = ", ".join((*FIGURES, "charges"))
    _run(
        f"""UPDATE readings SET ({names}) = (
  SELECT {figures("readings.usage_source")}, {own} FROM charges c
  WHERE {KEY.format("c", "readings")} AND c.reading_id = readings.id AND {IS_FIRST})"""
    )
    _run(
        f"""WITH ranked AS (
  SELECT c.*, {IS_FIRST} AS is_first, {IS_CURRENT} AS is_current FROM charges c
  WHERE EXISTS (
    SELECT 1 FROM charges o WHERE {KEY.format("o", "c")} AND o.reading_id = c.reading_id
      AND o.id <> o.reading_id || '.' || o.ordinal)),
c AS (
  SELECT *, MAX(CASE WHEN is_first OR revision < 2 THEN 2 ELSE revision END)
    OVER (PARTITION BY opened_at, exchange_id, reading_id) AS newest
  FROM ranked WHERE is_current OR NOT is_first
  ORDER BY opened_at, exchange_id, reading_id, ordinal, revision, id)
INSERT INTO pricings (opened_at, exchange_id, reading_id, revision, id, {names})
SELECT opened_at, exchange_id, reading_id, MAX(newest), MAX(newest) || ':' || {ids},
  {figures("'reported'", "is_current")}, {all_lines}
FROM c GROUP BY opened_at, exchange_id, reading_id"""
    )


LATER = "substr(id, length(reading_id) + 2)"
PLACE = "CASE WHEN is_first THEN 'kept' WHEN NOT is_current THEN 'past' END"
MORE = f"id, ordinal, revision, supersedes, {PLACE}"


def _sqlite() -> None:
    values = "line, model, quantity, unit_picousd, amount_picousd, price_source, priced_at, reason"
    _run("DROP TRIGGER readings_append_only")
    _move(
        own=f"json_group_array(json_array({values}))",
        all_lines=f"json_group_array(json_array({values}, {MORE}))",
        ids=f"group_concat(CASE WHEN NOT is_first THEN {LATER} END)",
    )
    _run(
        "CREATE TRIGGER readings_append_only BEFORE UPDATE ON readings "
        "BEGIN SELECT RAISE(ABORT, 'readings are append-only'); END"
    )
    _run("DROP TABLE charges")
    day = "substr(NEW.opened_at, 1, 10)"
    midnight = "' 00:00:00.000000Z'"
    _run(
        "CREATE TRIGGER pricings_added_late AFTER INSERT ON pricings WHEN NEW.opened_at < "
        "(SELECT value FROM meta WHERE key = 'rolled_until') BEGIN "
        "INSERT INTO stale_days (day, starts_at, ends_at, writes) "
        f"VALUES ({day}, {day} || {midnight}, date({day}, '+1 day') || {midnight}, 1) "
        "ON CONFLICT (day) DO UPDATE SET writes = writes + 1; END"
    )


def _postgresql() -> None:
    at = """to_char(priced_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"Z"')"""
    values = f"line, model, quantity, unit_picousd, amount_picousd, price_source, {at}, reason"
    order = "ORDER BY ordinal, revision, id"
    _run("DROP TRIGGER readings_append_only ON readings")
    _move(
        own=f"COALESCE(json_agg(json_build_array({values}) {order}), '[]')",
        all_lines=f"json_agg(json_build_array({values}, {MORE}) {order})",
        ids=f"string_agg({LATER}, ',' {order}) FILTER (WHERE NOT is_first)",
    )
    _run(
        "CREATE TRIGGER readings_append_only BEFORE UPDATE ON readings FOR EACH ROW "
        "EXECUTE FUNCTION tokentee_refuse('readings are append-only')"
    )
    _run(
        "CREATE TRIGGER pricings_added_late AFTER INSERT ON pricings "
        "REFERENCING NEW TABLE AS written "
        "FOR EACH STATEMENT EXECUTE FUNCTION tokentee_note_stale_days()"
    )
    bind = op.get_bind()
    readers = bind.exec_driver_sql(
        "SELECT privilege_type, CASE grantee WHEN 'PUBLIC' THEN 'PUBLIC' "
        "ELSE quote_ident(grantee) END FROM information_schema.role_table_grants "
        "WHERE table_name = 'charges' AND table_schema = current_schema() "
        "AND grantee <> current_user"
    ).all()
    # The views are made anew after all migrations, with the rights that they have now. Until then
    # they must not need the table.
    views = bind.exec_driver_sql(
        "SELECT c.relname, string_agg('NULL::' || format_type(a.atttypid, a.atttypmod) || ' AS ' "
        "|| quote_ident(a.attname), ', ' ORDER BY a.attnum) "
        "FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 "
        "WHERE c.relkind = 'v' AND c.relname IN ('requests', 'live_unpriced', 'unpriced') "
        "AND c.relnamespace = current_schema()::regnamespace GROUP BY c.relname"
    ).all()
    for view, columns in views:
        _run(f"CREATE OR REPLACE VIEW {view} AS SELECT {columns}")
    _run("DROP TABLE charges")
    for view in ("charges", "current_charges"):
        _run(f"CREATE VIEW {view} AS SELECT 1 AS id")
    for right, reader in readers:
        for relation in ("charges", "current_charges", "pricings"):
            _run(f"GRANT {right} ON {relation} TO {reader}")


def _run(statement: str) -> None:
    # The driver of PostgreSQL reads a single % as a parameter.
    is_postgresql = op.get_context().dialect.name == "postgresql"
    op.get_bind().exec_driver_sql(statement.replace("%", "%%") if is_postgresql else statement)


def downgrade() -> None:
    raise NotImplementedError("drop the database by hand, or go on upwards")
