"""What ``compose.yaml`` and the Kubernetes example start finds its files, and each other.

There is no container engine here: what is held is that names on one side are names on the other.
"""

from __future__ import annotations

import json
import re

from . import rules

PROVISIONED = {path.name: rules.code(path) for path in rules.FOLDER.glob("provisioning/*")}
COMPOSE, _, VOLUMES = rules.code(rules.FOLDER / "compose.yaml").partition("\nvolumes:\n")
MOUNTED = {there: here for here, there in re.findall(r"- (\S+?):(/\S+?)(?::ro)?\n", COMPOSE)}
"""Paths in containers, and what stands there: a file, a folder or a volume's name."""


def test_every_file_that_a_service_is_told_of_is_mounted_and_here() -> None:
    """Configurations, rules, targets, Grafana's dashboards; and each volume is declared."""
    (dashboards,) = re.findall(r"path: (\S+)", PROVISIONED["dashboards.yaml"])
    (names,) = re.findall(r"rule_files: \[(.*)\]", PROVISIONED["prometheus.yml"])
    (targets,) = re.findall(r"files: \[(\w+)/\*\.json\]", PROVISIONED["prometheus.yml"])
    assert set(names.split(", ")) == {path.name for path in rules.RULES}
    shown = [path.name for path in rules.FOLDER.glob("*.json")]
    told = re.findall(r"(?:--config(?:\.file)?=|_PATH: )(/[\w./-]+)", COMPOSE)
    assert (len(shown), len(told)) == (4, 3)
    told += [f"/etc/prometheus/{name}" for name in [targets, *names.split(", ")]]
    assert {*told, *(f"{dashboards}/{name}" for name in shown)} <= set(MOUNTED)
    files = [here for here in MOUNTED.values() if here.startswith(".")]
    assert all((rules.FOLDER / file).is_file() for file in files)
    volumes = {here for here in MOUNTED.values() if re.fullmatch(r"\w+", here)}
    assert volumes == set(re.findall(r"\w+", VOLUMES))


def test_services_find_each_other() -> None:
    """Each address that one asks is one on which another listens; all are of loopback."""
    collector = PROVISIONED["collector.yaml"]
    listening = re.findall(r"listen-address=(\S+)", COMPOSE)
    listening += (offers := re.findall(r"endpoint: (\S+)", collector))
    assert re.findall(r"http://(\S+)", PROVISIONED["datasource.yaml"]) == listening[:1]
    assert re.findall(r"targets: \[(.*)\]", PROVISIONED["prometheus.yml"]) == offers[-1:]
    whole = (rules.FOLDER / "provisioning" / "collector.yaml").read_text()
    assert re.findall(r"OTEL_EXPORTER_OTLP_ENDPOINT=http://(\S+)", whole) == offers[1:2]
    assert all(address.startswith("127.0.0.1:") for address in listening)
    assert len(set(listening)) == 4


def test_pipelines_are_of_what_the_collector_has() -> None:
    """Each part is declared, and each that is declared is in a pipeline."""
    parts = dict(re.findall(r"^(\w+):\n((?: .*\n)+)", PROVISIONED["collector.yaml"], re.MULTILINE))
    for kind in ("receivers", "processors", "exporters"):
        used = re.findall(rf"{kind}: \[(.*)\]", parts["service"])
        assert len(used) == 2, kind
        assert set(used) == set(re.findall(r"^  (\w+):", parts[kind], re.MULTILINE)), kind


def test_dashboards_ask_the_data_source_that_is_chosen() -> None:
    """By the variable that every dashboard has, whose default is the provisioned one."""
    for path in rules.FOLDER.glob("*.json"):
        dashboard = json.loads(path.read_text())
        names = [v["name"] for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
        asked = {panel["datasource"]["uid"] for panel in dashboard["panels"]}
        assert asked == {f"${{{name}}}" for name in names}, path.name


def test_the_pod_monitor_asks_the_ports_of_its_example() -> None:
    """By names that Kubernetes takes for ports."""
    path = rules.FOLDER / "pod-monitor.yaml"
    ports = re.findall(r"- port: (\S+)", rules.code(path))
    assert ports == re.findall(r"# +- \{name: (\S+), containerPort", path.read_text())
    assert all(re.fullmatch(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?", p) for p in ports)
