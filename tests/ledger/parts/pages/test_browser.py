"""The pages in a real browser: Debian's Chromium, headless. Skipped where there is none.

Screenshots go to `--basetemp`'s folder of each test, to be looked at.
"""

import base64
import csv
import json
import random
import re
import shutil
import zlib
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from msgspec.structs import replace
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from ledger.model.exchange import Outcome
from ledger.parts.pages import html_file
from ledger.store.scope import Scope
from ledger.text.figures import duration_text
from tests.ledger.parts.pages.conftest import NOW
from tests.ledger.parts.pages.serving import TOKEN, pages
from tests.ledger.parts.pages.test_html_file import Elements, hostile_ledger
from tests.ledger.priced import exchange, fill, settled
from tests.ledger.priced import reading as priced_reading
from tests.ledger.written import put, whole
from tests.ledger.written import settled as written

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium and chromedriver are not there"),
]
WAIT_SECONDS_MAX = 60
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


class Browser:
    """A window, and what it complains about."""

    def __init__(self, driver, folder: Path) -> None:
        self.driver = driver
        self._folder = folder

    def size(self, width: int, height: int = 900) -> None:
        self._command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def media(self, **features: str) -> None:
        pairs = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        self._command("Emulation.setEmulatedMedia", features=pairs)

    def shot(self, name: str) -> Path:
        data = self._command("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path = self._folder / f"{name}.png"
        path.write_bytes(base64.b64decode(data["data"]))
        assert path.stat().st_size > 5_000
        return path

    def printed(self) -> bytes:
        """On A4, without background colours."""
        return base64.b64decode(
            self._command("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
        )

    def run(self, script: str):
        return self.driver.execute_script(script)

    def wait(self, script: str):
        return WebDriverWait(self.driver, WAIT_SECONDS_MAX).until(lambda _: self.run(script))

    def complaints(self) -> list[str]:
        """What the console says: scripts that fail, what the policy refuses."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in ("SEVERE", "WARNING")
        ]

    def focused(self) -> str:
        return self.run("return document.activeElement.outerHTML.slice(0, 120)")

    def tab_to(self, text: str) -> None:
        for _ in range(30):
            self.driver.switch_to.active_element.send_keys(Keys.TAB)
            if text in self.focused():
                break

    def _command(self, name: str, **values):
        return self.driver.execute_cdp_cmd(name, values)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    assert CHROMIUM is not None
    options.binary_location = CHROMIUM
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def browser(driver, tmp_path):
    found = Browser(driver, tmp_path)
    found.size(1280)
    found.media()
    yield found
    assert found.complaints() == []


@pytest.fixture
def file(weeks, tmp_path):
    """The page of ten days as a file."""
    path = tmp_path / "report.html"
    html_file.write(html_file.page(weeks, Scope(since=NOW - timedelta(days=10)), now=NOW), path)
    return path.as_uri()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens the page of a whole ledger as a file."""

    def open_page(engine):
        path = tmp_path / "report.html"
        html_file.write(html_file.page(engine, Scope(), now=NOW), path)
        browser.driver.get(path.as_uri())

    return open_page


@pytest.fixture
def site(weeks_url):
    with pages(weeks_url, now=lambda: NOW) as client:
        yield f"http://127.0.0.1:{client.port}"


DRAWN = """
const canvas = document.querySelector('figure[data-chart="spend"] canvas');
const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
const colours = new Set();
for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) colours.add(
  pixels[i] + ',' + pixels[i + 1] + ',' + pixels[i + 2]);
return colours.size;
"""


TICKS = """
const canvas = document.querySelector('figure[data-chart="spend"] canvas');
const chart = window.Chart && window.Chart.getChart(canvas);
return chart && chart.scales.y.ticks.map((tick) => tick.label);
"""


def test_a_file_is_drawn_light_dark_narrow_and_printed(browser, file):
    browser.driver.get(file)
    browser.wait("return window.Chart !== undefined")
    assert browser.run(DRAWN) > 8
    browser.shot("light")
    light = browser.run("return getComputedStyle(document.body).backgroundColor")
    browser.media(prefers_color_scheme="dark")
    browser.wait(f"return getComputedStyle(document.body).backgroundColor !== {json.dumps(light)}")
    browser.shot("dark")
    browser.media()
    browser.size(380)
    assert browser.run("return document.documentElement.scrollWidth") <= 380
    browser.shot("380")
    assert browser.printed().startswith(b"%PDF")


def test_the_answer_is_on_the_first_screen(browser, file):
    browser.size(1280, 800)
    browser.driver.get(file)
    parts = (".hero .amount", ".problems", 'figure[data-chart="spend"] canvas')
    bottom = "return document.querySelector(arguments[0]).getBoundingClientRect().bottom"
    bottoms = [browser.driver.execute_script(bottom, part) for part in parts]
    assert bottoms == sorted(bottoms)
    assert bottoms[-1] < 800


LINES = """
return [...document.querySelectorAll(arguments[0])].filter((each) => each.checkVisibility())
    .map((each) => [each.title || each.textContent, Math.round(each.clientHeight
        / parseFloat(getComputedStyle(each).lineHeight))]);
"""
LONG = "gemini-2.5-flash-lite-preview-09-2025-of-a-team"


@pytest.mark.parametrize("width", [380, 1280])
def test_figures_come_first_and_notices_and_names_have_one_line(
    browser, opened, sqlite_engine, width
):
    for number in range(6):
        one = written(f"e{number}", at=NOW, session_id=LONG, response_model=LONG)
        put(sqlite_engine, whole(one))
    browser.size(width)
    opened(sqlite_engine)
    browser.wait(TICKS)
    browser.driver.find_element(By.CSS_SELECTOR, "button.open").click()
    amount = "return document.querySelector('.hero .amount').getBoundingClientRect().bottom"
    assert browser.run(amount) < 400
    lines = browser.driver.execute_script(LINES, ".problem summary")
    assert lines
    assert {count for _, count in lines} == {1}
    lines = browser.driver.execute_script(LINES, "button.open, .whole, .legend button")
    assert [name for name, _ in lines].count(LONG) >= 4
    assert {count for _, count in lines} == {1}
    browser.driver.find_element(By.CSS_SELECTOR, ".requests summary").click()
    assert browser.run("return document.documentElement.scrollWidth") <= width
    detail = "const one = document.querySelector('tr.detail .scroll'); return one.getBoundingClientRect().right"
    assert browser.run(detail) <= width
    browser.driver.find_element(By.CSS_SELECTOR, ".problem summary").click()
    assert browser.run("return document.querySelector('.problem .advice').checkVisibility()")
    browser.shot(f"names-{width}")


def test_lines_look_in_the_legend_as_in_the_chart(browser, file):
    browser.driver.get(file)
    browser.wait(TICKS)
    browser.run(
        """const figure = document.querySelector('figure[data-chart="spend"]');
        figure.querySelector('script[data-levels]').textContent = JSON.stringify(
            {lines: [['first', 1e6], ['second', 2e6], ['third', 3e6]]});
        figure.dispatchEvent(new Event('change'));"""
    )
    drawn = browser.run(
        """return [...document.querySelectorAll('.legend button:is(.dashed, .dotted)')].map((each) =>
            [each.title, each.className, getComputedStyle(each, '::before').backgroundImage]);"""
    )
    assert [each[:2] for each in drawn] == [
        ["first", "dashed"],
        ["second", "dotted"],
        ["third", "dashed"],
    ]
    assert all("repeating-linear-gradient" in image for *_, image in drawn)
    assert drawn[0][2] != drawn[1][2]


def test_bars_can_be_switched_and_rows_sorted_and_opened_by_keyboard_alone(browser, file):
    browser.driver.get(file)
    browser.tab_to("measure-microusd")
    assert "measure-microusd" in browser.focused()
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert browser.run("return document.querySelector('#measure-tokens').checked")
    outline = browser.run(
        "return getComputedStyle(document.querySelector('#measure-tokens + label')).outlineStyle"
    )
    assert outline == "solid"
    browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert browser.run("return document.querySelector('#word-provider').checked")
    assert "stacked by provider" in browser.run(
        "return document.querySelector('canvas').getAttribute('aria-label')"
    )
    browser.tab_to("Requests</button>")
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    column = "[...document.querySelectorAll('[data-part=ranking-model] tr.row')].map(r => +r.children[2].dataset.v)"
    counts = browser.run(f"return {column}")
    assert counts == sorted(counts, reverse=True)
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.run(f"return {column}") == sorted(counts)
    browser.tab_to('class="open"')
    browser.driver.switch_to.active_element.send_keys(Keys.SPACE)
    assert 'aria-expanded="true"' in browser.focused()
    assert browser.run(
        "return document.activeElement.closest('tr').nextElementSibling.offsetHeight"
    )
    browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    assert "<summary" in browser.focused()
    browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.run("return document.activeElement.parentElement.open")
    browser.shot("keyboard")


FETCHED = "fetch(arguments[0]).then((one) => one.text()).then(arguments[1])"


def test_a_table_is_sorted_by_cost_and_is_there_as_csv(browser, site):
    browser.driver.get(f"{site}/?days=10&token={TOKEN}")
    browser.wait("return !document.querySelector('[aria-busy]')")
    table = "[data-part=ranking-model]"
    names = f"return [...document.querySelectorAll('{table} tr.row')].map((row) => row.firstElementChild.dataset.v)"
    link = browser.driver.find_element(By.CSS_SELECTOR, f"{table} header a")
    text = browser.driver.execute_async_script(FETCHED, link.get_attribute("href"))
    costs = {
        each["model"]: int(each["cost_picousd"] or -1) for each in csv.DictReader(text.split("\n"))
    }
    dearest = sorted(costs.values(), reverse=True)
    assert len(set(dearest)) > 3
    assert [costs[name] for name in browser.run(names)] == dearest
    button = browser.driver.find_element(
        By.XPATH, "//*[@data-part='ranking-model']//button[.='Cost']"
    )
    button.click()
    assert [costs[name] for name in browser.run(names)] == dearest[::-1]
    button.click()
    assert [costs[name] for name in browser.run(names)] == dearest


EMPTY_CARDS = """
const cards = [...document.querySelectorAll('.card')].filter((card) => card.checkVisibility());
const drawn = (canvas) => Chart.getChart(canvas).data.datasets.some((set) => set.data.some(Boolean));
const said = (each) => each.innerText.trim() && each.innerText.trim() !== '–';
const empty = (card) => card.querySelector('canvas')
    ? ![...card.querySelectorAll('canvas')].every(drawn)
    : ![...card.querySelectorAll('dd, td, p')].some(said) || [...card.querySelectorAll('[data-part=speed] dd')].some((each) => !said(each));
return [cards.length, cards.filter(empty).map((card) => card.dataset.part || card.innerText)];
"""
ERROR = {"outcome": Outcome.HTTP_ERROR, "http_status": 429, "response_model": None}


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(lambda each: (replace(each, **ERROR), None, ()), id="errors"),
        pytest.param(lambda each: (each, None, ()), id="no-usage"),
        pytest.param(lambda each: whole(each, ()), id="no-price"),
        pytest.param(whole, id="ordinary"),
    ],
)
def test_no_card_is_empty_whatever_is_not_known(browser, migrated_file, tmp_path, entry):
    url = f"sqlite:///{shutil.copy(migrated_file, tmp_path / 'ledger.sqlite3')}"
    for number in range(6):
        at = NOW - timedelta(hours=number, minutes=5)
        put(url, entry(written(f"e{number}", at=at)))
    with pages(url, now=lambda: NOW) as client:
        for width in (380, 1440):
            browser.size(width)
            browser.driver.get(f"http://127.0.0.1:{client.port}/?days=1&token={TOKEN}")
            browser.wait("return !document.querySelector('[aria-busy]')")
            count, empty = browser.run(EMPTY_CARDS)
            assert count > 6
            assert empty == []
            browser.shot(f"known-{width}")
        browser.driver.get("about:blank")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_print_is_the_same_from_every_window(browser, file, scheme):
    """On A4, with the whole of each chart: no wider than the paper, no smaller than it could be."""
    browser.media(prefers_color_scheme=scheme)
    printed = []
    for width in (380, 768, 1440):
        browser.size(width)
        browser.driver.get(file)
        browser.wait(TICKS)
        streams = re.findall(rb">>\s*stream\r?\n(.*?)endstream", browser.printed(), re.DOTALL)
        drawn = [zlib.decompress(each) for each in streams if each.startswith(b"x")]
        printed.append([each for each in drawn if b" Tf" in each])
    assert len(printed[0]) > 2
    assert printed[0] == printed[1] == printed[2]
    browser.size(717)  # between the margins of A4
    browser.run("dispatchEvent(new Event('beforeprint'))")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    beyond = """return [...document.querySelectorAll('body *')].filter(
        (each) => each.getBoundingClientRect().right > 717 && !each.closest('.visually-hidden')
    ).map((each) => each.outerHTML.slice(0, 80))"""
    assert browser.run(beyond) == []
    assert browser.run("return document.querySelector('canvas').offsetWidth") > 600
    hidden = "return [...document.querySelectorAll('.wide')].filter((each) => !each.closest('[hidden]') && !each.closest('details') && !each.offsetWidth).length"
    assert browser.run(hidden) == 0
    browser.shot("print")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


