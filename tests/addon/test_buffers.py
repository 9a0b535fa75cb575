"""Whatever grows with what comes over the wire has a bound, and the bound stands here.

The source is scanned for attributes that hold a list, a dict, a set, a queue or bytes, and that some
method makes longer, and for caches of functions. Each has a row: what bounds it, in objects as well as
in bytes; a cache of 512 names needs a bound of each name, too. A new one fails this test until somebody
has thought about it.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDON = (
    "dialects",
    "framing",
    "metering",
    "usage_opt_in",
    "proxy",
    "parts/fast",
    "parts/caps",
    "recordings",
    "parts/telemetry",
)
LEDGER = ("maintenance", "model", "pricing", "settings", "store", "parts/budgets", "parts/sync")
"""The rooms that a recording process runs."""
GROWS = frozenset(
    [
        "append",
        "appendleft",
        "extend",
        "insert",
        "add",
        "update",
        "setdefault",
        "put",
        "put_nowait",
        "__setitem__",
    ]
)
KINDS = ("list", "dict", "set", "deque", "bytearray", "bytes", "Counter", "Queue", "array", "Dict")

BOUNDS = {
    "dialects/counts.py Counts._remarks": "_REMARKS_MAX",
    "metering/backlog.py Backlog._runs": "BACKLOG_BYTES_MAX with RUN_BYTES each, short ones joined",
    "metering/estimate.py GeneratedText._unmeasured": "LAST_BYTES_MAX with RUN_BYTES each",
    "metering/session.py MeteredSession._open": "OPEN_MAX responses of a session",
    "metering/tap.py Tap.edit.kept": "what BATCH_BYTES of pending events become",
    "metering/tap.py Tap.edit.removed": "the same",
    "metering/tap.py Tap._pending": "BATCH_BYTES with CHUNK_BYTES each",
    "metering/troubles.py Troubles.reasons": "REASONS_MAX of REASON_LENGTH_MAX",
    "metering/websocket.py WebSocketSession._fell": "FALLS_MAX",
    "metering/websocket.py WebSocketSession._open_responses": "OPEN_MAX",
    "metering/websocket.py WebSocketSession._waiting": "WAITING_MAX",
    "parts/caps/holds.py Holds._answers": "ANSWERED_MAX of ANSWERS_MAX",
    "parts/caps/holds.py Holds._billings": "ANSWERED_MAX",
    "parts/caps/holds.py Holds._priced": "ANSWERED_MAX",
    "parts/caps/members.py Members._values": "the members of one request",
    "parts/caps/turns.py Turns.conversation.latest": "LATEST_MAX",
    "parts/caps/gate.py Gate._futures": "flows under way",
    "parts/caps/gate.py Gate._held": "flows under way, and the responses of their sessions",
    "proxy/shown.py FlowComments._booked": "FLOWS_MAX",
    "proxy/shown.py FlowComments._comments": "one for each flow in _booked",
    "proxy/shown.py FlowComments._committed": "one batch of the writer",
    "proxy/shown.py FlowComments._priced": "HELD_MAX",
    "parts/fast/hook_lists.py HookLists.hook_lists": "one for each hook; nothing of the wire",
    "parts/fast/websocket_parts.py _FrameBuffer.owner.__dict__": "one attribute",
    "proxy/process.py Process._undo": "one for each change; nothing of the wire",
    "proxy/process.py Process._undo_speed_ups": "one for each part; nothing of the wire",
    "proxy/recorder.py Recorder.recording.heads": "requests whose body is being sent; own headers",
    "proxy/recording.py Recording.live": "flows under way",
    "proxy/recording.py Seen.unknown_keys": "UNKNOWN_KEYS_MAX",
    "proxy/recording.py Seen.booked": "BOOKED_MAX",
    "parts/caps/admission.py _CappedSocket._held": "OPEN_MAX",
    "proxy/traffic.py Traffic.recording.sessions": "flows under way",
    "recordings/capture.py Capture._ends": "CHUNKS_MAX; CHUNK_BYTES in the budget",
    "recordings/capture.py Capture._times": "the same",
    "recordings/capture.py Capture.body": "one buffer; EXCHANGE_BYTES_MAX and the budget",
    "recordings/capture.py Capture.messages": "the same, with MESSAGE_BYTES each",
    "recordings/capture.py CaptureFiles._queue": "WAITING_MAX; their bytes are in the budget",
    "recordings/replay.py Replay._ids": "those under way: IN_FLIGHT_MAX and BATCH_MAX",
    "recordings/replay.py Replay._in_flight": "IN_FLIGHT_MAX",
    "recordings/replay.py Replay._new": "IN_FLIGHT_MAX and BATCH_MAX",
    "recordings/replay.py Replay._metered": "BATCH_MAX and BATCH_BYTES_MAX",
    "recordings/replay.py ReplayTally.by_dialect": "the dialects that there are",
    "recordings/replay_dask.py MeteredPart._batch": "BATCH_MAX",
    "recordings/replay_dask.py MeteredPart.packed": "RESULT_BYTES_MAX",
    "recordings/files.py EntryCounts.unreadable": "UNREADABLE_MAX",
    "recordings/serving.py ServedAnswers._asked_by": "the recordings that are served",
    "parts/telemetry/endpoint.py _Server._latest": "CONNECTIONS_MAX",
    "parts/telemetry/metrics.py Metrics._in_use": "PROVIDERS_MAX, MODEL_LABELS_MAX, LIMIT_LABELS_MAX of LABEL_LENGTH_MAX",
    "parts/telemetry/observer.py Observer._held": "PRICED_MAX",
    "parts/telemetry/observer.py Observer._queue": "QUEUE_MAX",
    "ledger/maintenance/known.py KnownExchanges._close": "one for each ledger that is read",
    "ledger/maintenance/known.py KnownExchanges._lookups": "the same",
    "ledger/model/provider_table.py ProviderTable._globs": "the rows of the table",
    "ledger/model/provider_table.py ProviderTable._suffixes": "the rows of the table",
    "ledger/pricing/prices.py PriceBook.effect.partial": "the rules that fit one answer",
    "ledger/pricing/prices.py PriceBook._sheets": "SHEETS_MAX of MODEL_LENGTH_MAX",
    "ledger/pricing/rules.py Rules.effect.partial": "the rules that fit one answer",
    "ledger/pricing/rules.py Rules.effect.rates": "the lines that an answer can have",
    "ledger/pricing/snapshots.py Snapshots._read": "the operator's price lists",
    "ledger/store/scope.py NameFacts._seen": "the groups of one report",
    "ledger/store/writing/incoming.py Incoming._opened": "WAITING_MAX",
    "ledger/store/writing/incoming.py Incoming._queue": "WAITING_MAX",
    "ledger/store/writing/incoming.py Incoming._settled_at": "GATHER_SETTLED",
    "ledger/store/writing/lessons.py Lessons.known": "LESSONS_MAX; their texts by the door",
    "ledger/parts/budgets/book.py Book._accounts": "ACCOUNTS_MAX, or CAPS_MAX of what one process has alone",
    "ledger/parts/budgets/book.py Book._latest": "CAPS_MAX",
    "ledger/parts/budgets/book.py Book._reserving": "WAITING_MAX",
    "ledger/parts/budgets/book.py Book.changes": "what flows under way settle in one turn of the table",
    "ledger/parts/budgets/book.py Book.news": "one for each share and first refusal; told at once",
    "ledger/parts/budgets/book.py Book.waiting": "WAITING_MAX",
    "ledger/parts/budgets/shared.py SharedCaps._made": "the caps that the operator's file ever had",
    "ledger/parts/budgets/shared.py SharedCaps._own": "OWN_MAX, and what flows under way hold",
    "ledger/parts/sync/shipper.py Shipper._logged": "1 000",
}
CACHES = {
    "parts/caps/beyond_tokens.py table": "no argument",
    "parts/caps/limits.py _model_rows": "no argument",
    "parts/caps/limits.py limits_of_model": "MODELS_MAX",
    "dialects/routes.py answer_keys": "no argument",
    "dialects/routes.py self._match": "MATCHES_MAX of PATH_LENGTH_MAX",
    "metering/estimate.py _texts": "marks of our own tables",
    "metering/templates.py _parts": "marks of our own tables",
    "metering/opening.py attribution.redacted_path": "PATHS_MAX of PATH_LENGTH_MAX",
    "metering/segments.py _identifier": "256 of NAME_MAX",
    "proxy/flows.py _is_address": "HOSTS_MAX of NAME_LENGTH_MAX",
    "proxy/options.py help_of": "no argument",
    "recordings/replay.py book": "no argument",
    "ledger/parts/sync/sessions.py _own_prices": "no argument",
    "ledger/model/aliases.py is_another": "NAMES_MAX of MODEL_LENGTH_MAX, from the ledger",
    "ledger/model/columns.py columns_of": "our own records",
    "ledger/model/door.py _gates_of": "our own records",
    "ledger/model/provider_table.py self._find": "HOSTS_REMEMBERED_MAX of HOST_LENGTH_MAX",
    "ledger/pricing/published.py installed": "no argument",
    "ledger/pricing/rules.py published": "no argument",
    "ledger/settings/names.py pattern": "PATTERNS_CACHED globs of the operator",
    "ledger/store/scope.py _changes": "zones of the operator, of the IANA database",
    "ledger/store/writing/batch_insert.py _instant": "INSTANTS_MAX moments",
    "ledger/store/writing/batch_insert.py _text": "powers of two up to ROWS_MAX",
    "ledger/parts/budgets/share_rows.py _for_server": "our own statements",
    "ledger/parts/budgets/share_rows.py _statements": "the limits that a cap can have",
    "ledger/parts/sync/bounds.py _decoders": "our own tables, with the columns that bundles have",
    "ledger/parts/sync/bounds.py _document_decoder": "our own types",
    "ledger/parts/sync/bundles.py _reading": "our own tables",
    "ledger/parts/sync/bundles.py _writing": "our own tables",
}
"""Functions whose results are kept: what bounds their number and the length of their arguments."""


def changes() -> Iterator[tuple[str, str]]:
    """`file Class.attribute` of each container that a method makes longer, and how."""
    for name, tree in sources():
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            containers = set(containers_of(owner))
            for node in ast.walk(owner):
                grown = grown_by(node)
                if grown is None:
                    continue
                attribute = ast.unparse(grown)
                is_own = attribute.removeprefix("self.")
                if is_own in containers or not attribute.startswith("self."):
                    yield f"{name} {owner.name}.{is_own}", ast.unparse(node)


def caches() -> Iterator[str]:
    """`file function` of each function whose results are kept."""
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(map(is_cache, node.decorator_list)):
                yield f"{name} {node.name}"
            elif isinstance(node, ast.Call) and is_cache(node.func) and node.args:
                yield from (
                    f"{name} {ast.unparse(each)}"
                    for each in node.args
                    if not isinstance(each, ast.Constant) and not ast.unparse(each).isupper()
                )
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "intern":
                yield f"{name} {ast.unparse(node)}"


def is_cache(node: ast.expr) -> bool:
    """`cache` and `lru_cache(...)`, whose attribute of a class `cached_property` is not."""
    made = node.func if isinstance(node, ast.Call) else node
    name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
    return name in ("cache", "lru_cache")


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules of these rooms; those of `addon` are named without it."""
    rooms = [ROOT / "addon" / room for room in ADDON] + [ROOT / "ledger" / room for room in LEDGER]
    for room in rooms:
        for path in sorted(room.rglob("*.py")):
            name = str(path.relative_to(ROOT)).removeprefix("addon/")
            yield name, ast.parse(path.read_text("utf-8"))


