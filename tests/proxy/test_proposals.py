"""The proposals to mitmproxy in `docs/proposals`: each patch applies and does what its page says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mitmproxy
import pytest
from mitmproxy import version

from tests.proxy.mitmdump import REPOSITORY, SCRIPTS

FOLDER = REPOSITORY / "docs" / "proposals"
MADE_FOR = "12.2.3"
EXPECTED = {
    "response-body-end": {
        "seen": ["responsebodyend", "response"],
        "body": "5\r\nfirst\r\n4\r\nlast\r\n0\r\n\r\n",
    },
    "which-side-broke": {"upstream": [False], "client": [True], "state": ["msg", "timestamp"]},
    "ask-again": {
        "requests": ["hi", "please"],
        "status": "HTTP/1.1 200 OK",
        "http2_streams": [1, 3],
    },
}

pytestmark = pytest.mark.skipif(
    version.VERSION != MADE_FOR, reason=f"the patches are against mitmproxy {MADE_FOR}"
)


def patched(folder: Path, names: list[str]) -> Path:
    """A copy of the installed mitmproxy with patches applied."""
    shutil.copytree(
        Path(mitmproxy.__file__).parent,
        folder / "mitmproxy",
        ignore=shutil.ignore_patterns("__pycache__", "static"),
    )
    for name in names:
        subprocess.run(
            ["git", "apply", "--verbose", str(FOLDER / f"{name}.patch")],
            cwd=folder,
            # Or git finds a repository around the folder, and skips what is not below it.
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
            check=True,
            capture_output=True,
        )
    return folder


def seen(name: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "proposals.py"), name],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_proposal_has_a_page_and_a_patch():
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert pages == {path.stem for path in FOLDER.glob("*.patch")} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_a_patch_does_what_its_page_says(name: str, tmp_path: Path):
    assert seen(name, patched(tmp_path, [name])) == EXPECTED[name]


def test_all_patches_apply_together(tmp_path: Path):
    folder = patched(tmp_path, [*EXPECTED])
    assert seen("ask-again", folder) == EXPECTED["ask-again"]
