"""Edge. Requests by the commit of git that they led to: `tokentee report --by commit`.

The ledger knows project and branch of a request, and git the times of commits. A request belongs to
the next commit on its branch, in the repository of the current folder. Commits are placed by their
author's time, which a rebase keeps; a merge counts once, on the branch it was made on.

Git is started in a repository that may be hostile. Its settings can name programs (`fsmonitor`,
hooks, a pager, a program that checks signatures, a transport that fetches missing objects): each is
switched off here, and git only reads.
"""

import os
import re
import subprocess
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from ledger.figures.figures import Figures, Report, ReportRow, total_of
from ledger.figures.queries import FIGURE_NAMES, report, times_of
from ledger.figures.sum_query import SumQuery, grouped
from ledger.model.errors import LedgerError
from ledger.store.adding_up import histogram
from ledger.store.schema.columns import Instant
from ledger.store.schema.sums import HISTOGRAMS
from ledger.store.scope import Scope, conditions, requests, snapshot
from ledger.text.figures import seconds_text

COMMIT_WORD = "commit"
COMMITS_MAX = 5_000
"""Of one report: each is a parameter of its query, and SQLite takes 32 766."""
OUTPUT_BYTES_MAX = 4 * 2**20
ERROR_BYTES_MAX = 4096
GIT_SECONDS_MAX = 30
GIT = (
    *("git", "--no-pager", "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null"),
    *("-c", "log.showSignature=false", "-c", "gpg.program=/bin/false"),
)
LOG = (
    *("log", "--first-parent", "--no-show-signature", "--encoding=UTF-8"),
    *("--format=%at %h %<(72,trunc)%s", f"--max-count={COMMITS_MAX + 1}"),
)
_LINE = re.compile(r"(\d{1,12}) ([0-9a-f]{4,64}) (.*)")


@dataclass(frozen=True, slots=True, order=True)
class _Commit:
    at: datetime
    hash: str
    subject: str


def report_by_commit(engine: Engine, scope: Scope, folder: Path | None = None) -> Report:
    """The figures of each commit of the repository that a folder is in, by default the current one;
    the last rows have no commit, and say why instead of a subject.

    LedgerError without a repository or git, or with more than `COMMITS_MAX` commits.
    """
    begin = folder or Path.cwd()
    for place in (begin, *begin.parents):
        if (place / ".git").is_file() or (place / ".git" / "HEAD").is_file():
            break  # its name is the project of its requests
    else:
        raise LedgerError(
            f"--by commit: {begin} is in no git repository; run it in the project's folder"
        )
    with snapshot(engine) as connection:
        dialect = connection.dialect.name
        of_project = replace(scope, only=(*scope.only, ("project", place.name)))
        r = requests.c
        asked = sa.select(r.git_branch, sa.func.min(r.opened_at)).group_by(r.git_branch)
        found = connection.execute(asked.where(*conditions(of_project, dialect)))
        first_at = {branch: first for branch, first in found if branch is not None}
        commits = _commits(place, first_at)
        keys: list[tuple[str | None, ...]] = [(None, None, None, "of another project, or of none")]

        def group(of: sa.FromClause) -> list[sa.ColumnElement[Any]]:
            del keys[1:]
            branches = []
            for branch, its in commits.items():
                first = len(keys)
                zone = scope.zone or UTC
                for commit in its:
                    when = f"{commit.at.astimezone(zone):%Y-%m-%d %H:%M}"
                    keys.append((commit.hash, branch, when, commit.subject))
                keys.append((None, branch, None, "not committed yet"))
                branches.append((of.c.git_branch == branch, _place(of.c.opened_at, its, first)))
            keys.append((None, None, None, "without a branch, or its branch is not here"))
            unknown: sa.ColumnElement[int] = sa.literal_column(str(len(keys) - 1))
            in_project = sa.case(*branches, else_=unknown) if branches else unknown
            other: sa.ColumnElement[int] = sa.literal_column("0")
            return [sa.case((of.c.project == place.name, in_project), else_=other)]

        rows = []
        query = SumQuery(
            by=group,
            words=(),
            figures=(*FIGURE_NAMES, *HISTOGRAMS),
            scope=scope,
            is_exact=True,
        )
        for row in sorted(grouped(connection, query)):
            number, *values = tuple[Any, ...](row)
            numbers = (None if value is None else int(value) for value in values)
            sums: dict[str, Any] = dict(zip(FIGURE_NAMES, numbers, strict=False))
            sums["unpriced"] -= sums["partial"]  # both are counted as unpriced
            times = times_of([histogram(text) for text in values[len(FIGURE_NAMES) :]])
            rows.append(ReportRow(key=keys[number], figures=Figures(**sums), times=times))
        whole = report(connection, (), scope)
    assert total_of(row.figures for row in rows) == whole.total.figures
    rows.sort(key=lambda row: (row.key[0] is None, row.key[2] or "", row.key[1] or ""))
    return replace(whole, by=(COMMIT_WORD, "branch", "committed", "subject"), rows=tuple(rows))


