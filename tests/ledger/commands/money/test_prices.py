"""`tokentee prices`, as it is called."""


def test_a_price_file_is_checked(run, tmp_path):
    path = tmp_path / "prices.toml"
    path.write_text('[[price]]\nmodel = "x"\nfree = true\n')
    result = run("prices", "check", str(path))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{path}: 1 price, 0 gateways; sha256:")
    path.write_text('litellm = "none.json"\n[[price]]\nmodle = "x"\n')
    result = run("prices", "check", str(path))
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 2
    assert "line 3: price 1: modle: unknown" in result.stderr


def test_a_price_is_shown_with_its_source(run):
    result = run("prices", "show", "o3", "--at", "2025-06-09")
    lines = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    assert lines["output"][1] == "40"
    assert "openai/o3" in result.stdout
    result = run("prices", "show", "gpt-5", "--host", "api.openai.com", "--tier", "scale")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "service_tier 'scale': no price for it is known" in result.stderr
