"""Pure. Path templates: how the path of a request must end, matched in time linear in its length.

    /chat/completions                    these segments, after any prefix
    /threads/{}/runs                     `{}` is one segment of any text
    /responses/resp_{}                   a segment with this prefix
    /models/{model}:generateContent      `{model}` is everything between, slashes included
    /ai/run/{model}                      everything to the end

A path longer than `PATH_LENGTH_MAX` matches nothing. A search costs one dictionary look-up by the
path's last word, then one comparison for each of the few templates that end in this word.
"""

import re
from dataclasses import dataclass

PATH_LENGTH_MAX = 2_048
"""Characters. The longest LLM paths name a Bedrock ARN and are under 300."""
_MODEL = "{model}"
_ANY = "{}"


@dataclass(frozen=True, slots=True)
class Template:
    """One parsed template."""

    last_word: str
    """The last word of a fitting path; empty for any word."""
    head: str
    """The required text before `{model}`; empty for a template without one."""
    tail: str
    """The required end of the path, or, without `{model}`, a pattern for its last segments."""
    segments: int
    pattern: re.Pattern[str] | None

    def find(self, path: str) -> str | None:
        """The text at `{model}`, still escaped; empty for a template without one. None: the path
        does not fit. `path` has no query and no slash at its end."""
        if self.pattern is not None:
            before = path.rsplit("/", self.segments)[0]
            return "" if self.pattern.fullmatch(path, len(before)) else None
        start = path.find(self.head)
        if start < 0 or not path.endswith(self.tail):
            return None
        return path[start + len(self.head) : len(path) - len(self.tail)] or None


def template_of(text: str) -> Template:
    """Parse a template."""
    head, separator, tail = text.partition(_MODEL)
    if separator:
        return Template(last_word(tail) if tail else "", head, tail, 0, None)
    parts = [re.escape(part) for part in text.split(_ANY)]
    return Template(
        last_word="" if _ANY in text.rpartition("/")[2] else last_word(text),
        head="",
        tail=text,
        segments=text.count("/"),
        pattern=re.compile("[^/]+".join(parts)),
    )


def last_word(path: str) -> str:
    """The last word of a path: its last segment, or the part of it after a colon."""
    return path.rpartition("/")[2].rpartition(":")[2]
