"""The dashboards' files: made by the script that is there, of metrics that exist."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from dashboards.panels import DASHBOARDS
from dashboards.queries import Dashboard
from hooktrace.records.metrics import METRICS

from ..distributed.harness import REPOSITORY
from . import rules

FILES = {one.uid: rules.FOLDER / f"{one.uid}.json" for one in DASHBOARDS}
EACH = pytest.mark.parametrize("declared", DASHBOARDS, ids=lambda d: d.uid)

READ_BACK = """
import json, sys
from pathlib import Path
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
register_default_plugins()

def lost(mine, theirs, where):
    if isinstance(mine, dict):
        for key in mine:
            yield from lost(mine[key], (theirs or {}).get(key), f"{where}.{key}")
    elif isinstance(mine, list) and len(mine) == len(theirs or ()):
        for number, pair in enumerate(zip(mine, theirs)):
            yield from lost(*pair, f"{where}.{number}")
    elif mine != theirs:
        yield where

for path in map(Path, sys.argv[1:]):
    found = json.loads(path.read_text())
    read = json.loads(JSONEncoder().encode(Dashboard.from_json(found)))
    assert list(lost(found, read, path.name)) == []
"""


def sdk(*arguments: object) -> None:
    """Run Python where Grafana's SDK is."""
    python = os.environ.get("HOOKTRACE_TEST_GRAFANA")
    if python is None:
        pytest.skip("HOOKTRACE_TEST_GRAFANA names no Python with grafana-foundation-sdk")
    subprocess.run(
        [python, *map(str, arguments)], check=True, timeout=120,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


@pytest.mark.slow
def test_files_are_what_the_script_makes(tmp_path: Path) -> None:
    """Where this fails: dashboards/generate.py, whose docstring says how it is run."""
    sdk("-m", "dashboards.generate", tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in rules.FOLDER.glob("*.json")}


@pytest.mark.slow
def test_files_are_of_grafanas_schema() -> None:
    """The SDK's classes, made from that schema, read each file and lose nothing of it."""
    sdk("-c", READ_BACK, *FILES.values())


@EACH
def test_files_have_what_is_declared(declared: Dashboard) -> None:
    """Also where there is no SDK to make them anew: titles, descriptions and queries."""
    found = json.loads(FILES[declared.uid].read_text())
    assert (found["uid"], found["title"]) == (declared.uid, declared.title)
    assert [
        (p["title"], p["description"], [t["expr"] for t in p["targets"]]) for p in found["panels"]
    ] == [(p.title, p.description, [q.expr for q in p.queries]) for p in declared.panels]


@EACH
def test_series_are_of_the_table(declared: Dashboard) -> None:
    """No panel needs a recording rule."""
    assert not rules.named(FILES[declared.uid].read_text()) - rules.series()


@EACH
def test_panels_choose_job_and_say_what_misleads(declared: Dashboard) -> None:
    """Two jobs are never mixed unseen, and every description is more than a title."""
    for panel in declared.panels:
        assert len(panel.description.split()) > 15, panel.title
        for query in panel.queries:
            selectors = re.findall(r"\{(.*?)\}", query.expr)
            assert all(one.startswith('job=~"$job"') for one in selectors), query.expr
            assert len(selectors) == len(rules.named(query.expr)) or "by (job" in query.expr


def test_every_metric_that_is_about_a_job_is_drawn() -> None:
    """But for two that say why a step has no timings."""
    text = "".join(path.read_text() for path in FILES.values())
    shown = rules.named(text)
    missing = {
        metric.name
        for metric in METRICS
        if not any(name.startswith(metric.prometheus_name) for name in shown)
    }
    assert missing == UNDRAWN


UNDRAWN = {
    "hooktrace_warmup_steps", "hooktrace_shadow_steps", "hooktrace_incomplete_steps",
    "hooktrace_gradient_bytes", "hooktrace_wire_bytes", "hooktrace_clock_offset_seconds",
}  # fmt: skip


def test_services_have_versions_and_the_files_that_they_mount() -> None:
    """Every image by version, every file of this folder that is mounted is there."""
    text = rules.code(rules.FOLDER / "compose.yaml")
    images = re.findall(r"image: (\S+)", text)
    assert len(images) == 3
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)
    mounted = re.findall(r"- (\./[\w./-]+):", text)
    assert {f"./{path.name}" for path in [*FILES.values(), *rules.RULES]} <= set(mounted)
    assert not [path for path in mounted if not (rules.FOLDER / path).is_file()]
