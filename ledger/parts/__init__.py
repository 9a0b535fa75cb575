"""The parts of the ledger: what a user can do without. Each is a folder here and a row below.

To delete a part, delete its folder; its row may go, too. A row says what the part is, which other
parts it uses, and what it attaches to which point of the core. `POINTS` has the points.

In: the core's public names (ARCHITECTURE.md). Out: what the rows attach.
Uses: nothing of ours.
"""

from ledger.part import Part, commands_in

POINTS = {
    "limits": "(engine, now) -> limits that answers stated, and how much of them is used",
    "lines of top": "(engine, now) -> lines of the screen of `top`",
    "words of statusline": "(engine, now) -> texts of the status line",
    "companion": "(ledger's URL, log) -> threads that work beside the writer",
    "notices": "(engine, now) -> lines for `top` and `statusline`; LedgerError: they are left out",
    "section of a page": "a `PageSection`: a card of the page",
    "problems of a page": "(engine, names, now, option that names the ledger) -> `Problem`s",
    "levels of spending": "(engine, names, now) -> lines in the chart: name, pico-USD a day",
    "word of report": "a word of `--by`, and (engine, scope) -> its `Report`",
    "option of report": "(value, the command's options) answers in the command's place",
    "facts of a request": "(engine, its columns) -> rows of heading and text on the request's page",
    "shared ledger": "how to record into a ledger in PostgreSQL: the local file, and its shipper",
    "statement": "how to read a vendor's statement",
}
"""Attach point -> what the core does with what is attached."""

PARTS: tuple[Part, ...] = (
    Part(
        package="ledger.parts.budgets",
        about="limits that stop, limits that only warn, and their alerts",
        commands=commands_in(
            "ledger.parts.budgets",
            "Money",
            (
                "budget",
                "command",
                "budget",
                "Budgets and caps: spent, left; check exits 1 when over",
            ),
        ),
        attaches=(
            ("companion", "watcher:watcher_of"),
            ("notices", "status:texts_of_file"),
            ("problems of a page", "on_page:problems"),
            ("levels of spending", "on_page:levels"),
            ("section of a page", "on_page:BUDGETS"),
            ("section of a page", "on_page:CAPS"),
        ),
    ),
    Part(
        package="ledger.parts.plans",
        about="limits of plans and keys, what plans covered, and what a percent of them buys",
        commands=commands_in(
            "ledger.parts.plans",
            "Look",
            ("limits", "command", "limits", "Limits of plans and keys, and who used them"),
        ),
        attaches=(
            ("limits", "limits:limits"),
            ("lines of top", "shown:lines_of_top"),
            ("words of statusline", "shown:words_of_statusline"),
            ("section of a page", "shown:LIMITS"),
            ("section of a page", "shown:VALUE"),
        ),
    ),
    Part(
        package="ledger.parts.pages",
        about="the ledger in a browser: live, or as one HTML file",
        commands=commands_in(
            "ledger.parts.pages",
            "Look",
            ("serve", "command", "serve", "The ledger as pages in your browser, live"),
        ),
        attaches=(("option of report", "command:html"),),
    ),
    Part(
        package="ledger.parts.why",
        about="why a request was not served from the prompt cache, and what fills the input",
        commands=commands_in(
            "ledger.parts.why",
            "Look",
            ("context", "command", "context", "What fills the input: tools, messages, images"),
            ("cache", "command", "cache", "What broke prompt caches, and what it cost"),
        ),
        attaches=(
            ("facts of a request", "questions:facts_of"),
            ("word of report", "commits:BY_COMMIT"),
        ),
    ),
    Part(
        package="ledger.parts.exports",
        about="requests, charges and FOCUS billing rows as files, one a day; billing events",
        commands=commands_in(
            "ledger.parts.exports",
            "Money",
            ("export", "command", "export", "Write the ledger as CSV, Parquet, FOCUS, events"),
        ),
    ),
    Part(
        package="ledger.parts.reconcile",
        about="vendors' statements compared with the ledger",
        commands=commands_in(
            "ledger.parts.reconcile",
            "Money",
            ("reconcile", "command", "reconcile", "Compare the ledger with a provider's statement"),
        ),
        attaches=(("statement", "statement_files:load"),),
    ),
    Part(
        package="ledger.parts.sync",
        about="ledgers that are merged: a spool into PostgreSQL, one into another, over ssh",
        commands=commands_in(
            "ledger.parts.sync",
            "Operate",
            ("sync", "command", "sync", "Merge a ledger into another one"),
        ),
        attaches=(
            ("shared ledger", "shipper:open_spool"),
            ("problems of a page", "on_page:problems"),
        ),
    ),
)