BY_COMMIT = (COMMIT_WORD, report_by_commit)


def _place(
    at: sa.ColumnElement[datetime], commits: Sequence[_Commit], first: int
) -> sa.ColumnElement[int]:
    """The number of the first commit that is not before a moment, counted from `first`; the number
    behind the last one if there is none. Halved at each step: a plain CASE would compare a request
    with every commit."""
    if not commits:
        return sa.literal_column(str(first))
    half = len(commits) // 2
    return sa.case(
        (at <= sa.literal(commits[half].at, Instant()), _place(at, commits[:half], first)),
        else_=_place(at, commits[half + 1 :], first + half + 1),
    )


def _commits(place: Path, first_at: dict[str, datetime]) -> dict[str, list[_Commit]]:
    """Branch -> its commits from the first request on, the earliest first; of the branches that the
    repository has. Names of branches come from the ledger, so git gets only those it listed."""
    listed = _git(place, "for-each-ref", "--format=%(refname)", "refs/heads/").splitlines()
    found: dict[str, list[_Commit]] = {}
    for branch in sorted({*first_at} & {line.removeprefix("refs/heads/") for line in listed}):
        since = f"--since={int(first_at[branch].timestamp())}"
        lines = _git(place, *LOG, since, f"refs/heads/{branch}", "--").splitlines()
        matches = [match for line in lines if (match := _LINE.fullmatch(line.rstrip()))]
        its = sorted(
            _Commit(datetime.fromtimestamp(int(match[1]), UTC), match[2], match[3])
            for match in matches
        )
        found[branch] = its[bisect_left(its, first_at[branch], key=lambda each: each.at) :]
    if (count := sum(map(len, found.values()))) > COMMITS_MAX:
        raise LedgerError(f"more than {COMMITS_MAX} commits ({count}): give a shorter period")
    return found


def _git(place: Path, *arguments: str) -> str:
    """What git prints, at most `OUTPUT_BYTES_MAX`. LedgerError if it is not there or fails."""
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    environment |= {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        git = subprocess.Popen(  # noqa: S603  # each argument is ours, or a branch that git listed
            [*GIT, "-C", str(place), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise LedgerError(f"--by commit cannot start git: {error.strerror}") from None
    timer = threading.Timer(GIT_SECONDS_MAX, git.kill)
    timer.start()
    with git:
        assert git.stdout is not None
        assert git.stderr is not None
        printed = git.stdout.read(OUTPUT_BYTES_MAX + 1)
        is_whole = len(printed) <= OUTPUT_BYTES_MAX
        if not is_whole:
            git.kill()
        errors = git.stderr.read(ERROR_BYTES_MAX).decode("utf-8", "replace").strip()
    timer.cancel()
    if not is_whole or git.returncode:
        reason = errors.partition("\n")[0] if is_whole else "it prints too much"
        reason = reason or f"it was stopped after {seconds_text(GIT_SECONDS_MAX)}"
        raise LedgerError(f"--by commit: git {arguments[0]} in {place}: {reason}")
    return printed.decode("utf-8", "replace")
