"""Whom an exchange is attributed to, beside its key: agent, session, project, branch."""

from datetime import UTC, datetime

from addon.metering.opening import RunRules, open_exchange
from addon.metering.requests.messages import Body, Request
from addon.metering.troubles import Troubles
from ledger.model.exchange import Source

RULES = RunRules(node="n", project="search", git_branch="main")
BODY = b'{"model":"gpt-4.1","messages":[{"role":"user","content":"x"}]}'


def opened(**headers):
    request = Request(
        method="POST",
        scheme="https",
        host="api.openai.com",
        port=443,
        path="/v1/chat/completions",
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        body=Body(BODY),
        began_at=datetime(2026, 11, 2, tzinfo=UTC),
    )
    made = open_exchange(request, RULES, exchange_id="e", source=Source.LIVE, troubles=Troubles())
    assert made is not None
    return made.opened


def test_project_and_branch_of_the_run():
    found = opened(user_agent="curl/8")
    assert (found.project, found.git_branch, found.agent) == ("search", "main", None)


def test_agent_session_and_parent():
    found = opened(user_agent="opencode/1.0", x_session_affinity="s2", x_parent_session_id="s1")
    assert (found.agent, found.session_id, found.parent_session_id) == ("opencode", "s2", "s1")


def test_our_own_header_is_the_session():
    found = opened(user_agent="opencode/1.0", x_session_affinity="s2", x_tokentee_session="nightly")
    assert found.session_id == "nightly"