def grown_by(node: ast.AST) -> ast.Attribute | None:
    """The attribute that a statement or call may make longer, or None."""
    grown: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        grown = node.func.value if node.func.attr in GROWS else None
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.BitOr):
        grown = node.target
        if not (isinstance(grown, ast.Attribute) and ast.unparse(grown).startswith("self.")):
            return None
    elif isinstance(node, ast.Assign):
        grown = next((each.value for each in node.targets if isinstance(each, ast.Subscript)), None)
    return grown if isinstance(grown, ast.Attribute) else None


def containers_of(owner: ast.ClassDef) -> Iterator[str]:
    """The attributes of a class that are containers, by their annotation or first value."""
    for node in ast.walk(owner):
        if isinstance(node, ast.AnnAssign):
            if any(kind in ast.unparse(node.annotation) for kind in KINDS):
                yield ast.unparse(node.target).removeprefix("self.")
        elif isinstance(node, ast.Assign):
            value = node.value
            made = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
            if (
                isinstance(value, ast.List | ast.Dict | ast.Set)
                or (isinstance(value, ast.Constant) and isinstance(value.value, bytes))
                or any(kind in made for kind in KINDS)
            ):
                for target in node.targets:
                    yield ast.unparse(target).removeprefix("self.")


def test_whatever_grows_has_a_row() -> None:
    found: dict[str, str] = {}
    for name, how in changes():
        found.setdefault(name, how)
    assert {name: how for name, how in found.items() if name not in BOUNDS} == {}
    assert set(BOUNDS) - set(found) == set()


def test_whatever_is_kept_of_a_function_has_a_row() -> None:
    assert set(caches()) == set(CACHES)
