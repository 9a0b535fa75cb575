"""Pure. The table of providers, indexed for every lookup: who answers where, whose prices hold."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase, translate
from functools import lru_cache
from urllib.parse import urlsplit

from ledger.model.providers import PROVIDERS, BaseUrl, Provider, StreamUsage

HOST_LENGTH_MAX = 253
"""Characters of the longest DNS name; no provider has a longer host."""
HOSTS_REMEMBERED_MAX = 1_024
"""Cached lookups, about 200 KB; an uncached lookup of a host costs 5 µs."""


class ProviderTable:
    """The rows, indexed for every lookup. Immutable."""

    def __init__(self, rows: Iterable[Provider]) -> None:
        self.rows = tuple(rows)
        self._at = lru_cache(HOSTS_REMEMBERED_MAX)(self._find)
        self._named = {row.name: row for row in self.rows}
        assert len(self._named) == len(self.rows), "two providers of one name"
        self._suffixes: dict[str, Provider] = {}
        self._globs: list[tuple[re.Pattern[str], Provider]] = []
        for row in self.rows:
            for host in (*row.hosts, *row.unlisted_hosts):
                if "*" in host:
                    self._globs.append((re.compile(translate(host)), row))
                else:
                    self._suffixes[host] = row
        self._unlisted = [
            pattern for row in self.rows for pattern in map(_host_pattern, row.unlisted_hosts)
        ]
        self._lists_at = [
            (_host_pattern(host), list_id)
            for row in self.rows
            for host, list_id in (row.prices_at or {}).items()
        ]
        self._list_of_prefix = {
            prefix: row.prices for row in self.rows for prefix in row.model_prefixes
        }
        self._closed = _families((row.closed_models, row.prices) for row in self.rows)
        self._open = _families((row.open_models, row.prices) for row in self.rows)

    def at(self, host: str, path: str = "") -> Provider | None:
        """The provider that answers at a host; None for an unknown host."""
        host = normalised(host)
        row = self._at(host) if len(host) <= HOST_LENGTH_MAX else None
        if row is not None and row.under_paths is not None:
            for part, name in row.under_paths.items():
                if part in path:
                    return self._named[name]
        return row

    def named(self, name: str) -> Provider | None:
        """The row of a provider, by its name in the ledger."""
        return self._named.get(name)

    def price_list_at(self, host: str) -> str:
        """The price list of a host; empty if none is known."""
        host = normalised(host)
        row = self.at(host)
        if row is None or any(pattern.fullmatch(host) for pattern in self._unlisted):
            return ""
        for pattern, list_id in self._lists_at:
            if pattern.fullmatch(host):
                return list_id
        return row.prices

    def price_list_of_vendor(self, prefix: str) -> str | None:
        """The list of the vendor with this prefix at gateways: `openai` in `openai/gpt-5`."""
        return self._list_of_prefix.get(prefix)

    def price_list_of_model(self, bare_name: str, *, with_open: bool) -> str | None:
        """The price list of the vendor that makes a model, by the model's name without a prefix."""
        for pattern, list_id in (*self._closed, *(self._open if with_open else ())):
            if pattern.match(bare_name):
                return list_id
        return None

    def stream_usage_of(self, name: str) -> StreamUsage:
        """When the streams of this provider carry usage."""
        row = self._named.get(name)
        return row.stream_usage if row is not None else StreamUsage.UNKNOWN

    def base_urls(self) -> tuple[BaseUrl, ...]:
        """All variables from which SDKs read a base URL."""
        return tuple(entry for row in self.rows for entry in row.base_urls)

    def base_url_setting(self, host: str | None, proxy: str) -> str | None:
        """NAME=URL of the variable that leads the SDKs of a host to the URL of a reverse proxy."""
        for entry in self.base_urls():
            default = urlsplit(entry.default or "")
            if host and fnmatchcase(host, default.hostname or ""):
                return f"{entry.variable}={proxy}{default.path}"
        return None

    def _find(self, host: str) -> Provider | None:
        suffix = host
        while suffix:
            row = self._suffixes.get(suffix)
            if row is not None:
                return row
            suffix = suffix.partition(".")[2]
        for pattern, row in self._globs:
            if pattern.fullmatch(host):
                return row
        return None


def normalised(host: str) -> str:
    """A host in lower case, without the dot at the end of an absolute name."""
    return host.lower().rstrip(".")


def _host_pattern(host: str) -> re.Pattern[str]:
    if "*" in host:
        return re.compile(translate(host))
    return re.compile(rf"(?:.*\.)?{re.escape(host)}")


def _families(rows: Iterable[tuple[str, str]]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(pattern), list_id) for pattern, list_id in rows if pattern)


TABLE = ProviderTable(PROVIDERS)


def provider_of(host: str, path: str) -> str:
    """The name of the provider that answers at a host; the host itself if it is unknown."""
    row = TABLE.at(host, path)
    return row.name if row is not None else normalised(host)


def serves_llms(host: str, path: str) -> bool:
    """Whether the table lists a host, and no other service answers there."""
    row = TABLE.at(host, path)
    return row is not None and not row.hosts_are_shared
