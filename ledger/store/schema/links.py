"""Database. The rule of duplicates, and the statements that apply it, for both databases.

Response ids are data, not keys: some gateways restart their numbers at 1, and a cache returns the
same response twice. The members of a group have one origin and one response id. One member *covers*
another if everything that can be compared says that they are the same billed response:

    key fingerprint, digest of the request's body, digest of what upstream sent

A live row has all of these: a missing key is a fact, too. A recording (`source` replay or import)
may lack some of them. It is covered by a row that has at least as many and agrees in those that the
recording has. If the recording lacks the bytes, model, created, finish reason and usage
(`content_digest`) must agree. A result that is fetched later is such a recording: its request and
its bytes differ from those of the original request. A recording never covers a live row. So no
request and no answer of an upstream can make the row of another key or another request a duplicate.

Of two rows that cover each other, the first counts. The order is: a live row before a recording,
then the recording with more facts, the earlier, the smaller id. A row is `duplicate_of` the first
row that covers it. `id_collision` is set on all members of a group in which more than one row
counts. The result depends only on the set of rows, not on the order in which they were written.

The statements work on one new member, `n`, and read few others: rows that count come first in
`ix_exchanges_response`, recordings in `ix_exchanges_recorded`. A row relinks many others only if it
replaces one that counted. On SQLite they are a trigger, so that the writer's batch stays one
statement; on PostgreSQL a function that loops over the keys of a bundle.
"""

import re
from collections.abc import Mapping, Sequence

LINK_COLUMNS = (
    *("opened_at", "id", "source", "origin", "response_id", "key_fingerprint", "request_digest"),
    *("upstream_digest", "content_digest"),
)
FUNCTION = "tokentee_link"

_IS_MEMBER = (
    "{0}.response_id IS NOT NULL "
    "AND ({0}.upstream_digest IS NOT NULL OR {0}.content_digest IS NOT NULL)"
)
_IN_GROUP = (
    "{0}.response_id = n.response_id AND {0}.origin = n.origin "
    "AND ({0}.upstream_digest IS NOT NULL OR {0}.content_digest IS NOT NULL)"
)
_UNKNOWN = " + ".join(
    f"CASE WHEN {{0}}.{name} IS NULL THEN 1 ELSE 0 END"
    for name in ("key_fingerprint", "request_digest", "upstream_digest")
)
_RANK = "CASE WHEN {0}.source = 'live' THEN 0 ELSE 1 + " + _UNKNOWN + " END, {0}.opened_at, {0}.id"


def _before(first: str, second: str) -> str:
    return f"({_RANK.format(first)}) < ({_RANK.format(second)})"


def _counts(name: str) -> str:
    # The index has the flag before the digests: a condition on both of its values lets the index
    # use the digests.
    return f"{name}.duplicate_of IS NULL AND {name}.id_collision IN (false, true)"


def _live_covers(y: str, x: str, *, has_bytes: bool) -> str:
    """Both are live: everything is the same, and a fact is unknown of both or of neither."""
    answer = (
        f"{x}.upstream_digest IS NOT NULL AND {y}.upstream_digest = {x}.upstream_digest"
        if has_bytes
        else f"{x}.upstream_digest IS NULL AND {y}.upstream_digest IS NULL "
        f"AND {y}.content_digest = {x}.content_digest"
    )
    return (
        f"{y}.source = 'live' AND {x}.source = 'live' AND {answer} "
        f"AND {y}.request_digest {{same}} {x}.request_digest "
        f"AND {y}.key_fingerprint {{same}} {x}.key_fingerprint"
    )


def _covers_recording(y: str, x: str) -> str:
    """`x` is a recording: `y` agrees in every fact that `x` has."""
    return (
        f"{x}.source <> 'live' "
        f"AND ({x}.key_fingerprint IS NULL OR {y}.key_fingerprint = {x}.key_fingerprint) "
        f"AND ({x}.request_digest IS NULL OR {y}.request_digest = {x}.request_digest "
        # Live rows from before migration 0005 lack it.
        f"OR ({y}.source = 'live' AND {y}.request_digest IS NULL)) "
        f"AND ({y}.upstream_digest = {x}.upstream_digest "
        f"OR ({x}.upstream_digest IS NULL AND {y}.content_digest = {x}.content_digest))"
    )


