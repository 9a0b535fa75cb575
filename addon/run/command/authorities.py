"""Edge. Certificate authorities: those that the proxy trusts, and bundles for the child.

The child must trust the proxy and everything that it trusted before. Most clients read one file
that replaces their default, so each variable gets a bundle: the certificates that it named, or the
default roots, followed by the proxy's authority.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import certifi

from ledger.model.errors import LedgerError
from ledger.settings.small_files import expanded, first_bytes

SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Alpine, Arch
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)
FOLDER_FILES_MAX = 2_000
"""Files read of one folder of certificates; distributions ship about 300."""
BUNDLE_BYTES_MAX = 16 * 2**20
"""Certificates read of one file or folder. The common root stores have 0.2-0.6 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """An environment variable that names trusted certificates."""

    name: str
    read_by: str
    falls_back_to: tuple[str, ...] = ()
    """Variables that the same client reads if this one is not set."""
    is_added: bool = False
    """The client adds the file to its default roots, so the proxy's authority alone is enough."""
    always: bool = True
    """False: clients of LLM hosts do not read it; it is set only if the user has set it, or if
    everything is decrypted."""


VARIABLES = (
    Variable(name="SSL_CERT_FILE", read_by="OpenSSL, Python's ssl, httpx, Go, rustls, Ruby"),
    Variable(name="REQUESTS_CA_BUNDLE", read_by="requests", falls_back_to=("CURL_CA_BUNDLE",)),
    Variable(name="CURL_CA_BUNDLE", read_by="curl", falls_back_to=("SSL_CERT_FILE",)),
    Variable(name="NODE_EXTRA_CA_CERTS", read_by="Node.js, Bun", is_added=True),
    Variable(name="DENO_CERT", read_by="Deno", is_added=True),
    Variable(
        name="AWS_CA_BUNDLE",
        read_by="botocore, AWS CLI",
        falls_back_to=("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    ),
    Variable(name="HTTPLIB2_CA_CERTS", read_by="google-api-python-client"),
    Variable(name="GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", read_by="gRPC"),
    Variable(name="NIX_SSL_CERT_FILE", read_by="OpenSSL of Nix", always=False),
    Variable(name="CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", read_by="gcloud", always=False),
    Variable(name="GIT_SSL_CAINFO", read_by="git", always=False),
    Variable(name="PIP_CERT", read_by="pip", falls_back_to=("REQUESTS_CA_BUNDLE",), always=False),
    Variable(name="CARGO_HTTP_CAINFO", read_by="cargo", always=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The certificates that the parent's environment trusts."""

    roots: bytes
    """The default roots: certifi's, the machine's store, SSL_CERT_DIR."""
    named: Mapping[str, bytes]
    """Variable -> the certificates that it names."""
    troubles: tuple[str, ...] = ()
    """One line for each variable that names an unreadable file."""

    @property
    def everything(self) -> bytes:
        """All certificates, which the proxy trusts for upstreams."""
        return b"\n".join(dict.fromkeys([self.roots, *self.named.values()]))


def read_trust(environment: Mapping[str, str]) -> Trust:
    """Read the certificates that the environment names, and the default roots."""
    troubles = []
    folders = filter(None, environment.get("SSL_CERT_DIR", "").split(":"))
    parts = [
        Path(certifi.where()).read_bytes(),
        *map(_read, islice(map(Path, filter(os.path.isfile, SYSTEM_BUNDLES)), 1)),
        *(_read_folder(Path(folder)) for folder in folders),
    ]
    named = {}
    for variable in VARIABLES:
        value = environment.get(variable.name)
        if not value:
            continue
        try:
            named[variable.name] = _read(Path(value))
        except OSError as error:
            troubles.append(
                f"{variable.name} names {value}, which cannot be read ({error.strerror}); "
                "the default certificates are used in its place"
            )
    return Trust(roots=b"\n".join(dict.fromkeys(parts)), named=named, troubles=tuple(troubles))


def write_trusted(folder: Path, environment: Mapping[str, str]) -> tuple[Path, tuple[str, ...]]:
    """Write what the proxy trusts into a file; the file, and the troubles. Nothing keeps the
    certificates in memory: that would be 3 MB for as long as the proxy runs."""
    trust = read_trust(environment)
    return write(folder, [trust.everything]), trust.troubles


def write_bundles(
    folder: Path, environment: Mapping[str, str], authority: bytes, *, everything: bool
) -> dict[str, str]:
    """Write the child's bundles into `folder`; variable -> file, for each variable to set."""
    trust = read_trust(environment)
    written = {}
    for variable in VARIABLES:
        if not (variable.always or everything or environment.get(variable.name)):
            continue
        names = (variable.name, *variable.falls_back_to)
        own = next((trust.named[name] for name in names if name in trust.named), None)
        if own is None:
            own = b"" if variable.is_added else trust.roots
        written[variable.name] = str(write(folder, [own, authority]))
    written["WGETRC"] = write_wgetrc(folder, environment, written["SSL_CERT_FILE"])
    return written


def check_folder(named: str) -> None:
    """LedgerError if mitmproxy could neither find nor write its certificates in this folder: its
    own error is a traceback."""
    folder = expanded(named)
    reason: str | None = "permission denied"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "mitmproxy-ca.pem").is_file() or os.access(folder, os.W_OK | os.X_OK):
            return
    except OSError as error:
        reason = error.strerror
    raise LedgerError(
        f"cannot keep the proxy's certificates in {folder}: {reason}; set HOME to a folder of "
        "yours, or name one with --set confdir=FOLDER"
    )


def write_wgetrc(folder: Path, environment: Mapping[str, str], bundle: str) -> str:
    """A start-up file for wget, which reads no certificate variable: the user's file plus the
    bundle.

    Later lines win in it, so the bundle must include the user's own `ca_certificate`: its
    certificates are appended to a bundle for wget.
    """
    home = environment.get("HOME", "")
    own = Path(environment.get("WGETRC") or f"{home}/.wgetrc")
    text = _read(own).decode(errors="replace") if own.is_file() else ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.strip().replace("-", "").replace("_", "").lower() == "cacertificate":
            value = value.strip()
            path = Path(f"{home}{value[1:]}" if value.startswith("~/") else value)
            if path.is_file():
                bundle = str(write(folder, [Path(bundle).read_bytes(), _read(path)]))
    path = folder / "wgetrc"
    path.write_text(f"{text}\nca_certificate = {bundle}\n")
    return str(path)


def write(folder: Path, parts: Iterable[bytes]) -> Path:
    """A bundle of these certificates, named after its content, so that equal bundles share a
    file."""
    content = b"\n".join(filter(None, parts))
    path = folder / f"ca-{hashlib.sha256(content).hexdigest()[:16]}.pem"
    path.write_bytes(content)
    return path


def _read(path: Path) -> bytes:
    if path.is_dir():
        return _read_folder(path)
    return first_bytes(path, BUNDLE_BYTES_MAX)


def _read_folder(folder: Path) -> bytes:
    """The certificates in a folder; each has two or more entries, under its name and its hash."""
    if not folder.is_dir():
        return b""
    found: dict[bytes, None] = {}
    size = 0
    for path in sorted(folder.iterdir())[:FOLDER_FILES_MAX]:
        try:
            content = _read(path) if path.is_file() else b""
        except OSError:
            continue  # like OpenSSL: an unreadable file is not trusted
        if b"BEGIN CERTIFICATE" in content and content not in found:
            size += len(content)
            if size > BUNDLE_BYTES_MAX:
                break
            found[content] = None
    return b"\n".join(found)
