"""Edge. The command: its project, its environment, its process, its signals and its exit code.

The environment is the parent's, with variables that send LLM traffic to the recorder. Only
variables that redirect traffic are set, and none that would change a client's behaviour. A base URL
in particular changes much: with `OPENAI_BASE_URL` LangChain stops asking for streamed usage,
gemini-cli refuses to start with `GOOGLE_GEMINI_BASE_URL` alone. So only base URLs that the user has
set are changed: one of a server on this machine, which clients do not call through a proxy, is
replaced by a listener with the same path after a secret prefix.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from addon.run.command.hosts import local_base_urls, origin_of
from ledger.settings.small_files import first_bytes

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""
END_SECONDS_MAX = 5.0
"""For a command whose proxy has stopped, between SIGTERM and SIGKILL."""
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)
NAME_CHARACTERS_MAX = 100
HEAD_BYTES_MAX = 4_096
"""A HEAD is one line; a longer file is not a HEAD."""


class CommandCannotStartError(Exception):
    """The command cannot be started; the text gives the reason."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def cannot_start(command: Sequence[str], error: OSError | ValueError) -> CommandCannotStartError:
    """The error of a command that the system does not start, with a shell's exit code."""
    code = NOT_EXECUTABLE if isinstance(error, PermissionError) else NOT_FOUND
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return CommandCannotStartError(f"cannot run {command[0]}: {reason}", code)


async def run_command(
    command: Sequence[str], environment: Mapping[str, str], *, on_start: Callable[[int], None]
) -> int:
    """Run the command to its end. Returns its exit code, or 128 + N if signal N ended it.

    `on_start` gets its process id. Raises CannotStartError. If it is cancelled, it ends
    the command.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environment))
    except (OSError, ValueError) as error:
        raise cannot_start(command, error) from error
    on_start(process.pid)
    loop = asyncio.get_running_loop()
    # The terminal sends Ctrl-C to the command, too. The command decides, and we end when it ends.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in PASSED_ON:
        loop.add_signal_handler(number, _pass_on, process, number)
    try:
        code = await process.wait()
    except asyncio.CancelledError:  # the proxy has stopped
        await _end(process)
        raise
    return code if code >= 0 else 128 - code


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


async def _end(process: asyncio.subprocess.Process) -> None:
    _pass_on(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), END_SECONDS_MAX)
        return
    _pass_on(process, signal.SIGKILL)


def environment_for(
    environment: Mapping[str, str],
    *,
    proxy_url: str,
    no_proxy: Sequence[str],
    bundles: Mapping[str, str],
    listeners: Mapping[str, str],
    preload: str,
    node_hosts: str,
) -> dict[str, str]:
    """The child's environment.

    `proxy_url`: with its credential; `no_proxy`: its entries; `bundles`: variable -> file;
    `listeners`: origin -> URL of the listener that replaces it; `preload`: the script that sets the
    proxy for older Node; `node_hosts`: the hosts that it proxies, as a regular expression.
    """
    child = dict(environment)
    for variable in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        child[variable] = proxy_url
    for variable in ("ALL_PROXY", "all_proxy"):
        if environment.get(variable):
            child[variable] = proxy_url
    for variable in ("NO_PROXY", "no_proxy"):
        child[variable] = ",".join(no_proxy)
    child.update(bundles)
    for variable, url in local_base_urls(environment).items():
        if origin_of(url) in listeners:
            child[variable] = listeners[origin_of(url)] + urlsplit(url).path
    child["NODE_USE_ENV_PROXY"] = "1"
    child["NODE_OPTIONS"] = node_options(environment.get("NODE_OPTIONS", ""), preload)
    child["TOKENTEE_NODE_HOSTS"] = node_hosts
    return child


def node_options(before: str, preload: str) -> str:
    """NODE_OPTIONS with the preload after the user's own options.

    Node reads a path with blanks in double quotes, with backslashes escaped
    (https://nodejs.org/api/cli.html#node_optionsoptions).
    """
    quoted = preload.replace("\\", "\\\\").replace('"', '\\"')
    return f'{before} --require "{quoted}"'.strip()


def workspace_of(folder: Path) -> tuple[str | None, str | None]:
    """The project that a folder is in, and its git branch. Never raises.

    The project is the name of the repository's folder; outside of one, of the folder itself. No
    branch: a commit is checked out, or there is no repository. Both are read from the folder and
    from `.git/HEAD`, without starting git: a repository can be prepared so that git runs an
    attacker's commands.
    """
    for place in (folder, *folder.parents):
        head = _head_of(place / ".git")
        if head is not None:
            branch = head.partition("ref: refs/heads/")[2].strip()
            return place.name[:NAME_CHARACTERS_MAX] or None, branch[:NAME_CHARACTERS_MAX] or None
    return folder.name[:NAME_CHARACTERS_MAX] or None, None


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
