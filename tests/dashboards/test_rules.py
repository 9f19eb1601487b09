"""Recording and alerting rules: valid, of series that exist, firing when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ..distributed.harness import REPOSITORY
from ..docs.pages import Page
from . import rules

CASES = Path(__file__).with_name("alerts.test.yml")
LINKS = CASES.with_name("links.test.yml")


def promtool(*arguments: object) -> str:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool; apt-get install prometheus")
    result = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_series_are_of_the_table_or_recorded() -> None:
    """Everything that is recorded is compared by an alert, or kept for people."""
    text = "".join(map(rules.code, rules.RULES))
    assert not rules.named(text) - rules.series() - rules.recorded()


def test_each_alert_has_its_runbook() -> None:
    """A section of its own, to which its link leads where Prometheus knows the page."""
    links = re.findall(r"runbook_url: (.+)", rules.code(rules.RULES[1]))
    page = "{{ with $externalLabels.runbooks }}{{ . }}"
    assert links == [f"'{page}#{name.lower()}{{{{ end }}}}'" for name in rules.alerts()]
    anchors = Page(REPOSITORY / "docs" / "runbooks.md").anchors
    assert {name.lower() for name in rules.alerts()} == {a for a in anchors if "hooktrace" in a}


def test_rules_and_configuration_are_valid(tmp_path: Path) -> None:
    """As Prometheus reads them; that of the composed one, where it finds its rules."""
    assert promtool("check", "rules", *rules.RULES).count("SUCCESS") == 2
    for path in (*rules.RULES, rules.FOLDER / "provisioning" / "prometheus.yml"):
        shutil.copy(path, tmp_path)
    assert "is valid" in promtool("check", "config", tmp_path / "prometheus.yml")


def test_a_runbook_is_a_link_or_nothing() -> None:
    """A URL where Prometheus knows that of the page, and else nothing that looks like one."""
    assert "SUCCESS" in promtool("test", "rules", LINKS)


def test_each_alert_fires_and_is_silent() -> None:
    """On made-up series: on what it is about, and not on what looks like it."""
    text = CASES.read_text()
    for name in rules.alerts():
        cases = re.findall(rf"# --- {name}\b.*?(?=# ---|\Z)", text, re.DOTALL)
        assert len(cases) == 1, name
        assert "value: 1" in cases[0], f"{name} never fires"
        assert re.search(r"exp_(alerts|samples): \[\]", cases[0]), f"{name} is never silent"
    assert "SUCCESS" in promtool("test", "rules", CASES)
