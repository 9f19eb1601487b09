"""The dashboards as Grafana reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import rules

FILES = sorted(rules.FOLDER.glob("*.json"))


def dashboard(file: Path) -> dict[str, Any]:
    """Return what a file holds."""
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def queries(panel: dict[str, Any]) -> list[str]:
    """Return a panel's expressions."""
    return [target["expr"] for target in panel["targets"]]
