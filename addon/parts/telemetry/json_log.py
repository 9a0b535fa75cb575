"""Edge (logging). Log lines as JSON objects, one a line, for log collectors."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

LOG_MESSAGE_LENGTH_MAX = 4_000
"""Characters of one message; longer ones are cut. Log collectors refuse or split longer lines."""


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": …, "logger": …, "message": …}`; JSON escapes control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        message = record.getMessage()
        if len(message) > LOG_MESSAGE_LENGTH_MAX:
            message = f"{message[:LOG_MESSAGE_LENGTH_MAX]}…"
        line: dict[str, str] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
        }
        client = getattr(record, "client", None)
        if isinstance(client, tuple) and client:
            line["client"] = ":".join(str(part) for part in client[:2])
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line)


def formatter_of(options: Mapping[str, Any]) -> logging.Formatter | None:
    """The formatter that these options of the proxy ask for; None: mitmproxy's own."""
    return JsonFormatter() if options.get("tee_log_format") else None
