"""What a command used, when it has ended."""

from msgspec.structs import replace

from addon.run.summary import show_summary
from ledger.model.reading import UsageSource
from ledger.store.engines import urls
from ledger.sync import spool
from tests.ledger.priced import exchange, fill, reading, settled


def test_a_completed_stream_without_usage_is_counted_and_estimated_beside(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'ledger.sqlite3'}"
    mine = exchange("gpt-4.1", id="a", tags={"run": "r1"})
    silent = replace(reading(usage_source=UsageSource.NONE), estimated_output_tokens=12)
    fill(
        url,
        [
            (settled(mine), reading(input_tokens=10, output_tokens=5)),
            (settled(replace(mine, id="b")), silent),
            (settled(replace(mine, id="c", tags={"run": "r2"})), reading(output_tokens=7)),
        ],
    )
    show_summary(url, "r1")
    shown = capsys.readouterr().err
    lines = shown.splitlines()
    assert lines[1].startswith("This run by model")
    assert lines[2].split()[:3] == ["Model", "Requests", "No"]
    (row,) = [line.split() for line in lines if line.startswith("gpt-4.1")]
    assert row[:4] == ["gpt-4.1", "2", "1", "10"]
    told = " ".join(shown.split())
    assert "without usage, in no total: 1 completed, 0 ended early" in told
    assert "by our estimate ~12 output tokens" in told
    assert "tokentee report --only tag:run=r1" in told


def test_the_bill_of_a_shared_ledger_is_read_from_the_spool(tmp_path, capsys, monkeypatch):
    """The shared database may be down, or not have the rows yet."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    url = "postgresql+psycopg://user@db.example.com/ledger"
    path = spool.path_for(urls.parse_url(url))
    path.parent.mkdir(parents=True)
    mine = exchange("gpt-4.1", id="a", tags={"run": "r1"})
    fill(f"sqlite:///{path}", [(settled(mine), reading(input_tokens=10, output_tokens=5))])
    show_summary(url, "r1")
    shown = capsys.readouterr().err
    assert any(line.split()[:2] == ["gpt-4.1", "1"] for line in shown.splitlines())
    assert "db.example.com" in shown
