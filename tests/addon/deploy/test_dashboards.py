"""The queries of the dashboards, asked of a real ledger; their layout."""

import json
import re

import pytest
import sqlalchemy as sa

from addon.deploy.kinds import DASHBOARDS, GRID_COLUMNS, KINDS, dashboard, panels_of
from addon.telemetry.health import Health
from addon.telemetry.metrics import Metrics
from ledger.model.exchange import Outcome
from ledger.model.reading import UsageSource
from ledger.store import db
from ledger.store.scope import requests
from tests.addon.telemetry.made import one, reading
from tests.ledger.written import NOON, put, settled, whole


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_do_not_overlap_and_fit_the_grid(name):
    cells = set()
    for panel in json.loads(dashboard(name))["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert x < GRID_COLUMNS
            assert (x, place["y"]) not in cells
            cells.add((x, place["y"]))


@pytest.mark.postgres
def test_every_query_runs_on_postgresql(new_postgres):
    engine = db.open_engine(new_postgres())
    failed = settled("b", outcome=Outcome.HTTP_ERROR, http_status=429)
    put(engine, whole(settled("a", session_id="s1", first_token_at=NOON)), whole(failed))
    with engine.connect() as connection:
        for panel in json.loads(dashboard("ledger"))["panels"]:
            query = panel["targets"][0]["rawSql"]
            query = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 > '2000-01-01'", query)
            rows = connection.execute(sa.text(query)).all()
            assert rows, panel["title"]
    engine.dispose()


def test_queries_read_public_views_alone():
    for panel in panels_of("ledger"):
        assert set(re.findall(r"FROM (\w+)", panel.query)) == {"requests"}
        named = set(re.findall(r"sum\((\w+)\)", panel.query))
        assert named <= set(requests.c.keys()) | {"cost_usd", "list_value_usd"}


def test_every_metric_that_is_asked_for_is_exposed():
    metrics = Metrics(
        lambda: Health(
            writer_alive=True,
            oldest_waiting_seconds=1,
            disk_free_bytes=1,
            waiting_to_ship=1,
            shipper_alive=True,
        )
    )
    metrics.observe(one())
    metrics.observe(one(charges=(), degraded="unread"))
    metrics.observe(one(reading(UsageSource.NONE)))
    exposed = set(re.findall(r"^(tokentee_\w+)", metrics.exposition().decode(), re.MULTILINE))
    rules = KINDS["prometheus"]["prometheus/tokentee-rules.yml"]()
    texts = [
        *(panel.query for panel in panels_of("metrics")),
        *re.findall(r"expr: (.*)", rules),
    ]
    asked = {name for text in texts for name in re.findall(r"tokentee_\w+", text)}
    assert len(asked) > 10
    assert asked <= exposed