def _original() -> str:
    """The first row that covers `n`.

    If a row counts that covers a member with bytes, the first of these is the original: it also
    covers each other row that covers the member.
    """
    candidates = " UNION ALL ".join(
        f"SELECT {', '.join(f'y.{name}' for name in LINK_COLUMNS)} FROM exchanges y "
        f"WHERE {_IN_GROUP.format('y')} AND y.id <> n.id AND {_before('y', 'n')} AND {condition}"
        for condition in (
            f"{_counts('y')} AND {_live_covers('y', 'n', has_bytes=True)}",
            f"{_counts('y')} AND {_live_covers('y', 'n', has_bytes=False)}",
            (
                f"n.upstream_digest IS NOT NULL AND {_counts('y')} "
                f"AND y.upstream_digest = n.upstream_digest AND {_covers_recording('y', 'n')}"
            ),
            f"n.upstream_digest IS NULL AND {_covers_recording('y', 'n')}",
        )
    )
    return f"(SELECT y.id FROM ({candidates}) y ORDER BY {_RANK.format('y')} LIMIT 1)"


_N_COUNTS = (
    "(SELECT o.duplicate_of FROM exchanges o WHERE o.opened_at = n.opened_at AND o.id = n.id) "
    "IS NULL"
)
_POINTS_PAST_N = (
    "(x.duplicate_of IS NULL OR EXISTS (SELECT 1 FROM exchanges o "
    f"WHERE o.id = x.duplicate_of AND {_IN_GROUP.format('o')} AND {_before('n', 'o')}))"
)


def _point_at_n(condition: str) -> str:
    return (
        "UPDATE exchanges SET duplicate_of = n.id WHERE (opened_at, id) IN ("
        f"SELECT x.opened_at, x.id FROM exchanges x WHERE {_IN_GROUP.format('x')} "
        f"AND x.id <> n.id AND {_before('n', 'x')} AND {condition})"
    )


_LINK_STEPS = (
    # The original of n.
    (
        f"UPDATE exchanges SET duplicate_of = {_original()} WHERE opened_at = n.opened_at "
        f"AND id = n.id AND NOT (duplicate_of {{same}} {_original()})"
    ),
    # Live rows that counted and that come after n, then the rows that pointed at them.
    *(
        _point_at_n(
            f"{_N_COUNTS} AND {_counts('x')} AND {_live_covers('n', 'x', has_bytes=has_bytes)} "
            # The same the other way round, for the index.
            f"AND {_live_covers('x', 'n', has_bytes=has_bytes)}"
        )
        for has_bytes in (True, False)
    ),
    *(
        _point_at_n(
            f"{_N_COUNTS} AND x.duplicate_of IN (SELECT d.id FROM exchanges d "
            f"WHERE {_IN_GROUP.format('d')} AND d.duplicate_of = n.id) "
            f"AND {_live_covers('n', 'x', has_bytes=has_bytes)}"
        )
        for has_bytes in (True, False)
    ),
    # Recordings with the bytes that n has, then recordings without bytes.
    _point_at_n(
        "x.source <> 'live' AND x.upstream_digest = n.upstream_digest "
        f"AND {_N_COUNTS} AND {_covers_recording('n', 'x')} AND {_POINTS_PAST_N}"
    ),
    _point_at_n(
        "x.source <> 'live' AND x.upstream_digest IS NULL "
        f"AND x.content_digest = n.content_digest AND {_covers_recording('n', 'x')} "
        f"AND {_POINTS_PAST_N}"
    ),
)

_COLLIDES = (
    f"((SELECT COUNT(*) FROM (SELECT 1 FROM exchanges m WHERE {_IN_GROUP.format('m')} "
    "AND m.duplicate_of IS NULL LIMIT 2) two) > 1)"
)


def _wrong_flag(condition: str) -> str:
    return (
        f"SELECT 1 FROM exchanges m WHERE {_IN_GROUP.format('m')} AND {condition} "
        f"AND m.id_collision = (NOT {_COLLIDES})"
    )