REACHED = """
const seen = (each) => each.checkVisibility({ visibilityProperty: true }) && each.type !== 'hidden';
const all = [...document.querySelectorAll('a[href], button, summary, input, select')].filter(seen);
const extra = [...document.querySelectorAll('body *')].filter((each) => seen(each)
  && getComputedStyle(each).cursor === 'pointer'
  && !each.closest('a[href], button, summary, label, select'));
window.all = new Set(all.filter((each) => each.type !== 'radio' || each.checked));
return extra.map((each) => each.outerHTML.slice(0, 80));
"""
FOCUSED = """
const one = document.activeElement;
const shown = one.type === 'radio' ? one.nextElementSibling : one;
const style = getComputedStyle(shown);
window.all.delete(one);
return [one.tagName, style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 1
  && getComputedStyle(one.closest('.only') || shown).opacity === '1', one.outerHTML.slice(0, 80)];
"""


@pytest.mark.parametrize("path", ["/?days=10", "/?days=1", "/requests?days=2", "/exchange"])
@pytest.mark.parametrize("width", [380, 1440])
def test_what_can_be_clicked_is_reached_by_tab_and_shows_it(browser, site, path, width):
    browser.size(width)
    browser.driver.get(f"{site}{path}{'&' if '?' in path else '?'}token={TOKEN}")
    if path == "/exchange":
        browser.driver.get(f"{site}/requests?days=2")
        browser.run("document.querySelector('.requests details').open = true")
        browser.driver.find_element(By.CSS_SELECTOR, ".requests a").click()
    browser.wait("return !document.querySelector('[aria-busy]')")
    browser.run(
        "for (const each of document.querySelectorAll('details.figures, details.narrow')) each.open = true"
    )
    assert browser.run(REACHED) == []
    for _ in range(900):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        tag, is_visible, text = browser.run(FOCUSED)
        if tag == "BODY":
            break
        assert is_visible, text
    left = "return [...window.all].map((each) => each.outerHTML.slice(0, 80))"
    assert browser.run(left) == []


