"""`tokentee prices` and `reprice`, as they are called; newer price lists: read as data, shown first,
installed and rolled back."""

import hashlib
import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ledger.model.errors import LedgerError
from ledger.pricing import snapshots
from ledger.pricing.prices import PriceBook
from ledger.pricing.snapshots import Snapshots
from tests.ledger.priced import NOVEMBER as NOW
from tests.ledger.priced import amounts, cost, exchange, fill, reading, settled
from tests.ledger.pricing.test_snapshots import LITELLM


def test_a_price_file_is_checked(run, text_file):
    path = text_file("prices.toml", '[[price]]\nmodel = "x"\nfree = true\n')
    result = run("prices", "check", str(path))
    assert result.stdout.startswith(f"{path}: 1 price, 0 gateways; sha256:")
    path.write_text('litellm = "none.json"\n[[price]]\nmodle = "x"\n')
    result = run("prices", "check", str(path), exits=1)
    assert len(result.stderr.splitlines()) == 2
    assert "line 3: price 1: modle: unknown" in result.stderr


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("gpt5", "did you mean gpt-5, "),
        ("sonnet", "claude-sonnet-"),
        ("claude-opus-45", "claude-opus-4-5"),
    ],
)
def test_a_model_without_a_price_has_near_names_that_have_one(run, word, near):
    said = run("prices", "show", word, exits=1).stderr
    assert near in said
    names = said.partition("did you mean ")[2].strip().rstrip("?").split(", ")
    assert 1 <= len(names) <= 3
    for name in names:
        assert run("prices", "show", name).stdout
    assert "did you mean" not in run("prices", "show", "zzzqqq", exits=1).stderr


def test_a_price_is_shown_with_its_source(run):
    result = run("prices", "show", "o3", "--at", "2025-06-09")
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert lines["output"][1] == "40"
    assert "openai/o3" in result.stdout
    result = run("prices", "show", "gpt-5", "--host", "api.openai.com", "--tier", "scale", exits=1)
    assert result.stdout == ""
    assert "service_tier 'scale': no price for it is known" in result.stderr


def test_repricing_is_shown_first_and_then_done(run, own_ledger, text_file):
    prices = text_file(
        "prices.toml", '[[price]]\nmodel = "gpt-4.1"\nusd_per_mtok = { output = 9 }\n'
    )
    with_prices = ["reprice", "--prices", str(prices)]
    result = run(*with_prices, "--dry-run", url=own_ledger)
    assert "$0.000005" in result.stdout
    assert result.stderr == "nothing was written\n"
    result = run(*with_prices, "--reason", "contract 7", url=own_ledger)
    assert result.stderr.startswith("added: 1 charge;")
    assert "contract 7" in " ".join(run("show", "e1", url=own_ledger).stdout.split())
    assert "Superseded, in no total:" in run("show", "e1", url=own_ledger).stdout
    result = run(*with_prices, url=own_ledger)
    assert (result.stdout, result.stderr) == (
        "",
        "nothing changes: every line has the price it would get today\n",
    )


NEW_MODELS = """
[[price]]
model = "gpt-100"
usd_per_mtok = { uncached_input = 3 }
"""


def test_repricing_takes_no_price_away_unless_that_is_accepted(
    run, tmp_path, text_file, monkeypatch
):
    """Prices of a file that is not named any more: no list has them. One in the settings folder
    counts, like the names and budgets there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    fill(url, [(settled(exchange("gpt-100")), reading(input_tokens=10))])
    named = text_file("own.toml", NEW_MODELS)
    assert run("reprice", "--prices", str(named), url=url).stderr.startswith("added: 1 charge;")

    def cost():
        return json.loads(run("report", "-f", "json", url=url).stdout)["total"]["cost_usd"]

    assert cost() == 0.00003
    for dry_run, exits in ((("--dry-run",), 0), ((), 1)):
        result = run("reprice", "--reason", "x", *dry_run, url=url, exits=exits)
        assert "1 line would lose the booked price: name the price file with" in result.stderr
        assert result.stderr.endswith("nothing was written\n")
    assert cost() == 0.00003
    (tmp_path / "tokentee").mkdir()
    settings = tmp_path / "tokentee" / "prices.toml"
    named.rename(settings)
    assert run("reprice", url=url).stderr.startswith("nothing changes")
    assert "uncached_input" in run("prices", "show", "gpt-100").stdout
    settings.unlink()
    assert (
        run("reprice", "--accept", url=url).stderr.splitlines()[-1].startswith("added: 1 charge;")
    )
    assert cost() is None


def genai(price=1.25, **more):
    """A list in the form of genai-prices' data.json."""
    gpt_5 = {
        "id": "gpt-5",
        "match": {"equals": "gpt-5"},
        "prices": {"input_mtok": price, "output_mtok": 10},
    }
    gpt_99 = {
        "id": "gpt-99",
        "match": {"or": [{"equals": "gpt-99"}, {"regex": "^gpt-99-.*$"}]},
        "prices": [
            {"prices": {"input_mtok": {"base": 3, "tiers": [{"start": 200000, "price": 6}]}}},
            {"constraint": {"start_date": "2030-01-01"}, "prices": {"input_mtok": 4}},
        ],
        "price_variants": [{"when": {"service_tier": "flex"}, "prices": {"input_mtok": 1.5}}],
    }
    openai = {
        "id": "openai",
        "name": "OpenAI",
        "api_pattern": "https://api\\.openai\\.com",
        "extractors": [{"root": "usage", "model_path": "model", "mappings": []}],
        "models": [gpt_5, gpt_99],
    }
    return json.dumps([{**openai, **more}])


