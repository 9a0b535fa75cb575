"""Edge. Finds and reads the budgets file, and the webhooks that it names indirectly."""

import os
import re
from pathlib import Path

from ledger.budgets.budgets import NO_BUDGETS, Budgets, Destination, is_webhook, read
from ledger.caps.caps import Cap
from ledger.model.errors import LedgerError
from ledger.settings import names_file, toml_tables
from ledger.settings.small_files import file_in_force, read_text

_CAP = re.compile(r"""^\s*(?:\[+\s*["']?cap\b|["']?cap["']?\s*=)""", re.MULTILINE)


def path_of(named: str | None) -> Path | None:
    """The file that an option or `TOKENTEE_BUDGETS` names, or an existing `budgets.toml` in the
    settings folder."""
    return file_in_force(named, "TOKENTEE_BUDGETS", "budgets.toml")


def load(named: str | None) -> Budgets:
    """The budgets in force; none without a file. LedgerError for a wrong file."""
    path = path_of(named)
    if path is None:
        return NO_BUDGETS
    text = read_text(path, "budgets file")
    return toml_tables.valid(path, read(text), "tokentee budget check")


def load_caps() -> tuple[Cap, ...]:
    """The caps in force; none without a file. LedgerError for a wrong file that has caps."""
    path = path_of(None)
    if path is None:
        return ()
    text = read_text(path, "budgets file")
    if _CAP.search(text) is None:
        return ()
    caps = toml_tables.valid(path, read(text), "tokentee budget check").caps
    for cap in caps:
        if cap.person and names_file.path_of(None) is None:
            raise LedgerError(f"{path}: the cap {cap.name} is for a person: there is no names file")
    return caps


def webhook_of(destination: Destination) -> str:
    """The URL of a webhook; LedgerError if there is none. The error does not show the URL."""
    url, where = destination.webhook or "", "webhook"
    if destination.webhook_env:
        where = f"the variable {destination.webhook_env}"
        url = os.environ.get(destination.webhook_env, "")
    elif destination.webhook_file:
        where = f"the file {destination.webhook_file}"
        url = read_text(Path(destination.webhook_file), "webhook file").strip()
    if not is_webhook(url):
        raise LedgerError(f"{where} holds no URL that begins with https:// or http://")
    return url
