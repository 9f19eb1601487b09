"""Rules about a sharded model: each speaks where it is true, and is silent elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from hooktrace.analysis.report.findings import RULES, UNIT_RULES
from tests.analysis.report.jobs import facts_of, found_in, gain_ms, one, report_of
from tests.analysis.report.sharded_jobs import ShardedJob, units, write_sharded

SMALL = ShardedJob(units=units(12), bytes=4_800, compute_ms=1.0)

RUNS: dict[str, tuple[ShardedJob, int | None]] = {
    "plain": (ShardedJob(), None),
    "kept": (ShardedJob(again=False), None),
    "hidden": (ShardedJob(hidden=0.999, again=True), None),
    "small": (SMALL, None),
    "few of them small": (ShardedJob(units=units(5), bytes=4_800, compute_ms=1.0), None),
    "small on a slow network": (
        ShardedJob(
            units=units(12), bytes=4_800, bytes_per_second=1e8, latency_ms=0.01, compute_ms=0.2
        ),
        None,
    ),
    "small, one file of three": (SMALL, 1),
    "late": (ShardedJob(late_ms={1: 2.0}, again=False), None),
    "late, clocks unknown": (ShardedJob(late_ms={1: 10.0}, again=False, clocks=False), None),
    "late, one file of three": (ShardedJob(late_ms={1: 2.0}, again=False), 1),
    "hybrid, late": (ShardedJob(ranks=4, replicas=2, late_ms={1: 2.0}, again=False), None),
    "one slow unit": (ShardedJob(slow={"blocks.1": 5.0}, again=False), None),
    "slow steps": (ShardedJob(slow_every=7, again=False), None),
    "stalled": (ShardedJob(late_to=(3,), stall_ms=10_000, again=False), None),
    "costly hook": (ShardedJob(codec_ms=8.0, again=False), None),
    "large error": (ShardedJob(error=0.5, again=False), None),
    "on a device": (ShardedJob(on_device=True, again=False), None),
    "on a device, not all seen": (
        ShardedJob(on_device=True, again=False, unseen=("blocks.1",)),
        None,
    ),
}
"""Each run: its job, and of how many ranks there are files."""

SPEAKS: dict[str, set[str]] = {
    "units_are_exposed": set(RUNS),
    "unit_is_slow": {"one slow unit"},
    "saves_less_than_it_costs": {"costly hook"},
    "ranks_wait": {"late", "late, clocks unknown"},
    "slow_steps_cost": {"slow steps", "stalled"},
    "steps_stalled": {"stalled"},
    "error_is_large": {"large error"},
    "ranks_hung": set(),
}
"""The runs in which each rule speaks; ``ranks_hung`` is the same for buckets, and tested there."""


@pytest.mark.parametrize("run", RUNS)
def test_rules_speak_where_they_are_true_and_nowhere_else(run: str, tmp_path: Path) -> None:
    """What is said of each run, rule by rule; and no sentence speaks of buckets."""
    job, files = RUNS[run]
    write_sharded(job, tmp_path, files=files)
    found = found_in(tmp_path)
    assert {f.rule for f in found} == {rule for rule, runs in SPEAKS.items() if run in runs}
    said = [text for f in found for text in (f.sentence, *f.evidence, f.remedy, f.lossy_remedy)]
    assert [text for text in said if "bucket" in text or "backward pass" in text] == []


def test_each_rule_has_its_runs() -> None:
    """DDP's own rules are none of a sharded model's."""
    assert [rule.__name__ for rule in UNIT_RULES] == list(SPEAKS)
    assert {rule.__name__ for rule in RULES} & set(SPEAKS) == {
        "saves_less_than_it_costs",
        "ranks_wait",
        "slow_steps_cost",
        "steps_stalled",
        "error_is_large",
        "ranks_hung",
    }


def test_what_is_exposed_is_said_by_kind_and_unit(tmp_path: Path) -> None:
    """Of five gathers of 8.2 ms, four again, and five reductions of 8.2 ms: 115 ms."""
    write_sharded(ShardedJob(slow={"blocks.2": 2.0}), tmp_path)
    finding = one(found_in(tmp_path), "waits for its collectives")
    each = 0.2 + 8.0
    assert gain_ms(finding) == pytest.approx(14 * each + 3 * each, rel=1e-3)
    by_kind = next(text for text in finding.evidence if text.startswith("by kind"))
    assert by_kind == (
        "by kind: 49.2 ms all-gather (forward), 49.2 ms reduce-scatter, "
        "41.0 ms all-gather (backward)"
    )
    most = next(text for text in finding.evidence if text.startswith("the largest parts"))
    assert "blocks.2 reduce-scatter (backward) (12 %)" in most
    assert any("on gloo every collective is synchronous" in text for text in finding.evidence)


@pytest.mark.parametrize(
    ("job", "share"),
    [(ShardedJob(hidden=0.5), 50), (ShardedJob(on_device=True), 0)],
    ids=["half of it", "on a device"],
)
def test_what_overlaps_is_not_called_synchronous(
    job: ShardedJob, share: int, tmp_path: Path
) -> None:
    """Of what a device waits for all may have been queued before."""
    write_sharded(job, tmp_path)
    finding = one(found_in(tmp_path), "waits for its collectives")
    assert gain_ms(finding) == pytest.approx(14 * 8.2 * (1 - share / 100), rel=1e-3)
    assert not any("synchronous" in text for text in finding.evidence)
    assert any(f"{share} % of it overlapped with computing" in text for text in finding.evidence)


def test_what_was_not_seen_of_all_is_claimed_of_none(tmp_path: Path) -> None:
    """One reduction's wait is not known: neither is the step's, nor its kind's."""
    write_sharded(ShardedJob(on_device=True, unseen=("blocks.1",)), tmp_path)
    finding = one(found_in(tmp_path), "waits for its collectives")
    assert finding.sentence == (
        "How long training waits for its collectives is not known: where the computing stream came "
        "to wait was not seen for all of them, which are under way for 115 ms of each step."
    )
    assert finding.gain_ns is None
    assert "docs/fsdp.md" in finding.remedy
    facts = facts_of(tmp_path)
    assert [(kind.name, kind.exposed_ns is None) for kind in facts.kinds] == [
        ("all-gather (forward)", False),
        ("all-gather (backward)", False),
        ("reduce-scatter", True),
    ]
    assert {b.title for b in facts.buckets if b.exposed is None} == {
        "blocks.1 reduce-scatter (backward)"
    }
    assert {b.tail_share for b in facts.buckets} == {None}


def test_a_report_says_what_does_not_take_units(tmp_path: Path) -> None:
    """Of hybrid sharding, who is late."""
    write_sharded(ShardedJob(ranks=4, replicas=2), tmp_path)
    report = report_of(tmp_path)
    assert any("who comes late to the units" in text for text in report.missing)
    assert facts_of(tmp_path).wait_unknown is not None
