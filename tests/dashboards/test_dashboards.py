"""The dashboards' files, and what ``compose.yaml`` and the Kubernetes example start around them.

There is no container engine here: what is held is that names on one side are names on the other.
"""

from __future__ import annotations

import re

import pytest

from hooktrace.records.metrics import METRICS

from . import rules

EACH = pytest.mark.parametrize("name", rules.DASHBOARDS)
PROVISIONED = {path.name: rules.code(path) for path in rules.FOLDER.glob("provisioning/*")}
COMPOSE, _, VOLUMES = rules.code(rules.FOLDER / "compose.yaml").partition("\nvolumes:\n")
MOUNTED = {there: here for here, there in re.findall(r"- (\S+?):(/\S+?)(?::ro)?\n", COMPOSE)}
"""Paths in containers, and what stands there: a file, a folder or a volume's name."""

UNDRAWN = {
    "hooktrace_warmup_steps", "hooktrace_join_dummy_steps", "hooktrace_incomplete_steps",
    "hooktrace_gradient_bytes", "hooktrace_wire_bytes", "hooktrace_clock_offset_seconds",
}  # fmt: skip


@EACH
def test_panels_choose_job_and_say_what_misleads(name: str) -> None:
    """Two jobs are never mixed unseen; every description is more than a title."""
    dashboard = rules.DASHBOARDS[name]
    panels = dashboard["panels"]
    assert dashboard["uid"] == name
    assert len({panel["id"] for panel in panels}) == len(panels) > 0
    sources = [v["name"] for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
    assert {panel["datasource"]["uid"] for panel in panels} == {f"${{{one}}}" for one in sources}
    for panel in panels:
        assert len(panel["description"].split()) > 15, panel["title"]
        for query in rules.queries(panel):
            selectors = re.findall(r"\{(.*?)\}", query)
            assert all(one.startswith('job=~"$job"') for one in selectors), query
            assert len(selectors) == len(rules.named(query)) or "by (job" in query


def test_every_metric_that_is_about_a_job_is_drawn() -> None:
    """But for those that say why a step has no timings; no panel needs a recording rule."""
    shown = rules.named("".join(path.read_text() for path in rules.FOLDER.glob("*.json")))
    assert not shown - rules.series()
    missing = {
        metric.name
        for metric in METRICS
        if not any(name.startswith(metric.prometheus_name) for name in shown)
    }
    assert missing == UNDRAWN


def test_every_file_that_a_service_is_told_of_is_mounted_and_here() -> None:
    """Configurations, rules, targets, dashboards; volumes are declared; images have versions."""
    (dashboards,) = re.findall(r"path: (\S+)", PROVISIONED["dashboards.yaml"])
    (names,) = re.findall(r"rule_files: \[(.*)\]", PROVISIONED["prometheus.yml"])
    (targets,) = re.findall(r"files: \[(\w+)/\*\.json\]", PROVISIONED["prometheus.yml"])
    assert set(names.split(", ")) == {path.name for path in rules.RULES}
    told = re.findall(r"(?:--config(?:\.file)?=|_PATH: )(/[\w./-]+)", COMPOSE)
    assert len(told) == 3
    told += [f"/etc/prometheus/{name}" for name in [targets, *names.split(", ")]]
    assert {*told, *(f"{dashboards}/{name}.json" for name in rules.DASHBOARDS)} <= set(MOUNTED)
    files = [here for here in MOUNTED.values() if here.startswith(".")]
    assert all((rules.FOLDER / file).is_file() for file in files)
    volumes = {here for here in MOUNTED.values() if re.fullmatch(r"\w+", here)}
    assert volumes == set(re.findall(r"\w+", VOLUMES))
    images = re.findall(r"image: (\S+)", COMPOSE)
    assert len([one for one in images if re.search(r":v?\d+\.\d+\.\d+$", one)]) == len(images) == 3


def test_services_find_each_other() -> None:
    """Each address that one asks is one on which another listens; all are of loopback."""
    listening = re.findall(r"listen-address=(\S+)", COMPOSE)
    listening += (offers := re.findall(r"endpoint: (\S+)", PROVISIONED["collector.yaml"]))
    assert re.findall(r"http://(\S+)", PROVISIONED["datasource.yaml"]) == listening[:1]
    assert re.findall(r"targets: \[(.*)\]", PROVISIONED["prometheus.yml"]) == offers[-1:]
    assert all(address.startswith("127.0.0.1:") for address in listening)
    assert len(set(listening)) == 4
    ports = re.findall(r"- port: (\S+)", rules.code(pod := rules.FOLDER / "pod-monitor.yaml"))
    assert ports == re.findall(r"# +- \{name: (\S+), containerPort", pod.read_text())
