"""Every module with functions is tested: which test that is, where no test names the module."""

import ast
import re

from tests.test_rooms import MODULES, ROOT, ids, name_of, parsed, statements_of

TESTED_BY = {
    "addon/parts/caps/asked_table.py": "tests/addon/parts/caps/test_gate.py",
    "addon/parts/caps/of_run.py": "tests/proxy/test_caps.py",
    "addon/proxy/authorising.py": "tests/addon/parts/caps/test_gate.py",
    # By the command line, and by what it prints.
    "addon/commands/demo.py": "tests/proxy/test_demo.py",
    "ledger/commands/": "tests/ledger/commands/test_shown_texts.py",
    "ledger/parts/exports/command.py": "tests/ledger/parts/exports/test_day_files.py",
    "ledger/parts/reconcile/command.py": "tests/ledger/parts/reconcile/test_comparison.py",
    "ledger/parts/sync/command.py": "tests/ledger/commands/test_db.py",
    "ledger/parts/plans/command.py": "tests/ledger/parts/plans/test_limits.py",
    "ledger/reports/name_suggestions.py": "tests/ledger/commands/test_report.py",
    "ledger/reports/progress.py": "tests/ledger/commands/test_report.py",
    # By data: logs, answers, price files and statements.
    "addon/parts/agent_logs/": "tests/addon/parts/agent_logs/test_agents.py",
    "addon/dialects/": "tests/addon/dialects/test_cases.py",
    "ledger/pricing/override_tables.py": "tests/ledger/pricing/test_prices.py",
    "ledger/parts/reconcile/vendors.py": "tests/ledger/parts/reconcile/test_statement_files.py",
    # Through the recorder, or through a proxy.
    "addon/proxy/traffic.py": "tests/addon/proxy/test_recorder.py",
    "addon/run/command/connection_policy.py": "tests/proxy/test_run.py",
    "addon/run/proxied_command.py": "tests/proxy/test_run.py",
    # By the rows that a database has, or refuses.
    "ledger/parts/sync/bounds.py": "tests/ledger/parts/sync/test_merging.py",
    "ledger/store/engines/refusals.py": "tests/ledger/parts/sync/test_silence.py",
    "ledger/store/engines/answering.py": "tests/ledger/parts/sync/test_silence.py",
    "ledger/store/schema/charged.py": "tests/ledger/store/schema/test_views.py",
    "ledger/store/schema/guards.py": "tests/ledger/store/test_tables.py",
}
"""Modules, or all of a room, that no test names: the test that runs them."""
IMPORT = re.compile(r"^ *from ((?:addon|ledger)[\w.]*) import (\([^)]*\)|.*)$", re.M)


def test_a_module_with_functions_has_a_test():
    """One beside it in the mirrored room, one that imports it, or one that is named here."""
    imported = set()
    for path in (ROOT / "tests").rglob("*.py"):  # read as text: to parse them takes seconds
        for package, names in IMPORT.findall(path.read_text()):
            imported |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))}
    untested = set()
    for path in MODULES:
        is_mirrored = (
            ROOT / "tests" / path.parent.relative_to(ROOT) / f"test_{path.name}"
        ).exists()
        has_functions = any(
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in statements_of(parsed(path))
        )
        is_entry = path.name in ("__init__.py", "__main__.py")
        if has_functions and not is_entry and not is_mirrored and name_of(path) not in imported:
            untested.add(ids(path))
    rows = {row: {each for each in untested if each.startswith(row)} for row in TESTED_BY}
    assert untested - set().union(*rows.values()) == set()
    assert [row for row, modules in rows.items() if not modules] == [], "rows for nothing"
    assert [test for test in TESTED_BY.values() if not (ROOT / test).is_file()] == []
