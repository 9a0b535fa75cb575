"""Every listener has a bound on connections, on time and on memory; this is the list of them.

A new one fails here until its bounds are tested and it is named.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
LISTENS = re.compile(
    r"\bstart_server\(|HTTPServer(?:\)|\(\()|\bmake_server\(|uvicorn\.Server\(|\.listen\([A-Z]"
)
TESTED = {
    "addon/parts/telemetry/endpoint.py": "tests/addon/parts/telemetry/test_endpoint.py",
    "ledger/parts/pages/live/server.py": "tests/ledger/parts/pages/live/test_server.py",
    "addon/recordings/serving.py": "tests/addon/recordings/test_serving.py",
}
"""Module that listens -> the test of its bounds."""


def sources() -> list[Path]:
    return [*ROOT.glob("addon/**/*.py"), *ROOT.glob("ledger/**/*.py")]


def test_every_listener_is_in_the_table():
    found = {str(path.relative_to(ROOT)) for path in sources() if LISTENS.search(path.read_text())}
    assert found == set(TESTED)
    assert [test for test in TESTED.values() if not (ROOT / test).is_file()] == []


def test_no_number_is_judged_by_its_first_digits():
    wrong = [
        f"{path}: {line}"
        for path in sources()
        for line in path.read_text().splitlines()
        if re.search(r"< int\(\w+\[:\d+\]\)|int\(\w+\[:\d+\]\) <", line)
    ]
    assert wrong == []
