"""Pure. What a part adds to a page of the ledger: lines of what is wrong, and sections."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ledger.settings.names import Names

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One line at the top of the page."""

    kind: str
    level: str
    """bad: something was lost or is late; look: a figure is incomplete; note: for information."""
    count: int
    headline: str
    advice: str
    """A sentence without its end; names from the wire stand in it as they are."""
    command: str = ""
    """What shows or mends it, to be run as it stands."""
    listed: tuple[str, str] | None = None
    """What an address of a list of requests says of them: `kind`, `errors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSection:
    """A card of the page that does not depend on the page's period; a live page loads it late."""

    name: str
    """Its name in addresses and in the page."""
    template: Path
    """A Jinja2 template with the filters of the pages; its variables are the values."""
    has_any: "Callable[[Engine], bool]"
    """Whether there may be something to show; quick."""
    values: "Callable[[Engine, Names, datetime], Mapping[str, Any]]"
    """What the template shows; it shows nothing if these say nothing."""
