"""The error of a sharded model's hooks, on real ranks: true numbers, and training as without."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.distributed import unit_probe_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.sharded_scenarios import STEPS

pytestmark = pytest.mark.slow

UNITS = ["<root>", "blocks.0", "blocks.1", "blocks.2"]
WORST = {"fp16": 1e-2, "bf16": 5e-2, "8 bit": 5e-2, "fp8": 0.1, "both": 0.1}
"""More than a format rounds by, and what error feedback adds, in bfloat16 as well."""


@pytest.mark.parametrize("scope", ["global", "local"])
def test_training_is_the_same_with_probes(world: Ranks, scope: str) -> None:
    """Bit for bit after each step; each hooked call has an error from the second step on."""
    ways = unit_probe_scenarios.WAYS if world.count == 2 else unit_probe_scenarios.PLAIN_WAYS
    for rank, facts in enumerate(world.read(unit_probe_scenarios.all_hooks)):
        for name, setup in ways:
            check_probed(rank, facts[f"{name}, {setup}, {scope}"], name, setup, scope)


def check_probed(rank: int, found: dict[str, Any], name: str, setup: str, scope: str) -> None:
    """What holds of a hook and a setup."""
    assert found["equal"] == [True] * STEPS
    assert (found["losses"], found["anomalies"], found["warnings"]) == ({}, [], [])
    kinds = {"all_gather"} if "parameters" in name else {"reduce_scatter"}
    kinds |= {"all_gather"} if name == "both" else set()
    for bucket in found["buckets"]:
        hooked = bucket.unit.collective in kinds and bucket.step > 0
        expected = hooked and bucket.unit.turn == 0
        assert bucket.probed == expected
        has_part = rank < 3 or bucket.unit.name != "<root>"  # of five rows
        assert (bucket.error is not None) == (expected and has_part), bucket.unit
        if bucket.error is not None:
            error = bucket.error
            assert error.scope == scope
            # 16 bits hold what was rounded to as many before.
            exact = scope == "local" and "8 bit" not in name and "bfloat16" in setup
            assert exact or error.relative_l2 > 0
            assert error.relative_l2 < next(v for k, v in WORST.items() if k in name)
            feeds = "feedback" in name
            assert (error.residual_l2 is not None) == feeds
            assert bucket.exposed_ns == bucket.duration_ns
            assert "probe" in bucket.stage_totals_ns()
    assert [s.probed for s in found["steps"]] == [False, *[True] * (STEPS - 1)]
    scatters = "reduce_scatter" in kinds and scope == "global"
    assert found["extra"] == (len(UNITS) * (STEPS - 1) if scatters else 0)


def test_each_group_of_replicas_agrees_by_itself(four: Ranks) -> None:
    """Hybrid sharding: two groups scatter, and each compares its own parts."""
    for facts in four.run(unit_probe_scenarios.hybrid):
        assert facts["equal"] == [True] * STEPS
        assert facts["warnings"] == []
        assert sum(b.error is not None for b in facts["buckets"]) == len(UNITS) * (STEPS - 1)


@pytest.mark.parametrize("setup", ["plain", "divided"])
@pytest.mark.parametrize("name", ["fp16", "8 bit", "8 bit, feedback"])
def test_errors_are_those_of_the_rank_s_gradients(four: Ranks, name: str, setup: str) -> None:
    """Of its own elements, without padding, beside what FSDP reduces without a hook."""
    for facts in four.read(unit_probe_scenarios.known_errors):
        found = facts[f"{name}, {setup}"]
        for unit, (relative, norm, numel) in found["expected"].items():
            record = found["records"].get(unit)
            if numel == 0:
                assert record is None
                continue
            assert record.relative_l2 == pytest.approx(relative, rel=1e-3)
            # The root's own parameters are divided by a set factor after that.
            after = 3 if (setup, unit) == ("divided", "<root>") else 1
            assert record.reference_l2 == pytest.approx(norm * after)
            assert math.isclose(record.cosine, 1, abs_tol=1e-3)


def test_units_take_turns(two: Ranks) -> None:
    """One on each probed step, the same on all ranks."""
    first, second = two.run(unit_probe_scenarios.turns)
    assert first == second
    assert first == [
        (2, "blocks.0 reduce-scatter (backward)"),
        (4, "blocks.1 reduce-scatter (backward)"),
        (6, "blocks.2 reduce-scatter (backward)"),
    ]


WHY = {
    "pauses": "recorded no call of a step that others probe",
    "pauses once": "recorded no call of a step that others probe",
    "counts once": "not all ranks came to the same place",
    "closes": "has closed its tracer",
    "fails": "MemoryError: no room",
    "no store": "not all ranks came to the same place",
    "counts": "not all ranks came to the same place",
    "wants none": "not all ranks came to the same place",
}
ENDS = {"closes", "no store", "counts", "wants none"}
"""Where ranks do not come, and do not say so; once, or in two steps."""

PROBED = {"pauses": [1], "closes": [1], "pauses once": [1, 3], "counts once": [1, 3]}
"""The steps whose errors are measured; none of the other ways."""


@pytest.mark.parametrize("way", WHY)
def test_ranks_that_disagree_issue_no_reference(four: Ranks, way: str) -> None:
    """None on any rank, at that step alone where all come to the next; training is as without.

    A warning says why, and one more where the probes are over.
    """
    each = [facts[way] for facts in four.run(unit_probe_scenarios.switched)]
    for rank, facts in enumerate(each):
        assert facts["equal"] == [True] * STEPS
        is_last = rank == len(each) - 1
        if is_last and way in {"closes", "wants none"}:
            assert facts["warnings"] == []
            continue
        own = is_last and way == "no store"
        said = [] if way == "closes" else [f"is not measured at step {2 if PROBED.get(way) else 1}"]
        said += ["is no longer measured"] if way in ENDS and not own else []
        assert len(facts["warnings"]) == len(said)
        for warning, expected in zip(facts["warnings"], said, strict=True):
            assert warning.startswith(f"compression error of net {expected}")
            assert ("no store" if own else WHY[way]) in warning
    assert {facts["extra"] for facts in each} == {len(PROBED.get(way, ())) * len(UNITS)}
    probed = [facts["errors"] for facts in each if facts["errors"]]
    assert all(sorted({step for step, _ in one}) == PROBED[way] for one in probed)
    # The root has five rows, of which a fourth rank has none.
    without = {3: len(PROBED.get(way, ()))}
    expected = [each[0]["extra"] - without.get(rank, 0) for rank in range(len(probed))]
    assert [len(errors) for errors in probed] == expected
    # What a rank that does not record any more has seen is not looked at.
    leaves = way in {"pauses", "closes"}
    assert len(probed) == (len(each) - leaves if way in PROBED else 0)


def test_a_group_is_asked_by_itself(four: Ranks) -> None:
    """Of hybrid sharding the other replica's errors go on while a rank of this one pauses."""
    for rank, facts in enumerate(four.run(unit_probe_scenarios.hybrid_paused)):
        assert facts["equal"] == [True] * STEPS
        expected = [1, 2, 3] if rank < 2 else [1, 3]
        assert sorted({step for step, _ in facts["errors"]}) == expected
        assert len(facts["errors"]) == len(UNITS) * len(expected)
        assert len(facts["warnings"]) == (rank >= 2)


