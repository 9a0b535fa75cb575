"""What the proxy tests share: the table of the matrix, printed when the run is over."""

from collections import Counter

import pytest

_TABLE = pytest.StashKey["Table"]()


class Table:
    """How many cases passed, by row and column."""

    def __init__(self) -> None:
        self._passed: Counter[tuple[str, str]] = Counter()
        self._played: Counter[tuple[str, str]] = Counter()

    def add(self, row: str, column: str, *, passed: bool) -> None:
        self._played[row, column] += 1
        self._passed[row, column] += passed

    def lines(self) -> list[str]:
        """One line a row; a cell says how many cases passed, or passed/played if some did not."""
        columns = list(dict.fromkeys(column for _, column in self._played))
        lines = [f"{number:>2}  {column}" for number, column in enumerate(columns, start=1)]
        head = "".join(f"{number:>6}" for number in range(1, len(columns) + 1))
        lines.append(f"{'':<34}{head}")
        for row in dict.fromkeys(row for row, _ in self._played):
            cells = [self._cell(row, column) for column in columns]
            lines.append(f"{row:<34}" + "".join(f"{cell:>6}" for cell in cells))
        total = f"{self._passed.total()} of {self._played.total()} cases passed"
        return [*lines, total]

    def _cell(self, row: str, column: str) -> str:
        played = self._played[row, column]
        passed = self._passed[row, column]
        return f"{passed}/{played}" if passed < played else str(played or "-")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLE] = Table()


@pytest.fixture(scope="session")
def matrix_table(pytestconfig: pytest.Config) -> Table:
    return pytestconfig.stash[_TABLE]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    lines = config.stash[_TABLE].lines()
    if len(lines) > 2:
        terminalreporter.section("wire, ask x end: cases passed")
        for line in lines:
            terminalreporter.write_line(line)