@pytest.fixture
def update(run, own_data_directory, text_file, monkeypatch):
    """Writes a list and reads it with the command, at the minute given."""

    def call(text, *options, minute=0, **more):
        monkeypatch.setattr(snapshots, "now_in_seconds", lambda: NOW + timedelta(minutes=minute))
        path = text_file("list.json", text)
        return run("prices", "update", str(path), *options, **more)

    return call


def price_of(model, *, at):
    book = PriceBook(snapshots=Snapshots())
    return book.price(exchange(model, at=at), reading(input_tokens=1_000_000))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (genai(), "genai-prices"),
        (json.dumps(LITELLM), "litellm"),
    ],
)
def test_a_list_of_each_form_prices_what_had_no_price(update, text, kind):
    update(text, "--accept")
    digest = hashlib.sha256(text.encode()).hexdigest()
    (line,) = price_of("gpt-99", at=NOW)
    assert line.amount_picousd == 3_000_000 * 1_000_000 * (2 if kind != "litellm" else 1)
    assert line.price_source.startswith(f"{kind} sha256:{digest[:12]} ")


def test_a_request_is_priced_by_the_list_that_was_in_force_when_it_was_opened(update):
    update(genai(2), minute=1)
    update(genai(3), minute=2)
    found = {
        minute: cost(price_of("gpt-5", at=NOW + timedelta(minutes=minute))) // 10**12
        for minute in (1, 2, 3)
    }
    assert found == {1: 2, 2: 3, 3: 3}
    before = price_of("gpt-5", at=NOW)
    assert before[0].price_source.startswith("genai-prices 0.")
    assert before[0].amount_picousd == 1_250_000 * 1_000_000


def test_a_remembered_price_ends_with_its_list(update):
    update(genai(2), minute=1)
    update(genai(3), minute=2)
    book = PriceBook(snapshots=Snapshots())
    for minute, price in ((1, 2), (2, 3), (1, 2), (0, 1.25)):
        about = exchange("gpt-5", at=NOW + timedelta(minutes=minute))
        unit = amounts(book.price(about, reading(input_tokens=1)))["uncached_input"][1]
        assert unit == price * 1_000_000


def test_new_changed_and_removed_prices_are_shown(update):
    result = update(genai(2))
    assert "new: " in result.stdout
    assert "openai/gpt-99 input_mtok: - -> 3, 6 above 200000" in result.stdout
    assert "openai/gpt-5 input_mtok: 1.25 -> 2" in result.stdout
    assert "removed: " in result.stdout


def test_a_price_that_more_than_doubles_needs_to_be_accepted(update):
    result = update(genai(2.51), exits=1)
    assert "openai/gpt-5 input_mtok: 1.25 -> 2.51  !" in result.stdout
    assert "--accept; the old prices stay in force" in result.stderr
    assert Snapshots().newest() is None
    update(genai(2.5))
    update(genai(1.24), minute=1, exits=1)
    update(genai(1.24), "--accept", minute=2)


def test_a_dry_run_writes_nothing(update, own_data_directory):
    update(genai(2), "--dry-run")
    assert not (own_data_directory / "prices").exists()


