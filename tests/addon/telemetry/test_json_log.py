"""Log lines for collectors."""

import io
import json
import logging
import sys

from addon.telemetry.json_log import MESSAGE_LENGTH_MAX, JsonFormatter


def lines_of(log):
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter())
    logger = logging.Logger("tokentee.test")
    logger.addHandler(handler)
    log(logger)
    text = out.getvalue()
    assert text.isascii()
    return [json.loads(line) for line in text.splitlines()]


def test_one_object_a_line_whatever_stands_in_it():
    (line,) = lines_of(lambda logger: logger.warning("a\n\x1b]0;x\x07 %s \u202e", "b"))
    assert line["message"] == "a\n\x1b]0;x\x07 b \u202e"
    assert (line["level"], line["logger"]) == ("warning", "tokentee.test")
    assert line["time"].endswith("+00:00")
    assert "client" not in line


def test_long_lines_are_cut():
    (line,) = lines_of(lambda logger: logger.info("x" * 10_000))
    assert len(line["message"]) == MESSAGE_LENGTH_MAX + 1


def test_the_client_and_the_kind_of_error_are_named():
    def log(logger):
        try:
            int("sk-secret")
        except ValueError:
            logger.error("failed", exc_info=sys.exc_info(), extra={"client": ("10.0.0.1", 5)})

    (line,) = lines_of(log)
    assert (line["client"], line["error"]) == ("10.0.0.1:5", "ValueError")
    assert "sk-secret" not in json.dumps(line)
