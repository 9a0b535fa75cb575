"""The parts of the addon: what a user can do without. Each is a folder here and a row below.

To delete a part, delete its folder; its row may go, too. A row says what the part is, which other
parts it uses, and what it attaches to which point of the core. `POINTS` has the points of the
addon's core; a part of the ledger may attach to them, too.

In: the core's public names (ARCHITECTURE.md). Out: what the rows attach.
Uses: nothing of ours.
"""

from ledger.part import Part, commands_in

POINTS: dict[str, str] = {
    "authoriser": "(ledger, its URL, the command's caps, prices) -> who is asked before a request "
    "goes upstream (addon/proxy/authorising.py)",
    "limits of run": "(limits by kind, unpriced) -> the caps that `run --max-...` sets",
    "whether to speed up": "(options of parts, whether the process is ours) -> whether speed-ups "
    "go in",
    "speed-ups": "called with the master and whether a flow's callable takes runs of chunks; "
    "returns words for the start line, and what puts everything back",
    "telemetry": "(options of parts, metric files) -> what watches a recording "
    "(`proxy/health.py`), or None",
    "commits": "(options of parts) -> called on the writer's thread with the receipts of each "
    "commit, and returns at once; or None",
    "endpoint of workers": "(options of parts, folder, health, dropped) -> serves all workers "
    "until `stop`, or None",
    "logs to import": "() -> `97 logs of Claude Code: tokentee import`, or an empty text: what "
    "could fill a ledger that is not there or empty",
    "log format": "(options of parts) -> the formatter of the log, or None: text",
}
"""Attach point -> what the core does with what is attached."""

PARTS: tuple[Part, ...] = (
    Part(
        package="addon.parts.caps",
        about="what a request can cost at most, held before it goes upstream",
        uses=("ledger.parts.budgets",),
        attaches=(("authoriser", "admission:authoriser_of"), ("limits of run", "of_run:caps_of")),
    ),
    Part(
        package="addon.parts.telemetry",
        about="health, metrics, spans and JSON logs for operators",
        attaches=(
            ("telemetry", "watching:watching_of"),
            ("endpoint of workers", "watching:workers_endpoint_of"),
            ("log format", "json_log:formatter_of"),
        ),
        options=(
            ("tee_metrics", "options:METRICS"),
            ("tee_otlp", "options:OTLP"),
            ("tee_log_format", "options:LOG_FORMAT"),
        ),
    ),
    Part(
        package="addon.parts.agent_logs",
        about="the session logs that coding agents keep on disk, booked into the ledger",
        commands=commands_in(
            "addon.parts.agent_logs",
            "Record",
            (
                "import",
                "command",
                "import_command",
                "Book the session logs that coding agents keep",
            ),
        ),
        attaches=(("logs to import", "files:to_import"),),
    ),
    Part(
        package="addon.parts.fast",
        about="methods of mitmproxy that are replaced where the process is ours, to save CPU",
        attaches=(
            ("whether to speed up", "options:is_wanted"),
            ("speed-ups", "mechanisms:install"),
        ),
        options=(("tee_fast", "options:FAST"),),
    ),
)
