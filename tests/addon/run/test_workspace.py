"""The project and the branch of a command's folder."""

from pathlib import Path

import pytest

from addon.run.workspace import Workspace, workspace_of


def repository(folder: Path, head: str = "ref: refs/heads/main\n") -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(head)
    return folder


def test_a_folder_deep_in_a_repository(tmp_path):
    inside = repository(tmp_path / "search") / "a" / "b"
    inside.mkdir(parents=True)
    assert workspace_of(inside) == Workspace(project="search", git_branch="main")


def test_a_worktree_has_a_branch_of_its_own(tmp_path):
    main = repository(tmp_path / "search")
    own = main / ".git" / "worktrees" / "fix"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/feature/fix-1\n")
    tree = tmp_path / "fix"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {own}\n")
    assert workspace_of(tree) == Workspace(project="fix", git_branch="feature/fix-1")


def test_a_commit_that_is_checked_out(tmp_path):
    folder = repository(tmp_path / "p", "0123456789abcdef0123456789abcdef01234567\n")
    assert workspace_of(folder) == Workspace(project="p", git_branch=None)


def test_outside_of_a_repository(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()
    assert workspace_of(folder).project == "plain"
    assert workspace_of(folder).git_branch is None


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"gitdir: /nowhere"])
def test_an_odd_git_file_is_no_repository(tmp_path, content):
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / ".git").write_bytes(content)
    assert workspace_of(folder) == Workspace(project="odd", git_branch=None)


def test_long_names_are_cut(tmp_path):
    folder = repository(tmp_path / ("p" * 150), f"ref: refs/heads/{'b' * 300}")
    found = workspace_of(folder)
    assert (len(found.project or ""), len(found.git_branch or "")) == (100, 100)
    assert workspace_of(Path("/")).git_branch is None
