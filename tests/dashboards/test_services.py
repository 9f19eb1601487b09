"""What ``compose.yaml`` and the Kubernetes example start finds its files, and each other.

There is no container engine here: what is held is that names on one side are names on the other.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from . import rules, yaml

PROVISIONED = rules.FOLDER / "provisioning"
SERVICES: dict[str, Any] = yaml.read(rules.FOLDER / "compose.yaml")["services"]


def mounts(service: str) -> dict[str, str]:
    """Return what stands where in a container: path there to path here, or a volume's name."""
    texts = [text.removesuffix(":ro") for text in SERVICES[service]["volumes"]]
    pairs = (text.rsplit(":", 1) for text in texts)
    return {inside: outside for outside, inside in pairs}


def option(service: str, name: str) -> str:
    (found,) = [
        text.removeprefix(name) for text in SERVICES[service]["command"] if text.startswith(name)
    ]
    return found


def test_every_file_that_a_service_is_told_of_is_mounted() -> None:
    """Configurations, rules, targets, and Grafana's dashboards."""
    assert option("prometheus", "--config.file=") in mounts("prometheus")
    assert option("collector", "--config=") in mounts("collector")
    configured = yaml.read(PROVISIONED / "prometheus.yml")
    assert set(configured["rule_files"]) == {path.name for path in rules.RULES}
    home = PurePosixPath("/etc/prometheus")
    assert {str(home / name) for name in configured["rule_files"]} <= set(mounts("prometheus"))
    (files,) = configured["scrape_configs"][0]["file_sd_configs"][0]["files"]
    assert mounts("prometheus")[str((home / files).parent)] == "${TARGETS:-../runs/targets}"
    (provider,) = yaml.read(PROVISIONED / "dashboards.yaml")["providers"]
    folder = PurePosixPath(provider["options"]["path"])
    shown = {str(folder / path.name) for path in rules.FOLDER.glob("*.json")}
    assert len(shown) == 4
    assert shown <= set(mounts("grafana"))
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in shown


def test_volumes_are_declared() -> None:
    """And none is that no service uses; files that are mounted are here."""
    sources = {source for service in SERVICES for source in mounts(service).values()}
    files = {source for source in sources if source.startswith(".")}
    assert all((rules.FOLDER / file).is_file() for file in files)
    volumes = {source for source in sources if re.fullmatch(r"\w+", source)}
    assert volumes == set(yaml.read(rules.FOLDER / "compose.yaml")["volumes"])


def test_services_find_each_other() -> None:
    """Each address that one asks is one on which another listens; all are of loopback."""
    listening = option("prometheus", "--web.listen-address=")
    (source,) = yaml.read(PROVISIONED / "datasource.yaml")["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", f"http://{listening}")
    collector = yaml.read(PROVISIONED / "collector.yaml")
    scraped = yaml.read(PROVISIONED / "prometheus.yml")["scrape_configs"][1]
    offered = collector["exporters"]["prometheus"]["endpoint"]
    assert scraped["static_configs"][0]["targets"] == [offered]
    protocols = collector["receivers"]["otlp"]["protocols"].values()
    addresses = [listening, offered, *(protocol["endpoint"] for protocol in protocols)]
    assert all(address.startswith("127.0.0.1:") for address in addresses)
    assert len(set(addresses)) == 4
    asked = re.findall(r"OTEL_EXPORTER_OTLP_ENDPOINT=http://(\S+)", _comments("collector.yaml"))
    assert asked == [collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"]]


def test_pipelines_are_of_what_the_collector_has() -> None:
    """Each part is declared, and each that is declared is in a pipeline."""
    collector = yaml.read(PROVISIONED / "collector.yaml")
    pipelines = collector["service"]["pipelines"]
    assert set(pipelines) == {"traces", "metrics"}
    for kind in ("receivers", "processors", "exporters"):
        used = {name for pipeline in pipelines.values() for name in pipeline[kind]}
        assert used == set(collector[kind]), kind


def test_dashboards_ask_the_data_source_that_is_chosen() -> None:
    """By the variable that every dashboard has, whose default is the provisioned one."""
    for path in rules.FOLDER.glob("*.json"):
        dashboard = json.loads(path.read_text())
        names = [v["name"] for v in dashboard["templating"]["list"] if v["type"] == "datasource"]
        asked = {panel["datasource"]["uid"] for panel in dashboard["panels"]}
        assert asked == {f"${{{name}}}" for name in names}, path.name


def test_the_pod_monitor_has_what_its_definition_requires() -> None:
    """``selector``, and endpoints by names that Kubernetes takes for ports, as the example's."""
    path = rules.FOLDER / "pod-monitor.yaml"
    found = yaml.read(path)
    assert (found["apiVersion"], found["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert found["metadata"]["name"]
    assert found["spec"]["selector"]["matchLabels"]
    ports = [endpoint["port"] for endpoint in found["spec"]["podMetricsEndpoints"]]
    assert ports == re.findall(r"# +- \{name: (\S+), containerPort", path.read_text())
    assert all(re.fullmatch(r"(?=.*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?", p) for p in ports)
    assert re.fullmatch(r"[a-z0-9.-]{1,253}/[\w.-]{1,63}", found["spec"]["jobLabel"])


def _comments(name: str) -> str:
    lines = (PROVISIONED / name).read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith("#"))
