// Draws the charts, sorts tables, opens their rows; on the live page it also loads the parts that
// take longer and keeps all of it fresh. Without it every figure is still there.
"use strict";
(() => {
  const live = document.body.hasAttribute("data-live");
  const REFRESH_MS = 15000;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const charts = new Map(); // canvas -> {chart, redraw}

  // Figures

  const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
  const dollars = (microusd) => {
    // As `ledger.model.money` spells an amount.
    const size = Math.abs(microusd), places = size >= 995e3 ? 2 : Math.max(4, 8 - String(size).length);
    if (size === 0) return "$0";
    return "$" + (microusd / 1e6).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places, roundingMode: "halfEven" });
  };
  const axisDollars = (microusd) => {
    const usd = microusd / 1e6;
    // SHORT has one decimal: on an axis of cents every tick would be $0.
    return "$" + (usd && Math.abs(usd) < 10 ? usd.toLocaleString("en", { maximumSignificantDigits: 3 }) : SHORT.format(usd));
  };
  // As `ledger.text.figures` spells them.
  const even = (n, options) => n.toLocaleString("en", { roundingMode: "halfEven", useGrouping: false, ...options });
  const twoDigits = (n) => even(n, n < 10 ? { maximumSignificantDigits: 2 } : { maximumFractionDigits: 0 });
  const whole = (n) => Number(even(n, { maximumFractionDigits: 0 }));
  const duration = (ms) => {
    const minutes = whole(ms / 6e4), hours = whole(ms / 36e5);
    if (ms < 1000) return ms + " ms";
    if (ms < 12e4) return twoDigits(ms / 1000) + " s";
    if (minutes < 60) return twoDigits(ms / 6e4) + " min";
    return hours >= 48 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  };
  const UNITS = {
    microusd: [dollars, axisDollars], tokens: [(n) => n.toLocaleString("en"), (n) => SHORT.format(n)],
    requests: [(n) => n.toLocaleString("en"), (n) => SHORT.format(n)],
    ms: [duration, duration], percent: [(n) => Number((n / 100).toFixed(1)) + "%", (n) => n / 100 + "%"],
  };
  const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
  const barLabel = (name) => {
    const [year, month, rest] = name.split("-");
    if (rest === undefined) return MONTHS[month - 1] + " " + year;
    const [day, hour] = rest.split(" ");
    return hour === undefined ? Number(day) + " " + MONTHS[month - 1] : hour + ":00";
  };
  const WEEKDAYS = "Sun Mon Tue Wed Thu Fri Sat".split(" ");
  const barTitle = (name, bar) => {
    const date = new Date(name.slice(0, 10) + (name.length < 10 ? "-01" : "") + "T00:00:00Z");
    const day = WEEKDAYS[date.getUTCDay()] + " " + barLabel(name.slice(0, 10));
    if (bar === "hour") return day + ", " + barLabel(name);
    if (bar === "week") return "week of " + day;
    return bar === "month" ? barLabel(name) : day;
  };

  // Charts

  const DASHED = [6, 4], DOTTED = [2, 3]; // the legend draws the same, in page.css
  const quiet = () => ({
    responsive: true, maintainAspectRatio: false, animation: false,
    interaction: { mode: "index", intersect: false },
    layout: { padding: { top: 4 } },
  });
  const axes = (unit, stacked, labels) => ({
    x: {
      stacked, grid: { display: false }, border: { color: color("--line") },
      ticks: { color: color("--muted"), maxRotation: 0, autoSkipPadding: 14, callback: (_, i) => barLabel(labels[i]) },
    },
    y: {
      stacked, beginAtZero: true, border: { display: false },
      grid: { color: color("--line"), drawTicks: false },
      ticks: { color: color("--muted"), padding: 6, maxTicksLimit: 6, callback: (v) => (Number.isInteger(v) || unit === "microusd" ? UNITS[unit][1](v) : "") },
    },
  });
  const tip = (unit, bar, names) => ({
    backgroundColor: color("--ink"), titleColor: color("--card"), bodyColor: color("--card"), footerColor: color("--card"),
    padding: 10, boxPadding: 4, cornerRadius: 8, usePointStyle: true,
    itemSort: (a, b) => b.raw - a.raw,
    filter: (item) => item.raw !== null && (unit === "ms" || unit === "percent" || item.raw !== 0),
    callbacks: {
      title: (items) => (items.length ? barTitle(names[items[0].dataIndex], bar) : ""),
      label: (item) => " " + item.dataset.label + "  " + UNITS[unit][0](item.raw),
    },
  });
  // Buttons below a chart, which show and hide what they name.
  function fillLegend(canvas, chart) {
    let list = canvas.parentNode.nextElementSibling;
    if (!list || !list.classList.contains("legend")) {
      list = Object.assign(document.createElement("ul"), { className: "legend" });
      canvas.parentNode.after(list);
    }
    const sets = chart.data.datasets;
    while (list.children.length > sets.length) list.lastChild.remove();
    sets.forEach((set, i) => {
      if (!list.children[i]) list.append(document.createElement("li"));
      const item = list.children[i];
      const button = item.firstChild || item.appendChild(Object.assign(document.createElement("button"), { type: "button" }));
      button.textContent = button.title = set.label;
      button.classList.toggle("dashed", set.borderDash === DASHED);
      button.classList.toggle("dotted", set.borderDash === DOTTED);
      button.style.setProperty("--of", set.borderDash ? set.borderColor : set.backgroundColor);
      button.setAttribute("aria-pressed", String(chart.isDatasetVisible(i)));
      button.onclick = () => {
        chart.setDatasetVisibility(i, !chart.isDatasetVisible(i));
        chart.update("none");
        button.setAttribute("aria-pressed", String(chart.isDatasetVisible(i)));
      };
    });
    list.hidden = sets.length < 2 && canvas.closest(".small") !== null;
  }

  function stackConfig(data, measure, levels) {
    const datasets = data.names.map((name, i) => {
      const isRest = data.rest && i === data.names.length - 1;
      const fill = isRest ? color("--rest") : color("--c" + data.colours[i]);
      return { label: name, data: data[measure][i], backgroundColor: fill, borderWidth: 0, maxBarThickness: 40, barPercentage: 0.92, categoryPercentage: 0.92 };
    });
    if (measure === "microusd") levels.forEach(([name, value], i) => datasets.push({
      type: "line", label: name, data: data.bars.map(() => value), stack: "level" + i, pointRadius: 0, pointHoverRadius: 0,
      borderColor: color(i % 2 ? "--muted" : "--ink"), backgroundColor: "transparent", borderWidth: 1.2, borderDash: i % 2 ? DOTTED : DASHED,
    }));
    const tooltip = tip(measure, data.bar, data.bars);
    tooltip.callbacks.footer = (items) => items.length > 1 ? "together  " + UNITS[measure][0](items.reduce((sum, item) => sum + (item.dataset.type === "line" ? 0 : item.raw), 0)) : "";
    return {
      type: "bar", data: { labels: data.bars, datasets },
      options: {
        ...quiet(), scales: axes(measure, true, data.bars), plugins: { legend: { display: false }, tooltip },
        ...(live && {
          onClick: (event, _, chart) => {
            const [bar] = chart.getElementsAtEventForMode(event, "index", { intersect: false }, true);
            if (bar) location.href = listOf(data.bars[bar.index], data.bar);
          },
          onHover: (event, found) => { event.native.target.style.cursor = found.length ? "pointer" : ""; },
        }),
      },
    };
  }
  // The list of a bar's requests, under the conditions of the page. Its times have no offset: the
  // server takes them for times of the page's zone.
  function listOf(name, bar) {
    const begin = new Date(bar === "hour" ? name.replace(" ", "T") + ":00:00Z" : (name.length < 10 ? name + "-01" : name) + "T00:00:00Z");
    const end = new Date(begin);
    if (bar === "month") end.setUTCMonth(end.getUTCMonth() + 1);
    else end.setTime(end.getTime() + { hour: 1, day: 24, week: 7 * 24 }[bar] * 3600e3);
    const words = new URLSearchParams(location.search);
    const asked = new URLSearchParams(words.getAll("only").map((only) => ["only", only]));
    for (const [word, at] of [["since", begin], ["until", end]]) asked.set(word, at.toISOString().slice(0, bar === "hour" ? 19 : 10));
    return "/requests?" + asked;
  }
  // The figures below the chart are those that it shows.
  function fillTable(figure, data, measure) {
    const details = figure.querySelector("details.figures");
    if (!details) return;
    const cell = (tag, text, kind) => Object.assign(document.createElement(tag), { textContent: text, className: kind });
    const row = (...cells) => { const made = document.createElement("tr"); made.append(...cells); return made; };
    const shown = { microusd: "Cost", tokens: "Tokens", requests: "Requests" }[measure];
    details.querySelector("summary").textContent = `${shown} by ${data.bar} and ${data.word}`;
    details.querySelector("thead").replaceChildren(row(cell("th", data.bar[0].toUpperCase() + data.bar.slice(1), ""), ...data.names.map((name) => cell("th", name, "n"))));
    const head = (bar, at) => {
      const made = cell("th", bar, "");
      if (live && data.requests.some((counts) => counts[at])) made.replaceChildren(Object.assign(document.createElement("a"), { href: listOf(bar, data.bar), textContent: bar }));
      return made;
    };
    details.querySelector("tbody").replaceChildren(...data.bars.map((bar, at) => row(head(bar, at), ...data[measure].map((values) => cell("td", values[at] ? UNITS[measure][0](values[at]) : "", "n")))));
  }
  function linesConfig(data) {
    const few = data.bars.length < 3;
    const datasets = data.names.map((name, i) => ({
      label: name, data: data.values[i], borderColor: color(i ? "--c6" : "--c0"), backgroundColor: color(i ? "--c6" : "--c0"),
      borderWidth: 1.8, pointRadius: few ? 3 : 0, pointHoverRadius: 3, tension: 0.25, spanGaps: false,
    }));
    return {
      type: "line", data: { labels: data.bars, datasets },
      options: {
        ...quiet(), scales: axes(data.unit, false, data.bars),
        plugins: { legend: { display: false }, tooltip: tip(data.unit, data.bars[0] && data.bars[0].length > 10 ? "hour" : data.bars[0] && data.bars[0].length < 10 ? "month" : "day", data.bars) },
      },
    };
  }
  function draw(canvas, config) {
    const known = charts.get(canvas);
    const made = config();
    if (known && known.chart.config.type === made.type) {
      const hidden = new Map(known.chart.data.datasets.map((set, i) => [set.label, !known.chart.isDatasetVisible(i)]));
      known.chart.data = made.data;
      known.chart.options = made.options;
      made.data.datasets.forEach((set, i) => known.chart.setDatasetVisibility(i, !hidden.get(set.label)));
      known.chart.update("none");
      known.config = config;
      fillLegend(canvas, known.chart);
      return;
    }
    if (window.Chart === undefined) return;
    charts.set(canvas, { chart: new window.Chart(canvas, made), config });
    fillLegend(canvas, charts.get(canvas).chart);
  }
  function drawCharts(root) {
    if (window.Chart !== undefined) window.Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    for (const figure of root.querySelectorAll("figure[data-chart]")) {
      const canvas = figure.querySelector("canvas");
      if (figure.dataset.chart === "lines") {
        const data = JSON.parse(figure.querySelector("script").textContent);
        draw(canvas, () => linesConfig(data));
      } else {
        drawSpend(figure);
        if (!figure.dataset.wired) {
          figure.dataset.wired = "yes";
          figure.addEventListener("change", () => drawSpend(figure));
        }
      }
    }
  }
  function drawSpend(figure) {
    const chosen = (name) => (figure.querySelector(`[data-choice="${name}"] input:checked`) || {}).value;
    const block = figure.querySelector(`script[data-stack="${chosen("word")}"]`);
    if (!block) return;
    const data = JSON.parse(block.textContent);
    const canvas = figure.querySelector("canvas");
    canvas.setAttribute("aria-label", `Bars: ${chosen("measure") === "microusd" ? "cost" : chosen("measure")} by ${data.bar}, stacked by ${data.word}. The figures stand below.`);
    const levels = JSON.parse(figure.querySelector("script[data-levels]").textContent).lines;
    draw(canvas, () => stackConfig(data, chosen("measure"), levels));
    fillTable(figure, data, chosen("measure"));
  }
  const redraw = () => { for (const [canvas, { config }] of charts) if (canvas.isConnected) draw(canvas, config); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // Print is light whatever the screen is; the canvases take the colours of the print style.
  matchMedia("print").addEventListener("change", redraw);
  // The width of the paper is not known yet: the style fits what is drawn for A4 to any.
  addEventListener("beforeprint", () => {
    redraw();
    for (const [canvas, { chart }] of charts) chart.resize(...(canvas.closest(".small") ? [215, 130] : [680, 200]));
  });
  addEventListener("afterprint", () => { for (const { chart } of charts.values()) chart.resize(); redraw(); });

  // Tables

  function sort(button) {
    const head = button.closest("th");
    const table = head.closest("table");
    const place = [...head.parentNode.children].indexOf(head);
    const isText = button.dataset.sort === "text";
    const up = head.getAttribute("aria-sort") === "descending" || (isText && head.getAttribute("aria-sort") !== "ascending");
    for (const other of head.parentNode.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = table.tBodies[0];
    const value = (row) => row.children[place].dataset.v;
    const rows = [...body.querySelectorAll(":scope > tr.row")].map((row) => [row, row.nextElementSibling]);
    rows.sort(([a], [b]) => {
      if (a.hasAttribute("data-rest") !== b.hasAttribute("data-rest")) return a.hasAttribute("data-rest") ? 1 : -1;
      const order = isText ? value(a).localeCompare(value(b)) : Number(value(a)) - Number(value(b));
      return up ? order : -order;
    });
    for (const [row, detail] of rows) {
      body.append(row);
      if (detail && detail.classList.contains("detail")) body.append(detail);
    }
  }
  async function toggle(button) {
    const detail = document.getElementById(button.getAttribute("aria-controls"));
    const opens = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(opens));
    detail.hidden = !opens;
    const cell = detail.firstElementChild;
    if (opens && cell.dataset.load && !cell.dataset.loaded) {
      cell.dataset.loaded = "yes";
      await load(cell);
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.matches("table.sortable th button")) sort(button);
    else if (button.matches("button.open")) toggle(button);
  });

  // The live page

  async function load(slot) {
    try {
      const answer = await fetch(slot.dataset.load, { headers: slot.dataset.etag ? { "If-None-Match": slot.dataset.etag } : {} });
      if (answer.status === 304) return;
      const text = await answer.text();
      const parsed = new DOMParser().parseFromString(text, "text/html");
      if (!answer.ok && slot.dataset.etag) return;
      slot.dataset.etag = answer.headers.get("ETag") || "";
      keepState(slot, parsed.body);
      takeTeams(slot);
      drawCharts(slot);
    } catch {
      if (!slot.dataset.etag) slot.textContent = "This part could not be loaded; reload the page to try again.";
    } finally {
      slot.removeAttribute("aria-busy");
    }
  }
  // What is new replaces what was, and what the reader did to it stays: open rows, order, choices.
  function keepState(old, fresh) {
    const sorted = [...old.querySelectorAll("table.sortable")].map((table) => {
      const head = table.querySelector("th[aria-sort]");
      return head && [[...head.parentNode.children].indexOf(head), head.getAttribute("aria-sort")];
    });
    const open = [...old.querySelectorAll('button.open[aria-expanded="true"]')].map((button) => button.title + button.textContent);
    const shown = [...old.querySelectorAll("details[open][data-kind]")].map((one) => one.dataset.kind);
    const focused = old.contains(document.activeElement) ? document.activeElement.textContent + document.activeElement.tagName : null;
    old.replaceChildren(...fresh.childNodes);
    [...old.querySelectorAll("table.sortable")].forEach((table, i) => {
      if (!sorted[i]) return;
      const head = table.querySelectorAll("thead th")[sorted[i][0]];
      if (!head) return;
      for (let tries = 0; tries < 2 && head.getAttribute("aria-sort") !== sorted[i][1]; tries += 1) sort(head.querySelector("button"));
    });
    for (const button of old.querySelectorAll("button.open")) if (open.includes(button.title + button.textContent)) toggle(button);
    for (const one of old.querySelectorAll("details[data-kind]")) one.open = shown.includes(one.dataset.kind);
    if (focused) for (const one of old.querySelectorAll("button, a, summary")) if (one.textContent + one.tagName === focused) { one.focus(); break; }
  }
  // Teams are added up last; their bars join the chart's choices when they come.
  function takeTeams(slot) {
    const block = slot.querySelector('script[data-stack="team"]');
    const figure = document.querySelector('figure[data-chart="spend"]');
    if (!block || !figure) return;
    const known = figure.querySelector('script[data-stack="team"]');
    if (known) known.replaceWith(block);
    else {
      figure.append(block);
      const choices = figure.querySelector('[data-choice="word"]');
      const input = Object.assign(document.createElement("input"), { type: "radio", name: "word", id: "word-team", value: "team" });
      const label = Object.assign(document.createElement("label"), { htmlFor: "word-team", textContent: "Team" });
      choices.append(input, label);
    }
    drawSpend(figure);
  }
  async function refresh() {
    if (document.hidden) return;
    try {
      const answer = await fetch(location.href, { headers: document.body.dataset.etag ? { "If-None-Match": document.body.dataset.etag } : {} });
      if (!answer.ok) return; // 304: nothing new
      const first = !document.body.dataset.etag;
      document.body.dataset.etag = answer.headers.get("ETag") || "";
      if (first) return; // what it describes is on the screen
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = (root) => [...root.querySelectorAll("main > [data-part], main > figure")].map((part) => part.dataset.part).join();
      if (parts(document) !== parts(parsed)) return location.reload(); // the first request, or no longer a few
      for (const old of document.querySelectorAll("main [data-part], .top [data-part]")) {
        const fresh = parsed.querySelector(`[data-part="${old.dataset.part}"]`);
        if (fresh && !old.dataset.load && !old.closest("[data-load]")) keepState(old, fresh);
      }
      const figure = document.querySelector('figure[data-chart="spend"]');
      for (const block of parsed.querySelectorAll('figure[data-chart="spend"] > script')) {
        const known = figure && figure.querySelector(`script[data-stack="${block.dataset.stack}"]`);
        if (known) known.textContent = block.textContent;
      }
      if (figure) drawSpend(figure);
      for (const slot of document.querySelectorAll("main [data-load]:not(td)")) await load(slot);
    } catch { /* the server is away: what is shown stays */ }
  }

  drawCharts(document);
  if (live) {
    (async () => { for (const slot of document.querySelectorAll("main [data-load]:not(td)")) await load(slot); })();
    refresh();
    setInterval(refresh, REFRESH_MS);
    document.addEventListener("visibilitychange", refresh);
  }
})();
