"""Edge. Renders the parts of a page to HTML, with Jinja2; reads the templates, the style and the
scripts.

Text from the wire is shown and never executed: templates escape every text (autoescape), control,
invisible and direction characters are shown by their code (`printable`), and the page's content
security policy allows only our own scripts.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from ledger.figures.figures import plus
from ledger.figures.request_list import ChargeLine
from ledger.model.money import usd_text
from ledger.parts.pages.period import Period
from ledger.pricing.price_lines import is_token_line
from ledger.reports.page_parts import PageSection
from ledger.text import figures
from ledger.text.figures import counted, until_text
from ledger.text.period import zone_in
from ledger.text.printable import printable, short_text

HERE = Path(__file__).parent
OPTION = re.compile(r"(--[a-z]+)")
STATIC = HERE / "static"


@cache
def asset(name: str) -> str:
    """The text of `page.css`, `page.js` or `chart.js`: Chart.js, from the package `chartkick`. We
    use `chartkick` for nothing else: it is the maintained package on PyPI that contains it."""
    if name != "chart.js":
        return (STATIC / name).read_text("utf-8")
    folder = resources.files("chartkick") / "django" / "static" / "chartkick"
    return (folder / "Chart.bundle.js").read_text("utf-8")


def render(template: str, values: Mapping[str, Any]) -> str:
    """Render a template with values; a missing name is an error."""
    return _environment().get_template(template).render(values)


def macro(name: str, *arguments: Any) -> str:
    """A macro of `parts.html`, by its name."""
    module = _environment().get_template("parts.html").module
    return str(getattr(module, name)(*arguments))


def section(part: PageSection, values: Mapping[str, Any]) -> Markup:
    """The card that a part adds to a page."""
    text = part.template.read_text("utf-8")
    # The template escapes what comes from the ledger.
    return Markup(_environment().from_string(text).render(values))  # noqa: S704


def inlined() -> dict[str, object]:
    """Style, scripts and a policy that allows only these, for a page of one file."""
    style, charts, page = asset("page.css"), asset("chart.js"), asset("page.js")
    for text in (charts, page):
        assert "</script" not in text.lower()
        assert "<!--" not in text
    assert "</style" not in style.lower()
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; "
        f"script-src {_digest(charts)} {_digest(page)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    return {
        "policy": policy,
        # These files come from this package and hold no text of a ledger.
        "style": Markup(style),  # noqa: S704
        "chart_script": Markup(charts),  # noqa: S704
        "page_script": Markup(page),  # noqa: S704
    }


def command(text: str) -> Markup:
    """A command in which no option is broken."""
    return Markup("").join(
        Markup('<span class="n">{}</span>').format(piece) if place % 2 else escape(piece)
        for place, piece in enumerate(OPTION.split(printable(text)))
    )


def length_of(period: Period) -> str:
    """`31 days`, `5 hours`."""
    hours = round(period.length.total_seconds() / 3600)
    if hours >= 48:
        return counted(round(hours / 24), "day")
    return "hour" if hours == 1 else "day" if hours == 24 else counted(hours, "hour")


def unit_price(line: ChargeLine) -> str:
    """`$3 per 1M`, `$0.01 each`."""
    if line.unit_picousd is None:
        return "no price"
    if is_token_line(line.line):
        return f"${usd_text(line.unit_picousd * 10**6)} per 1M"
    return f"${usd_text(line.unit_picousd)} each"


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "money": _money,
        "exact_money": figures.exact_money,
        "exact_amount": lambda amount: "" if amount is None else f"${usd_text(amount)}",
        "count": figures.count,
        "short": figures.short,
        "percent": figures.percent,
        "ratio": figures.ratio,
        "change": figures.change,
        "plus": plus,
        "duration": figures.duration,
        "requests_text": figures.requests,
        "hundred": lambda share: f"{share * 100:.1f}",
        "command": command,
        "short_text": short_text,
        "length_of": length_of,
        "unit_price": unit_price,
        "moment": _moment,
        "zone": lambda at: str(zone_in(at)),
        "usd": lambda amount: figures.money(None if amount is None else round(amount * 10**12)),
        "until": lambda moment, now: until_text(moment, now) or figures.NONE,
    }
    return made


def _money(picousd: int | None, is_lower_bound: object = False) -> str:  # a filter
    return figures.money(picousd, is_lower_bound=bool(is_lower_bound))


def _shown(value: object) -> object:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _moment(at: datetime) -> str:
    """On the clock of its own zone."""
    at = at.astimezone(zone_in(at))
    return f"{at.day} {at:%b %Y %H:%M:%S}"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