@pytest.mark.parametrize("path", ["/?days=10", "/requests?days=10"])
def test_a_print_names_the_conditions_of_the_page(browser, site, path):
    browser.driver.get(f"{site}{path}&only=model%3Dgpt-5&token={TOKEN}")
    browser.wait("return !document.querySelector('[aria-busy]')")
    assert browser.run("return document.querySelector('.top').innerText.split('gpt-5').length") == 2
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert "model = gpt-5" in browser.run("return document.querySelector('.top').innerText")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_bar_and_a_name_of_the_chart_work_by_keyboard(browser, site):
    browser.driver.get(f"{site}/?days=10&token={TOKEN}")
    browser.wait("return !document.querySelector('[aria-busy]')")
    visible = "return Chart.getChart(document.querySelector('canvas')).isDatasetVisible(0)"
    name = browser.driver.find_element(By.CSS_SELECTOR, ".legend button")
    name.send_keys(Keys.ENTER)
    assert browser.run(visible) is False
    assert name.get_attribute("aria-pressed") == "false"
    browser.driver.find_element(By.ID, "measure-tokens").send_keys(Keys.ARROW_RIGHT)
    assert browser.run(visible) is False  # another measure shows what was chosen
    browser.driver.find_element(By.CSS_SELECTOR, "details.figures summary").send_keys(Keys.ENTER)
    rows = browser.driver.find_elements(By.CSS_SELECTOR, "details.figures tbody tr")
    counted = sum(
        int(cell.text.replace(",", "") or 0) for cell in rows[-1].find_elements(By.TAG_NAME, "td")
    )
    rows[-1].find_element(By.TAG_NAME, "a").send_keys(Keys.ENTER)
    browser.wait("return location.pathname === '/requests'")
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".requests summary")) == counted


