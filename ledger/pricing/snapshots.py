"""Edge. Price lists that `tokentee prices update` has read: files in the data directory.

    prices/SHA256.json   a list as it was read, named by its digest, never changed
    prices/index.json    which list came into force when: [{"digest", "kind", "from", "source"}, …];
                         a digest of null means: the prices of the installed package

A list is data, in one of two published forms: genai-prices' `data.json` or LiteLLM's
`model_prices_and_context_window.json`. A request is priced by the list that was in force when it
was opened. Nothing that is booked moves. All files are written whole beside their place, flushed
and renamed, readable by their owner alone. Entries of a kind that was read before (models.dev's)
are left out: the list before them stays in force.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ledger.model.errors import LedgerError
from ledger.model.money import AMOUNT_MAX, PICOUSD_PER_USD
from ledger.pricing import published
from ledger.pricing.litellm import LiteLLM
from ledger.pricing.price_lines import NO_TIME
from ledger.settings import small_files

LIST_BYTES_MAX = 64 * 1024 * 1024
"""The larger of the two has 4 MB in 2026."""
KINDS = ("genai-prices", "litellm")
INDEX_NAME = "index.json"
ENTRIES_MAX = 10_000
"""Lists in the index: one a day for 27 years."""
USD_MAX = AMOUNT_MAX // PICOUSD_PER_USD
"""Of any price: a charge of one unit holds no more."""
_REPETITION = re.compile(r"[+*]|\{\d*,")
_REPEATED_GROUP = re.compile(r"\)[+*{]")
REPETITIONS_MAX = 2
"""In a pattern of names, which have up to 256 characters. In a name that nearly matches, two in a
row take 3 ms, three 0.2 s, four 25 s (measured), and a repeated group may take for ever. The
patterns of 2026 have one at most, and repeat no group."""
_NOT_A_LIST = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError),
    StopIteration,  # an empty `match`
)
"""What genai-prices raises for data that are none of its own."""


class SnapshotEntry(msgspec.Struct, frozen=True, kw_only=True, rename={"since": "from"}):
    """One line of the index."""

    digest: str | None
    """SHA-256 in hex; None: the installed package alone."""
    kind: str
    since: datetime
    source: str
    """The file or URL that it was read from."""


@dataclass(frozen=True)
class PriceList:
    """One list that was read."""

    kind: str
    digest: str
    data: bytes

    @cached_property
    def lists(self) -> "published.Lists | None":
        """Its models, if it is genai-prices' data."""
        if self.kind != "genai-prices":
            return None
        return published.Lists(self.source, _providers(json.loads(self.data, parse_float=Decimal)))

    @cached_property
    def second(self) -> LiteLLM | None:
        """Its models, if it is LiteLLM's."""
        if self.kind == "genai-prices":
            return None
        return LiteLLM.of(json.loads(self.data, parse_float=Decimal), self.source)

    @property
    def source(self) -> str:
        """As the price source of a charge begins."""
        return f"{self.kind} sha256:{self.digest[:12]}"

    def figures(self, at: datetime) -> dict[str, dict[str, object]]:
        """The prices of each model, by list and id, for comparison with another list."""
        if self.lists is not None:
            return self.lists.figures(at)
        assert self.second is not None
        return {
            name: {
                key: each
                for key, each in model.items()
                if "cost" in key and type(each) in (int, Decimal)
            }
            for name, model in self.second.models.items()
        }


