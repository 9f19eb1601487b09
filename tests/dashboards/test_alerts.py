"""Alerts in a real Prometheus that reads real targets, as far as they need no hours."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.exporters import PrometheusExporter

from ..exporters.processes import Prometheus, prometheus, until
from ..exporters.records_sample import make_anomaly, make_batch, make_layout
from . import rules

pytestmark = pytest.mark.slow


def expressions(asked: Prometheus) -> dict[str, str]:
    """Return each rule's query by its name, as Prometheus read it."""
    groups = asked.ask("rules")["groups"]
    return {rule["name"]: rule["query"] for group in groups for rule in group["rules"]}


def test_alerts_find_their_rank(tmp_path: Path) -> None:
    """Nothing while all is well; then what one rank saw and lost, and that it was killed."""
    log = tmp_path / "prometheus.log"
    ranks = [PrometheusExporter(port=0, file_sd=tmp_path / "targets") for _ in range(2)]
    for number, rank in enumerate(ranks):
        rank.export(replace(make_batch(number), records=(make_layout(),), losses={"late": 0}))
    with prometheus(tmp_path, rules.RULES) as asked:
        until(lambda: asked("hooktrace_run_info"), lambda found: len(found) == 2, log)
        find = expressions(asked)
        quick = ("HooktraceAnomaly", "HooktraceRecordsLost", "HooktraceTargetGone")
        # A scrape that this machine holds up for longer than it may take is a target that is gone.
        until(lambda: [asked(find[name]) for name in quick], [[], [], []].__eq__, log)
        trouble = replace(make_batch(1), records=(make_anomaly(),), losses={"late": 2})
        ranks[1].export(trouble)
        for name, label in (("HooktraceAnomaly", "kind"), ("HooktraceRecordsLost", "reason")):
            (found,) = until(lambda n=name: asked(find[n]), bool, log)  # type: ignore[misc]
            assert found["metric"]["rank"] == "1"
            assert found["metric"][label]
        ranks[1]._endpoint._files.clear()  # a killed process leaves its file
        ranks[1].close()
        gone = [f"127.0.0.1:{ranks[1].port}"]
        until(
            lambda: [one["metric"]["instance"] for one in asked(find["HooktraceTargetGone"])],
            gone.__eq__,
            log,
        )
        ranks[0].close()
