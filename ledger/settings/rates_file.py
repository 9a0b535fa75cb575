"""Edge. Finds and reads the rates file."""

from ledger.model.errors import LedgerError, WrongCallError
from ledger.settings import small_files
from ledger.settings.rates import USD, Currency, read
from ledger.settings.small_files import config_directory, file_in_force


def load(code: str | None, named: str | None) -> Currency | None:
    """The currency of an option; None: USD. LedgerError without its rates, and for a wrong file."""
    code = (code or USD).strip().upper()
    if code == USD:
        return None
    path = file_in_force(named, "TOKENTEE_RATES", "rates.toml")
    if path is None:
        raise WrongCallError(
            f"--currency {code[:20]} needs a file of rates: --rates FILE, or "
            f"{config_directory() / 'rates.toml'}"
        )
    found, problems = read(small_files.read_text(path, "rates file"), str(path))
    if problems:
        raise LedgerError(f"{path}: {problems[0]}")
    if code not in found:
        known = ", ".join(sorted(found)) or "none"
        raise LedgerError(f"{path} has no rates of {code[:20]!r}; it has {known}")
    return found[code]