def read(data: bytes, name: str) -> PriceList:
    """A list from its bytes; LedgerError in one line, with its place, if it is none."""
    try:
        document = json.loads(data, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise LedgerError(f"{name} is not JSON: {error}") from None
    kind = None
    if isinstance(document, list):
        if document and all(isinstance(each, dict) and "models" in each for each in document):
            kind = "genai-prices"
    elif isinstance(document, dict):
        values = [each for each in document.values() if isinstance(each, dict)]
        if any("litellm_provider" in each for each in values):
            kind = "litellm"
    if kind is None:
        forms = "genai-prices' data.json or LiteLLM's price list"
        raise LedgerError(f"{name} is not a price list: it does not have the form of {forms}")
    found = PriceList(kind, hashlib.sha256(data).hexdigest(), data)
    try:
        models = found.figures(datetime.now(UTC))
    except _NOT_A_LIST as error:
        problem = " ".join(str(error).split())[:300] or "an entry cannot be read"
        raise LedgerError(f"{name} is not a price list of {kind}: {problem}") from None
    if not models:
        raise LedgerError(f"{name} has no prices of {kind}")
    return found


class Snapshots:
    """The lists in a folder, and when each came into force."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder` is the data directory's by default. LedgerError if its index is damaged."""
        self.folder = folder or small_files.data_directory() / "prices"
        self.entries: Sequence[SnapshotEntry] = ()
        path = self.folder / INDEX_NAME
        if path.exists():
            data = small_files.read_bytes(path, "index of prices")
            try:
                entries = msgspec.json.decode(data, type=list[SnapshotEntry])
            except msgspec.DecodeError as error:
                raise LedgerError(f"{path} is damaged: {error}; remove it") from None
            self.entries = [one for one in entries if one.digest is None or one.kind in KINDS]
        self._read: dict[str, PriceList] = {}

    def at(self, moment: datetime) -> tuple[PriceList | None, datetime, datetime]:
        """The list in force at a moment (None: the installed package's), and from when until when.

        LedgerError if its file is missing or is not the one that was read.
        """
        since, until = NO_TIME
        digest, kind = None, ""
        for entry in self.entries:
            if entry.since <= moment:
                digest, kind, since = entry.digest, entry.kind, entry.since
            else:
                until = min(until, entry.since)
        return (self.load(digest, kind) if digest else None), since, until

    def newest(self) -> PriceList | None:
        """The list in force now."""
        return self.at(NO_TIME[1])[0]

    def with_list(self, prices: PriceList, now: datetime) -> "Snapshots":
        """These, and a list that is not kept, in force from now on."""
        other = Snapshots(self.folder)
        entry = SnapshotEntry(digest=prices.digest, kind=prices.kind, since=now, source="")
        other.entries, other._read = (*self.entries, entry), {**self._read, prices.digest: prices}
        return other

    def load(self, digest: str, kind: str) -> PriceList:
        """A list by its digest."""
        found = self._read.get(digest)
        if found is None:
            path = self.folder / f"{digest}.json"
            data = small_files.read_bytes(path, "price list", bytes_max=LIST_BYTES_MAX)
            if hashlib.sha256(data).hexdigest() != digest:
                raise LedgerError(
                    f"{path} was changed; read the list again with: tokentee prices update"
                )
            found = self._read[digest] = PriceList(kind, digest, data)
        return found

    def install(self, prices: PriceList, *, source: str, now: datetime) -> None:
        """Keep a list, and put it into force from now on."""
        self._write(f"{prices.digest}.json", prices.data)
        if self.entries and now < self.entries[-1].since:
            raise LedgerError("the clock is before the last update of prices; set it right first")
        if len(self.entries) >= ENTRIES_MAX:
            raise LedgerError(f"{self.folder} has {ENTRIES_MAX} updates; remove its index")
        entry = SnapshotEntry(digest=prices.digest, kind=prices.kind, since=now, source=source)
        self.entries = (*self.entries, entry)
        self._write(INDEX_NAME, msgspec.json.format(msgspec.json.encode(self.entries)))

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            small_files.write_whole(self.folder / name, data)
        except OSError as error:
            raise LedgerError(f"cannot write to {self.folder}: {error.strerror}") from None


def _providers(document: list[dict[str, Any]]) -> dict[str, Any]:
    """genai-prices' data as the library's own objects, by list id.

    How the library reads usage from answers is left out: prices do not need it.
    """
    from genai_prices import types
    from pydantic import ConfigDict, TypeAdapter

    figures = TypeAdapter(dict[str, Decimal | types.TieredPrices | None])

    def converted(value: Any) -> Any:
        if isinstance(value, list):
            return [converted(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "regex" in value:
            _check_pattern(value["regex"])
        return {
            key: types.ModelPrice(**_checked(figures.validate_python(each)))
            if key == "prices" and isinstance(each, dict)
            else converted(each)
            for key, each in value.items()
            if key != "extractors"
        }

    adapter = TypeAdapter(list[types.Provider], config=ConfigDict(arbitrary_types_allowed=True))
    return {each.id: each for each in adapter.validate_python(converted(document))}


def _checked(prices: dict[str, Any]) -> dict[str, Any]:
    """The prices of a model; ValueError for one that none can be."""
    for key, price in prices.items():
        steps = getattr(price, "tiers", ())
        starts = [step.start for step in steps]
        for each in (getattr(price, "base", price), *(step.price for step in steps)):
            if each is not None and not 0 <= each <= USD_MAX:
                raise ValueError(f"{key}: {each} is not a price from 0 to {USD_MAX} USD")
        if starts != sorted(set(starts)) or min(starts, default=0) < 0:
            raise ValueError(f"{key}: the steps {starts} do not rise")
    return prices


def _check_pattern(pattern: object) -> None:
    """ValueError for a pattern of names that is none, or that may take for ever: names come from
    clients."""
    try:
        re.compile(str(pattern))
    except re.error as error:
        raise ValueError(f"regex {str(pattern)[:80]!r}: {error}") from None
    if _REPEATED_GROUP.search(str(pattern)):
        raise ValueError(f"regex {str(pattern)[:80]!r}: a group is repeated")
    if len(_REPETITION.findall(str(pattern))) > REPETITIONS_MAX:
        raise ValueError(f"regex {str(pattern)[:80]!r}: more than {REPETITIONS_MAX} repetitions")


def now_in_seconds() -> datetime:
    """The moment that an entry of the index names."""
    return datetime.now(UTC).replace(microsecond=0)