@pytest.mark.parametrize("width", [380, 768, 1440])
def test_a_page_of_one_request_shows_it_instead_of_empty_charts(browser, weeks, weeks_url, width):
    at = NOW - timedelta(minutes=9)
    put(weeks, whole(written("alone", at=at, session_id="alone")))
    with pages(weeks_url, now=lambda: NOW) as client:
        browser.size(width)
        site = f"http://127.0.0.1:{client.port}"
        browser.driver.get(f"{site}/?days=1&only=session%3Dalone&token={TOKEN}")
        assert browser.run("return document.querySelectorAll('canvas, .waiting').length") == 0
        assert "uncached" in browser.run("return document.querySelector('.requests').innerText")
        # No card is empty for a third of a window: each is filled by its text.
        empty = """return [...document.querySelectorAll('.card')].map((card) => {
            const range = document.createRange(); range.selectNodeContents(card);
            const bottoms = [...range.getClientRects()].map((each) => each.bottom);
            return card.getBoundingClientRect().bottom - Math.max(...bottoms);
        })"""
        assert all(rest < 40 for rest in browser.run(empty))
        browser.shot(f"one-{width}")
        for number in range(6):
            put(weeks, whole(written(f"more{number}", at=at, session_id="alone")))
        browser.run("document.dispatchEvent(new Event('visibilitychange'))")
        browser.wait("return document.querySelector('canvas')")
        browser.driver.get("about:blank")