def test_a_digest_is_checked(update, own_data_directory):
    digest = hashlib.sha256(genai(2).encode()).hexdigest()
    with pytest.raises(LedgerError, match=f"has the digest {digest}, not 00; nothing changes"):
        update(genai(2), "--sha256", "00")
    update(genai(2), "--sha256", digest.upper())
    folder = own_data_directory / "prices"
    assert {path.name for path in folder.iterdir()} == {"index.json", f"{digest}.json"}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_unpriced_requests_that_it_would_price_are_counted(update, tmp_path):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    known, unknown = exchange("gpt-99"), exchange("gpt-100", id="e2")
    fill(url, [(settled(each), reading(input_tokens=10)) for each in (known, unknown)])
    result = update(genai(2), url=url)
    assert (
        "unpriced requests: 2; with a price in this list: 1 (tokentee reprice --unpriced)"
        in result.stderr
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[]", "is not a price list"),
        ("[" * 100_000, "is not JSON"),
        ('{"a": 1}', "is not a price list: it does not have the form of"),
        (genai(models=[{"id": "x"}]), "is not a price list of genai-prices: .*match"),
        (
            genai(models=[{"id": "x", "match": {"equals": "x"}, "prices": {"input_mtok": "a"}}]),
            "input_mtok",
        ),
        *(
            (genai(price=price), f"input_mtok: {problem}")
            for price, problem in (
                (-1, "-1 is not a price from 0"),
                ({"base": -1, "tiers": []}, "-1 is not a price from 0"),
                (10**9, "1000000000 is not a price"),
                ({"base": 1, "tiers": [{"start": 5, "price": -2}]}, "-2 is not a price"),
                ({"base": 1, "tiers": [{"start": -5, "price": 2}]}, "the steps .-5. do not rise"),
                (
                    {"base": 1, "tiers": [{"start": 5, "price": 2}, {"start": 5, "price": 3}]},
                    "the steps .5, 5. do not rise",
                ),
            )
        ),
        (genai(1.25).replace("1.25", "1e999999"), "input_mtok: 1E.999999 is not a price"),
        *(
            (
                genai(models=[{"id": "x", "match": {"regex": pattern}, "prices": {}}]),
                f"regex .*: {problem}",
            )
            for pattern, problem in (
                ("((", "missing"),
                ("(a+)+$", "a group is repeated"),
                ("(a|aa)+$", "a group is repeated"),
                ("a*a*a{1,}b", "more than 2 repetitions"),
                ("(gpt-[0-9]*-x){2,}", "a group is repeated"),
            )
        ),
    ],
)
def test_a_broken_list_is_one_line_and_the_old_prices_stay(update, text, problem):
    update(genai(2), minute=1)
    before = Snapshots().entries
    with pytest.raises(LedgerError, match=problem) as caught:
        update(text, minute=2)
    assert "\n" not in str(caught.value)
    assert Snapshots().entries == before


def test_a_list_that_was_changed_on_disk_is_refused(update, own_data_directory):
    update(genai(2))
    (path,) = (own_data_directory / "prices").glob("[0-9a-f]*.json")
    path.write_text(genai(1))
    with pytest.raises(
        LedgerError, match="was changed; read the list again with: tokentee prices update"
    ):
        PriceBook.load(None)


@pytest.fixture
def server():
    """Serves `body` on loopback."""

    class Handler(BaseHTTPRequestHandler):
        body = genai(2).encode()

        def do_GET(self):
            if self.path == "/away":
                self.send_response(302)
                self.send_header("location", "http://example.com/list.json")
                self.end_headers()
                return
            self.send_response(404 if self.path == "/none" else 200)
            if self.path == "/cut":
                self.send_header("content-length", str(len(self.body) + 7))
            self.end_headers()
            self.wfile.write(self.body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}"
        made.shutdown()
        thread.join()


@pytest.mark.usefixtures("own_data_directory")
def test_a_list_is_fetched_when_it_is_asked_for(run, server):
    run("prices", "update", f"{server}/list.json")
    assert Snapshots().entries[0].source == f"{server}/list.json"


@pytest.mark.usefixtures("own_data_directory")
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/none", "cannot read .*: Not Found"),
        ("/cut", "cannot read .*: it ended 7 bytes early"),
        ("/away", "cannot read .*: Found; the old prices stay in force"),
    ],
)
def test_what_cannot_be_fetched_changes_nothing(run, server, path, problem):
    with pytest.raises(LedgerError, match=problem):
        run("prices", "update", f"{server}{path}")
    assert not Snapshots().entries


@pytest.mark.usefixtures("own_data_directory")
def test_a_body_without_end_is_not_read_to_the_end(run, server, monkeypatch):
    monkeypatch.setattr(snapshots, "LIST_BYTES_MAX", 100)
    with pytest.raises(LedgerError, match="is larger than"):
        run("prices", "update", f"{server}/list.json")


@pytest.mark.parametrize(
    "url",
    ["http://example.com/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://127.1.evil/x"],
)
def test_other_urls_are_refused(run, url):
    with pytest.raises(LedgerError, match="is not an https:// URL; download it"):
        run("prices", "update", url)
