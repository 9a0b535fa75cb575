"""`tokentee reprice`, as it is called."""


def test_repricing_is_shown_first_and_then_done(run, own_ledger, tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text('[[price]]\nmodel = "gpt-4.1"\nusd_per_mtok = { output = 9 }\n')
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