def test_a_hook_that_raises_has_no_reference(two: Ranks) -> None:
    """Its own error comes out; the others do not wait there."""
    for facts in two.run(unit_probe_scenarios.after_a_failure):
        assert "boom" in facts["raised"]
        assert len(facts["warnings"]) == 1
        assert "hook raised" in facts["warnings"][0]


def test_what_cannot_be_tried_alone_is_said(two: Ranks) -> None:
    """In one line; nothing is made up."""
    for facts in two.run(unit_probe_scenarios.stays_local):
        assert facts["errors"] == []
        (said,) = facts["warnings"]
        assert said.startswith("local error of net is no longer measured: TypeError: what a all_to")


def test_what_float16_cannot_hold_is_named_by_unit(two: Ranks) -> None:
    """The parameter, and what a lossless reduce-scatter has there."""
    for anomalies in two.run(unit_probe_scenarios.overflows):
        assert anomalies
        assert any("unit blocks.2 reduce-scatter (backward), step 1" in one for one in anomalies)
        assert any("the hook made NaN or inf of blocks.2" in one for one in anomalies)
        assert all("where the lossless result is" in one for one in anomalies)


def test_training_does_not_go_on_where_nobody_knows_what_others_do(two: Ranks) -> None:
    """The store is gone in the middle of an agreement: a collective may be paired wrongly."""
    for said in two.run(unit_probe_scenarios.without_a_store):
        assert "the job's store did not answer (RuntimeError: Connection reset)" in said
        assert "a probe of net" in said
        assert said.rstrip().endswith("or pass Tracer(error_every=0)")
