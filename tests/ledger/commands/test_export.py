"""`tokentee export`, as it is called."""


def test_an_export_tells_of_its_files(run, tmp_path):
    result = run("export", str(tmp_path / "out"), "--what", "focus", "-f", "csv")
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        f"{tmp_path}/out/day=2026-11-02/focus.csv: 10 rows",
        "10 rows in all",
        "left out for want of a price: 3 lines; FOCUS knows no unknown cost",
    ]
    result = run("export", str(tmp_path / "out"), "--until", "2020-01-01")
    assert result.stderr == "nothing to export in this period\n"
