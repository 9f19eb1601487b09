"""In which runs each rule of the report speaks, and that it is silent in all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.report import build_report
from hooktrace.analysis.report.findings import HUNG, RULES
from tests.analysis.jobs import JOBS, RUNS
from tests.analysis.runs import run_in

SPEAKS: dict[str, set[str]] = {
    "communication_is_exposed": set(RUNS),
    "last_bucket_is_large": {"large last"},
    "small_buckets": {"small buckets"},
    "hook_holds_the_thread": {
        "codec",
        "compresses nothing",
        "compresses late",
        "steps an optimizer",
    },
    "saves_less_than_it_costs": {"codec", "compress in the last"},
    "hook_sends_what_it_gets": {
        "large last",
        "queue",
        "one slow bucket",
        "slow collectives",
        "compresses nothing",
    },
    "ranks_wait": {"late", "late, clocks unknown", "late in the last bucket"},
    "slow_steps_cost": {"slow collectives"},
    "error_is_large": {"large error"},
    HUNG: {"hung", "hung for a while", "hung between two steps"},
}
"""The runs in which each rule speaks; in all others of ``RUNS`` it has to be silent."""


@pytest.mark.parametrize("run", RUNS)
def test_rules_speak_where_they_are_true_and_nowhere_else(run: str, tmp_path: Path) -> None:
    """What is said of each run, rule by rule."""
    JOBS[run](tmp_path)
    (model,) = build_report(run_in(tmp_path)).models
    said = {finding.rule for finding in model.findings}
    assert said == {rule for rule, runs in SPEAKS.items() if run in runs}


def test_each_rule_has_its_runs() -> None:
    """It speaks in one at least, and is silent in most; how much is exposed is always said."""
    assert [*(rule.__name__ for rule in RULES), HUNG] == list(SPEAKS)
    for rule, runs in SPEAKS.items():
        assert runs
        assert rule == "communication_is_exposed" or len(runs) < len(RUNS) / 2
