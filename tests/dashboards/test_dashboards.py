"""The dashboards' files: of metrics that exist, one job at a time, with descriptions that help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hooktrace.records.metrics import METRICS

from . import panels, rules

EACH = pytest.mark.parametrize("file", panels.FILES, ids=lambda f: f.stem)


@EACH
def test_a_file_is_named_for_its_dashboard(file: Path) -> None:
    """By the uid under which Grafana knows it; panels have ids of their own."""
    found = panels.dashboard(file)
    assert found["uid"] == file.stem
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids)) > 0


@EACH
def test_series_are_of_the_table(file: Path) -> None:
    """No panel needs a recording rule."""
    assert not rules.named(file.read_text()) - rules.series()


@EACH
def test_panels_choose_job_and_say_what_misleads(file: Path) -> None:
    """Two jobs are never mixed unseen, and every description is more than a title."""
    for panel in panels.dashboard(file)["panels"]:
        assert len(panel["description"].split()) > 15, panel["title"]
        for query in panels.queries(panel):
            selectors = re.findall(r"\{(.*?)\}", query)
            assert all(one.startswith('job=~"$job"') for one in selectors), query
            assert len(selectors) == len(rules.named(query)) or "by (job" in query


def test_every_metric_that_is_about_a_job_is_drawn() -> None:
    """But for two that say why a step has no timings."""
    text = "".join(path.read_text() for path in panels.FILES)
    shown = rules.named(text)
    missing = {
        metric.name
        for metric in METRICS
        if not any(name.startswith(metric.prometheus_name) for name in shown)
    }
    assert missing == UNDRAWN


UNDRAWN = {
    "hooktrace_warmup_steps", "hooktrace_join_dummy_steps", "hooktrace_incomplete_steps",
    "hooktrace_gradient_bytes", "hooktrace_wire_bytes", "hooktrace_clock_offset_seconds",
}  # fmt: skip


def test_services_have_versions() -> None:
    """Every image by version."""
    text = rules.code(rules.FOLDER / "compose.yaml")
    images = re.findall(r"image: (\S+)", text)
    assert len(images) == 3
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)
