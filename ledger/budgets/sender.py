"""Edge. Sends alerts: to webhooks, commands and the log, with bounded retries.

A webhook's URL is a secret. Errors name the destination by its number and the exception's type,
because the messages of libraries repeat URLs.
"""

import http.client
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

from ledger.budgets.alerts import Alert
from ledger.budgets.budgets import Destination
from ledger.budgets.budgets_file import webhook_of
from ledger.model.errors import LedgerError
from ledger.store.processes.supervision import Log, pause_after

TRIES_MAX = 3
"""For each alert and destination."""
DELIVERY_PAUSE_SECONDS = 1.0
DELIVERY_PAUSE_SECONDS_MAX = 4.0
"""Before the second and the third try."""
WEBHOOK_SECONDS_MAX = 10
COMMAND_SECONDS_MAX = 30

DELIVERY_ERRORS = (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError)
"""Errors of an unreachable destination or a failed command."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the alert must not go to a URL that the operator did not configure."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def send(
    alert: Alert,
    destinations: Sequence[Destination],
    *,
    log: Log,
    pause: Callable[[float], object],
) -> bool:
    """Send an alert; whether at least one destination accepted it. Without destinations it is
    logged."""
    if not destinations:
        log("warn", f"tokentee: {alert.text}")
        return True
    taken = [
        _deliver(alert, destination, number, log, pause)
        for number, destination in enumerate(destinations, 1)
    ]
    return any(taken)


def payload(alert: Alert) -> bytes:
    """The alert as JSON for Slack and compatible services. `&`, `<` and `>` would be markup there,
    and `<!channel>` a mention."""
    text = alert.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return json.dumps({"text": text}).encode()


def _deliver(
    alert: Alert,
    destination: Destination,
    number: int,
    log: Log,
    pause: Callable[[float], object],
) -> bool:
    if destination.log:
        log("warn", f"tokentee: {alert.text}")
        return True
    deliver = _run if destination.command else _post
    kind = "command" if destination.command else "webhook"
    problem = ""
    for attempt in range(TRIES_MAX):
        if attempt:
            pause(
                pause_after(
                    attempt,
                    first_seconds=DELIVERY_PAUSE_SECONDS,
                    seconds_max=DELIVERY_PAUSE_SECONDS_MAX,
                )
            )
        try:
            deliver(alert, destination)
        except LedgerError as error:
            problem = str(error)
            break  # a retry does not help a wrong setting
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code}"
            error.close()
        except DELIVERY_ERRORS as error:
            problem = type(error).__name__
        else:
            return True
    log("error", f"tokentee: alert {number} ({kind}) was not delivered: {problem}")
    return False


def _post(alert: Alert, destination: Destination) -> None:
    request = urllib.request.Request(  # noqa: S310  # webhook_of takes http and https only
        webhook_of(destination),
        data=payload(alert),
        headers={"content-type": "application/json", "user-agent": "tokentee"},
        method="POST",
    )
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(request, timeout=WEBHOOK_SECONDS_MAX):
        pass


def _run(alert: Alert, destination: Destination) -> None:
    assert destination.command is not None
    data = {**alert.data, "threshold": alert.threshold, "text": alert.text}
    subprocess.run(  # noqa: S603  # the operator's own command, without a shell
        destination.command,
        input=json.dumps(data, default=str).encode(),
        timeout=COMMAND_SECONDS_MAX,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
