"""Bundles of certificates: merged with the user's own, never in place of them."""

from pathlib import Path

import certifi
import pytest

from addon.run.command import authorities
from addon.run.command.authorities import read_trust, write_bundles, write_trusted

PEM = b"-----BEGIN CERTIFICATE-----\n%s\n-----END CERTIFICATE-----\n"
OURS = PEM % b"proxy"


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorities, "SYSTEM_BUNDLES", ())


def bundles(folder: Path, environment: dict[str, str], *, everything: bool = False):
    return write_bundles(folder, environment, OURS, everything=everything)


def test_without_any_variable_the_default_roots_stay_trusted(tmp_path: Path):
    written = bundles(tmp_path, {})
    content = Path(written["SSL_CERT_FILE"]).read_bytes()
    assert Path(certifi.where()).read_bytes() in content
    assert content.endswith(OURS)
    assert "GIT_SSL_CAINFO" not in written, "git calls no LLM"


@pytest.mark.parametrize("name", ["NODE_EXTRA_CA_CERTS", "DENO_CERT"])
def test_what_a_client_adds_to_its_roots_is_the_authority_alone(tmp_path: Path, name: str):
    assert Path(bundles(tmp_path, {})[name]).read_bytes() == OURS


@pytest.mark.parametrize("variable", [each.name for each in authorities.VARIABLES])
def test_what_the_user_named_is_kept(tmp_path: Path, variable: str, no_store: None):
    own = tmp_path / "own.pem"
    own.write_bytes(PEM % b"own")
    written = bundles(tmp_path, {variable: str(own)})
    content = Path(written[variable]).read_bytes()
    assert content == PEM % b"own" + b"\n" + OURS, "and nothing that the user had left out"


def test_a_variable_falls_back_as_its_client_does(tmp_path: Path):
    own = tmp_path / "own.pem"
    own.write_bytes(PEM % b"own")
    written = bundles(tmp_path, {"CURL_CA_BUNDLE": str(own)})
    assert PEM % b"own" in Path(written["REQUESTS_CA_BUNDLE"]).read_bytes()
    assert PEM % b"own" not in Path(written["SSL_CERT_FILE"]).read_bytes()


def test_a_folder_and_ssl_cert_dir_are_read(tmp_path: Path):
    folder = tmp_path / "certs"
    folder.mkdir()
    (folder / "a.pem").write_bytes(PEM % b"a")
    (folder / "hash.0").write_bytes(PEM % b"a")
    (folder / "readme").write_bytes(b"no certificate")
    (folder / "gone").symlink_to("nowhere")
    written = bundles(
        tmp_path, {"REQUESTS_CA_BUNDLE": str(folder), "SSL_CERT_DIR": f"{folder}:/no/such"}
    )
    assert Path(written["REQUESTS_CA_BUNDLE"]).read_bytes().count(PEM % b"a") == 1
    assert PEM % b"a" in Path(written["SSL_CERT_FILE"]).read_bytes()


def test_a_folder_is_read_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(authorities, "BUNDLE_BYTES_MAX", 100)
    for name in "abc":
        (tmp_path / name).write_bytes(PEM % name.encode())
    trust = read_trust({"REQUESTS_CA_BUNDLE": str(tmp_path)})
    assert trust.named["REQUESTS_CA_BUNDLE"].count(b"BEGIN") == 1


def test_a_missing_file_gives_one_line_and_the_default(tmp_path: Path):
    missing = tmp_path / "missing.pem"
    trust = read_trust({"SSL_CERT_FILE": str(missing)})
    (line,) = trust.troubles
    assert f"SSL_CERT_FILE names {missing}" in line
    assert "No such file" in line
    written = bundles(tmp_path, {"SSL_CERT_FILE": str(missing)})
    assert trust.roots in Path(written["SSL_CERT_FILE"]).read_bytes()


def test_the_way_out_trusts_all_of_it(tmp_path: Path):
    (tmp_path / "corp.pem").write_bytes(PEM % b"corp")
    trust = read_trust({"NODE_EXTRA_CA_CERTS": str(tmp_path / "corp.pem")})
    assert trust.everything.startswith(Path(certifi.where()).read_bytes())
    assert PEM % b"corp" in trust.everything


def test_everything_sets_what_other_programs_read(tmp_path: Path):
    written = bundles(tmp_path, {}, everything=True)
    assert written.keys() >= {"GIT_SSL_CAINFO", "PIP_CERT", "CARGO_HTTP_CAINFO"}


def test_wget_reads_its_own_file_and_the_bundle(tmp_path: Path):
    (tmp_path / ".wgetrc").write_text("timeout = 7\n")
    written = bundles(tmp_path, {"HOME": str(tmp_path)})
    text = Path(written["WGETRC"]).read_text()
    assert text == f"timeout = 7\n\nca_certificate = {written['SSL_CERT_FILE']}\n"


def test_an_authority_that_wgets_file_names_stays_trusted(tmp_path: Path):
    own = tmp_path / "own.pem"
    own.write_bytes(PEM % b"own")
    (tmp_path / "rc").write_text(f"ca_certificate={own}\n")
    written = bundles(tmp_path, {"WGETRC": str(tmp_path / "rc")})
    last = Path(written["WGETRC"]).read_text().split()[-1]
    assert PEM % b"own" in Path(last).read_bytes()
    assert OURS in Path(last).read_bytes()


def test_what_the_proxy_trusts_is_written_and_troubles_are_returned(tmp_path):
    (tmp_path / "corp.pem").write_bytes(b"CORP")
    environment = {
        "NODE_EXTRA_CA_CERTS": str(tmp_path / "corp.pem"),
        "SSL_CERT_FILE": str(tmp_path / "missing.pem"),
    }
    trust = read_trust(environment)
    path, troubles = write_trusted(tmp_path, environment)
    assert path.read_bytes() == trust.everything
    assert b"CORP" in path.read_bytes()
    assert troubles == trust.troubles
    assert "missing.pem" in troubles[0]
