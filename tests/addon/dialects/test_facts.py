from addon.dialects.facts import Facts, clean


def test_the_first_id_stays_and_another_makes_it_unstable() -> None:
    """BerriAI/litellm#39749: a null id is no id; anomalyco/opencode#42918: nor is an empty one."""
    facts = Facts()
    for response_id in (None, "", 5, "a", "a", "", None):
        facts.record_id(response_id)
    assert (facts.response_id, facts.id_unstable) == ("a", False)
    facts.record_id("b")
    assert (facts.response_id, facts.id_unstable) == ("a", True)


def test_a_long_id_is_one_id() -> None:
    facts = Facts()
    facts.record_id("x" * 999)
    facts.record_id("x" * 999)
    assert (facts.response_id, facts.id_unstable) == ("x" * 256, False)


def test_the_last_model_and_reason_count() -> None:
    facts = Facts()
    for model, reason in (("a", None), ("", ""), ("b", "stop"), (None, None), (3, False)):
        facts.record_model(model)
        facts.record_finish(reason)
    assert (facts.response_model, facts.finish_reason) == ("b", "stop")
    facts.record_finish(2)
    assert facts.finish_reason == "2"


def test_creation_times_in_any_form() -> None:
    for created, expected in (
        (1716825600, 1716825600),
        (1784324967.5, 1784324967),
        ("1715361795", 1715361795),
        ("yesterday", None),
        (0, None),
        (True, None),
        (float("inf"), None),
        (None, None),
    ):
        facts = Facts()
        facts.record_created(created)
        assert facts.created == expected, created


def test_null_usage_is_none() -> None:
    """router-for-me/CLIProxyAPI#3221: `usage: null` on every chunk was read as zeros."""
    facts = Facts()
    facts.record_usage(None, final=True)
    facts.record_usage([], final=True)
    assert facts.usage is None
    assert not facts.usage_final
    facts.record_usage({}, final=True)
    assert facts.usage == {}


def test_clean_text_fits_every_database() -> None:
    assert clean("a\x00b\ud800c", 10) == "a\N{REPLACEMENT CHARACTER}b?c"
    assert clean("abc", 2) == "ab"


def test_an_empty_finish_reason_is_said_by_a_document_alone():
    stream, document = Facts(), Facts(is_document=True)
    for facts in (stream, document):
        facts.record_finish("")
    assert (stream.finish_reason, document.finish_reason) == (None, "")
    document.record_finish("stop")
    document.record_finish("")
    assert document.finish_reason == "stop"
