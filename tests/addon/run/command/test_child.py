"""What a command run under `tokentee run` is told."""

from pathlib import Path

import pytest

from addon.run.command.child import environment_for, node_options, workspace_of

PROXY = "http://tokentee:secret@127.0.0.1:8080"


def told(environment: dict[str, str], listeners: dict[str, str] | None = None) -> dict[str, str]:
    return environment_for(
        environment,
        proxy_url=PROXY,
        no_proxy=["localhost", "127.0.0.1"],
        bundles={"SSL_CERT_FILE": "/tmp/bundle.pem"},
        listeners=listeners or {},
        preload="/opt/preload.cjs",
        node_hosts="^api:443$",
    )


def test_nothing_but_the_way_is_set():
    assert told({}).keys() == {
        "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy",
        "SSL_CERT_FILE", "NODE_USE_ENV_PROXY", "NODE_OPTIONS", "TOKENTEE_NODE_HOSTS",
    }  # fmt: skip


def test_everything_else_stays_as_it_was():
    before = {"PATH": "/bin", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://gw.corp/v1"}
    assert told(before).items() >= before.items()


@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy"])
def test_all_proxy_is_replaced_only_where_it_is_set(name: str):
    """With an HTTP proxy in it, curl would ask the recorder for ftp:// too."""
    assert told({name: "http://corp:3128"})[name] == PROXY
    assert name not in told({})
    assert told({name: ""})[name] == ""


@pytest.mark.parametrize(
    ("variable", "value", "becomes"),
    [
        pytest.param(
            "OPENAI_BASE_URL", "http://127.0.0.1:11434/v1", "http://127.0.0.1:9/s/v1", id="local"
        ),
        pytest.param("OLLAMA_HOST", "http://127.0.0.1:11434", None, id="ollama-listens-there"),
        pytest.param("OPENAI_BASE_URL", "http://gw.corp:11434/v1", None, id="elsewhere"),
        pytest.param("OPENAI_BASE_URL", "127.0.0.1:11434", None, id="no-scheme"),
        pytest.param("OTHER_URL", "http://127.0.0.1:11434/v1", None, id="no-base-url"),
    ],
)
def test_a_base_url_of_a_local_server_leads_to_its_listener(
    variable: str, value: str, becomes: str | None
):
    child = told({variable: value}, {"http://127.0.0.1:11434": "http://127.0.0.1:9/s"})
    assert child[variable] == (becomes or value)


def test_a_local_base_url_without_a_listener_stays():
    assert told({"OPENAI_BASE_URL": "http://localhost:1/v1"})["OPENAI_BASE_URL"].endswith(":1/v1")


@pytest.mark.parametrize(
    ("before", "preload", "after"),
    [
        pytest.param("", "/a/b.cjs", '--require "/a/b.cjs"', id="alone"),
        pytest.param("--no-warnings", "/b.cjs", '--no-warnings --require "/b.cjs"', id="merged"),
        pytest.param("", '/a b/"c".cjs', '--require "/a b/\\"c\\".cjs"', id="quoted"),
    ],
)
def test_node_options(before: str, preload: str, after: str):
    assert node_options(before, preload) == after


def repository(folder: Path, head: str = "ref: refs/heads/main\n") -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text(head)
    return folder


def test_a_folder_deep_in_a_repository(tmp_path):
    inside = repository(tmp_path / "search") / "a" / "b"
    inside.mkdir(parents=True)
    assert workspace_of(inside) == ("search", "main")


def test_a_worktree_has_a_branch_of_its_own(tmp_path):
    main = repository(tmp_path / "search")
    own = main / ".git" / "worktrees" / "fix"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/feature/fix-1\n")
    tree = tmp_path / "fix"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {own}\n")
    assert workspace_of(tree) == ("fix", "feature/fix-1")


def test_a_commit_that_is_checked_out(tmp_path):
    folder = repository(tmp_path / "p", "0123456789abcdef0123456789abcdef01234567\n")
    assert workspace_of(folder) == ("p", None)


def test_outside_of_a_repository(tmp_path):
    folder = tmp_path / "plain"
    folder.mkdir()
    assert workspace_of(folder) == ("plain", None)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"gitdir: /nowhere"])
def test_an_odd_git_file_is_no_repository(tmp_path, content):
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / ".git").write_bytes(content)
    assert workspace_of(folder) == ("odd", None)


def test_long_names_are_cut(tmp_path):
    folder = repository(tmp_path / ("p" * 150), f"ref: refs/heads/{'b' * 300}")
    assert workspace_of(folder) == ("p" * 100, "b" * 100)
    assert workspace_of(Path("/"))[1] is None
