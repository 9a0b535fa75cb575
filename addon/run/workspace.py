"""Edge (files). The project and the git branch that a command is run in.

Both are read from the folder and from `.git/HEAD`, without starting git: a repository can be
prepared so that git runs an attacker's commands.
"""

from dataclasses import dataclass
from pathlib import Path

from ledger.settings.small_files import first_bytes

NAME_CHARACTERS_MAX = 100
HEAD_BYTES_MAX = 4_096
"""A HEAD is one line; a longer file is not a HEAD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """None: not known, or not in a repository."""

    project: str | None = None
    """The name of the repository's folder; outside of one, of the folder itself."""
    git_branch: str | None = None


NO_WORKSPACE = Workspace()


def workspace_of(folder: Path) -> Workspace:
    """The workspace of a folder. Never raises."""
    for place in (folder, *folder.parents):
        head = _head_of(place / ".git")
        if head is not None:
            return Workspace(project=_name(place), git_branch=_branch(head))
    return Workspace(project=_name(folder))


def _head_of(git: Path) -> str | None:
    """The text of HEAD; None if this is not a repository. In a worktree, `.git` is a file that
    names the folder."""
    try:
        if git.is_file():
            text = first_bytes(git, HEAD_BYTES_MAX).decode("utf-8", "replace")
            named = text.partition("gitdir:")[2].strip()
            git = git.parent / named if named else git
        if not (git / "HEAD").is_file():  # a pipe would be waited for
            return None
        return first_bytes(git / "HEAD", HEAD_BYTES_MAX).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: a worktree's file names a path with a zero byte
        return None


def _branch(head: str) -> str | None:
    """The branch; None if a commit is checked out."""
    branch = head.partition("ref: refs/heads/")[2].strip()
    return branch[:NAME_CHARACTERS_MAX] or None


def _name(folder: Path) -> str | None:
    return folder.name[:NAME_CHARACTERS_MAX] or None
