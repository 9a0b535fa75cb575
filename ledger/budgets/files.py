"""Edge. Where the budgets file lies, reading it, and the webhooks that it names indirectly."""

import os
from pathlib import Path

from ledger.budgets.budgets import NO_BUDGETS, Budgets, Destination, is_webhook, read
from ledger.model.errors import LedgerError
from ledger.settings import toml_tables
from ledger.settings.places import file_in_force
from ledger.settings.small_files import read_text
from ledger.settings.toml_tables import Problem


def path_of(named: str | None) -> Path | None:
    """The file that an option or `TOKENTEE_BUDGETS` names, or `budgets.toml` among the settings if
    it is there."""
    return file_in_force(named, "TOKENTEE_BUDGETS", "budgets.toml")


def check(path: Path) -> tuple[Budgets, list[Problem]]:
    """The budgets of a file as far as it is valid, and each problem."""
    return read(read_text(path, "budgets file"))


def load(named: str | None) -> Budgets:
    """The budgets that are in force here; none without a file. LedgerError for a wrong file."""
    path = path_of(named)
    if path is None:
        return NO_BUDGETS
    budgets, problems = check(path)
    if problems:
        raise toml_tables.refusal(path, problems, "tokentee budget check")
    return budgets


def webhook_of(destination: Destination) -> str:
    """The URL of a webhook; LedgerError, which does not show it, if there is none."""
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
