"""Names in rules and dashboards, read without a parser of YAML, and the dashboards' files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from hooktrace.records.metrics import METRICS

from ..distributed.harness import REPOSITORY

FOLDER = REPOSITORY / "dashboards"
RULES = [FOLDER / "recording.rules.yml", FOLDER / "alerts.yml"]
DASHBOARDS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


def queries(panel: dict[str, Any]) -> list[str]:
    """Return a panel's expressions."""
    return [target["expr"] for target in panel["targets"]]


def series() -> set[str]:
    """Return the name of every series that the table of metrics gives."""
    return {
        metric.prometheus_name + suffix
        for metric in METRICS
        for suffix in _SUFFIXES.get(metric.kind, ("",))
    }


def named(text: str) -> set[str]:
    """Return what look like series of hooktrace, recorded ones included."""
    return set(re.findall(r"[\w:]*hooktrace_[\w:]*", text))


def code(path: Path) -> str:
    """Return a YAML file without comments."""
    return re.sub(r"(^|\s)#.*", "", path.read_text("utf-8"))


def recorded() -> set[str]:
    """Return what the recording rules make."""
    return set(re.findall(r"- record: (\S+)", code(RULES[0])))


def alerts() -> list[str]:
    """Return the names of all alerts."""
    return re.findall(r"- alert: (\w+)", code(RULES[1]))
