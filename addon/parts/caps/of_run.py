"""Pure. The cap of `tokentee run --max-...`."""

from collections.abc import Mapping
from typing import Any

from ledger.model.errors import WrongCallError
from ledger.model.money import decimal_of
from ledger.parts.budgets.caps import RUN, Cap
from ledger.settings.toml_tables import FaultError

_OPTIONS = {"list_value_usd": "--max-list-usd"}


def caps_of(limits: Mapping[str, str], unpriced: str | None) -> tuple[Cap, ...]:
    """The cap of these limits. Raises WrongCallError for one that is none."""
    cap: dict[str, Any] = {"name": RUN, "period": RUN, "unpriced": unpriced or "refuse"}
    for word, text in limits.items():
        value = text if word in ("tokens", "requests") else decimal_of(text)
        one: dict[str, Any] = {"name": RUN, "period": RUN, word: value}
        try:
            Cap(**one)
        except FaultError:
            option = _OPTIONS.get(word, f"--max-{word}")
            example = "5 or 0.50" if word.endswith("usd") else "200, 500k or 2M"
            reason = f"{option}: {text[:40]!r} is not a limit; write {example}"
            raise WrongCallError(reason) from None
        cap[word] = value
    return (Cap(**cap),)
