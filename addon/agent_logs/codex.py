"""Pure. Codex's logs: `<home>/sessions/YYYY/MM/DD/rollout-*.jsonl`.

Derived from the types of the open-source CLI (github.com/openai/codex: `RolloutItem`,
`TokenUsageInfo`). `session_meta` names session, folder and branch, `turn_context` the model; an
`event_msg` of type `token_count` follows each answer with its usage (`last_token_usage`) and the
session's sum (`total_token_usage`), and with what its answer stated of limits (`rate_limits`). The
same event may be repeated; an unchanged sum shows this.
Input includes cached tokens, output includes reasoning, as in the Responses API. No response id is
kept.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from addon.agent_logs.call import Lines, LoggedAgent, LoggedCall, folder_name, moment, text_or_none
from addon.dialects.counts import lookup
from addon.dialects.openai.responses import RATE_LIMITS, RESPONSES
from addon.metering.quotas import quotas_of_event
from ledger.model.quota import Quota

_PARENT = "source.subagent.thread_spawn.parent_thread_id"


def calls(lines: Lines) -> Iterator[LoggedCall]:
    """The answers of one log, each once."""
    session: dict[str, Any] = {}
    model = None
    tools = 0
    number = 0
    seen: object = None
    for line in lines:
        payload = line.get("payload")
        if not isinstance(payload, dict):
            continue
        match line.get("type"), payload.get("type"):
            case "session_meta", _:
                session = (
                    session or payload
                )  # a forked session repeats its parent's `session_meta` after its own
            case "turn_context", _:
                model = text_or_none(payload.get("model")) or model
            case "response_item", "function_call" | "custom_tool_call" | "local_shell_call":
                tools += 1
            case "event_msg", "token_count":
                last = lookup(payload, "info.last_token_usage")
                total = lookup(payload, "info.total_token_usage")
                at = moment(line.get("timestamp"))
                session_id = text_or_none(session.get("id"))
                if not isinstance(last, dict) or at is None or session_id is None or total == seen:
                    continue
                client = text_or_none(session.get("originator"))
                version = text_or_none(session.get("cli_version"))
                seen = total
                number += 1
                yield LoggedCall(
                    agent=AGENT,
                    at=at,
                    session_id=session_id,
                    parent_session_id=text_or_none(lookup(session, _PARENT))
                    or text_or_none(session.get("forked_from_id")),
                    number=number,
                    model=model,
                    usage=_usage(last),
                    project=folder_name(session.get("cwd")),
                    git_branch=text_or_none(lookup(session, "git.branch")),
                    user_agent=f"{client}/{version}" if client and version else client,
                    tool_calls=tools,
                    quotas=_quotas(payload.get("rate_limits"), at),
                )
                tools = 0


AGENT = LoggedAgent(
    name="codex",
    origin="https://api.openai.com:443",
    provider="openai",
    path="/v1/responses",
    dialect=RESPONSES,
    home_variable="CODEX_HOME",
    home=".codex",
    patterns=("sessions/**/rollout-*.jsonl", "archived_sessions/**/rollout-*.jsonl"),
    calls=calls,
)


def _quotas(limits: object, at: datetime) -> tuple[Quota, ...]:
    """What stands beside the usage of limits (`RateLimitSnapshot`), read as the event of the wire,
    which has other names for the resets."""
    if not isinstance(limits, dict):
        return ()
    windows = {
        slot: {
            **window,
            "reset_at": window.get("resets_at"),
            "reset_after_seconds": window.get("resets_in_seconds"),
        }
        for slot in ("primary", "secondary")
        if isinstance(window := limits.get(slot), dict)
    }
    event = {"type": RATE_LIMITS, "metered_limit_name": limits.get("limit_id")}
    return quotas_of_event(event | {"rate_limits": windows}, arrived_at=at)


def _usage(last: dict[str, Any]) -> dict[str, Any]:
    """The usage with the keys of the Responses API, whose figures these are."""
    usage: dict[str, Any] = {
        name: last[name]
        for name in ("input_tokens", "output_tokens", "total_tokens")
        if name in last
    }
    if "cached_input_tokens" in last:
        usage["input_tokens_details"] = {"cached_tokens": last["cached_input_tokens"]}
    if "reasoning_output_tokens" in last:
        usage["output_tokens_details"] = {"reasoning_tokens": last["reasoning_output_tokens"]}
    return usage