_FLAG_STEPS = (
    (
        f"UPDATE exchanges SET id_collision = {_COLLIDES} "
        f"WHERE opened_at = n.opened_at AND id = n.id AND id_collision <> {_COLLIDES}"
    ),
    # The other members had one flag before the new ones came. So a wrong flag belongs to a row that
    # counts, or to one whose original is new: both are found by an index.
    (
        f"UPDATE exchanges SET id_collision = {_COLLIDES} WHERE response_id = (SELECT CASE WHEN "
        f"EXISTS ({_wrong_flag('m.duplicate_of IS NULL')}) "
        f"OR EXISTS ({_wrong_flag('m.duplicate_of = n.id')}) "
        "THEN n.response_id END) "
        "AND origin = n.origin AND (upstream_digest IS NOT NULL OR content_digest IS NOT NULL) "
        f"AND id_collision <> {_COLLIDES}"
    ),
)


def sqlite_linking(name: str) -> list[str]:
    """A temporary view on SQLite that links and flags each new member that is inserted into it."""
    return _member_view(name, (*_LINK_STEPS, *_FLAG_STEPS))


def sqlite_relinking(condition: str) -> list[str]:
    """The statements that link the exchanges `e` of a condition on SQLite: all of them before the
    first is flagged."""
    return [
        statement
        for name, steps in (("relink", _LINK_STEPS), ("reflag", _FLAG_STEPS))
        for statement in (*_member_view(name, steps), inserting(name, condition))
    ]


def inserting(name: str, condition: str) -> str:
    """The statement that inserts the exchanges `e` of a condition into such a view."""
    columns = ", ".join(f"e.{column}" for column in LINK_COLUMNS)
    return (
        f"INSERT INTO {name} SELECT {columns} FROM exchanges e "
        f"WHERE {condition} AND {has_company('e')}"
    )


def _member_view(name: str, steps: Sequence[str]) -> list[str]:
    # In a trigger, the new member is called NEW.
    statements = [re.sub(r"\bn\.", "NEW.", step.format(same="IS")) for step in steps]
    return taking_in(name, LINK_COLUMNS, {"NEW.id IS NOT NULL": statements})


def taking_in(
    name: str, columns: Sequence[str], programs: Mapping[str, Sequence[str]]
) -> list[str]:
    """A temporary view on SQLite that accepts rows: condition on a row -> statements that run for
    it."""
    nothing = ", ".join(f"NULL AS {column}" for column in columns)
    triggers = [
        f"CREATE TEMP TRIGGER IF NOT EXISTS {name}_row_{number} INSTEAD OF INSERT ON {name} "
        f"WHEN {condition} BEGIN {'; '.join(steps)}; END"
        for number, (condition, steps) in enumerate(programs.items())
    ]
    return [f"CREATE TEMP VIEW IF NOT EXISTS {name} AS SELECT {nothing}", *triggers]


def has_company(name: str) -> str:
    """The condition that a row's group has other members; nearly all rows are alone."""
    return (
        f"{_IS_MEMBER.format(name)} AND EXISTS (SELECT 1 FROM exchanges c "
        f"WHERE c.response_id = {name}.response_id AND c.origin = {name}.origin "
        f"AND c.id <> {name}.id)"
    )


def postgresql_function() -> str:
    """The function that links the members of a bundle: `[[opened_at, id], …]`."""
    members = (
        "SELECT e.* FROM jsonb_array_elements(keys) k "
        "JOIN exchanges e ON e.opened_at = (k ->> 0)::timestamptz AND e.id = k ->> 1 "
        f"WHERE e.state <> 'open' AND {has_company('e')} ORDER BY e.opened_at, e.id"
    )
    same = {"same": "IS NOT DISTINCT FROM"}
    link, flag = (
        "; ".join(step.format(**same) for step in steps) for steps in (_LINK_STEPS, _FLAG_STEPS)
    )
    return (
        f"CREATE OR REPLACE FUNCTION {FUNCTION}(keys jsonb) RETURNS void LANGUAGE plpgsql AS $$ "
        "DECLARE n exchanges%ROWTYPE; BEGIN "
        f"FOR n IN {members} LOOP {link}; END LOOP; "
        f"FOR n IN {members} LOOP {flag}; END LOOP; END $$"
    )