def test_the_script_spells_figures_as_the_server_does(browser, file):
    told = Elements(Path(url2pathname(urlsplit(file).path)).read_text()).text
    browser.driver.get(file)
    browser.wait(TICKS)
    table = "return document.querySelector('details.figures table').textContent.replace(/\\s+/g, ' ').trim()"
    shown = browser.run(table)
    assert shown.startswith("Dayclaude")
    assert shown.count("$") > 40
    assert "".join(shown.split()) in "".join(told.split())
    draw = random.Random(3)
    times = [int(10 ** draw.uniform(0, 9)) for _ in range(300)] + [
        1250,
        1350,
        12_500,
        150_000,
        7_470_000,
    ]
    ticks = "const chart = Chart.getChart(document.querySelector('figure.small canvas'));"
    ticks += f"return {times}.map((ms) => chart.options.scales.y.ticks.callback(ms));"
    assert browser.run(ticks) == [duration_text(each) for each in times]


def test_hostile_text_runs_nothing(browser, opened, sqlite_engine):
    hostile_ledger(sqlite_engine)
    opened(sqlite_engine)
    browser.wait("return window.Chart !== undefined")
    browser.size(380)
    assert browser.run("return document.images.length") == 0
    for button in browser.driver.find_elements(By.CSS_SELECTOR, "button.open"):
        button.click()
    assert browser.run("return document.documentElement.scrollWidth") <= 380
    browser.shot("hostile")


def test_an_axis_of_small_amounts_tells_its_ticks_apart(browser, opened, sqlite_engine):
    for number in range(6):
        one = settled(exchange("gpt-4.1", id=f"e{number}"))
        fill(sqlite_engine, [(one, priced_reading(input_tokens=90, output_tokens=70))])
    opened(sqlite_engine)
    labels = browser.wait(TICKS)
    assert len(labels) > 2
    assert len(set(labels)) == len(labels), labels


def test_an_empty_ledger(browser, opened, sqlite_engine):
    opened(sqlite_engine)
    assert "No requests in this period" in browser.run("return document.body.innerText")
    browser.shot("empty")


def test_the_live_page_loads_its_parts_and_leads_down_to_one_request(browser, site):
    browser.driver.get(f"{site}/?days=10&token={TOKEN}")
    assert browser.driver.current_url == f"{site}/?days=10"
    browser.wait("return !document.querySelector('[aria-busy]')")
    assert browser.run("return document.querySelector('#word-team') !== null")
    browser.shot("live")
    browser.driver.find_element(By.CSS_SELECTOR, "[data-part=ranking-model] button.open").click()
    browser.wait("return document.querySelector('tr.detail:not([hidden]) .requests summary')")
    browser.driver.find_element(By.CSS_SELECTOR, "tr.detail .requests summary").click()
    browser.driver.find_element(By.CSS_SELECTOR, "tr.detail .requests a").click()
    browser.wait("return location.pathname.startsWith('/exchange/')")
    assert "uncached_input" in browser.run("return document.body.innerText")
    browser.shot("exchange")


def test_the_live_page_takes_in_what_is_new_and_keeps_what_was_done_to_it(browser, site, weeks):
    browser.driver.get(f"{site}/?days=10&token={TOKEN}")
    browser.wait("return document.body.dataset.etag && !document.querySelector('[aria-busy]')")
    browser.driver.find_element(By.CSS_SELECTOR, "[data-part=ranking-key] button.open").click()
    opened = browser.run("return document.querySelector('button[aria-expanded=true]').textContent")
    before = browser.run("return document.querySelector('[data-part=hero] dd').title")
    put(weeks, whole(written("new", at=NOW - timedelta(minutes=1))))
    browser.run("document.dispatchEvent(new Event('visibilitychange'))")
    browser.wait(
        f"return document.querySelector('[data-part=hero] dd').title !== {json.dumps(before)}"
    )
    assert (
        browser.run("return document.querySelector('button[aria-expanded=true]').textContent")
        == opened
    )
    browser.driver.get("about:blank")  # nothing is to ask a server that stops
