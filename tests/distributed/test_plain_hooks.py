"""Stages and bytes of hooks that are not staged, on real gloo ranks (torch >= 2.14).

Their collectives are seen from the process groups; a staged hook that does the same is the oracle.
"""

from __future__ import annotations

import pytest

from hooktrace.staging.group_hooks import UNSIZED
from tests.distributed import plain_scenarios
from tests.distributed.harness import Ranks
from tests.versions import FINALISES_BY_HAND, HOOKS_GROUPS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HOOKS_GROUPS, reason="this torch's process groups take no hooks"),
]

BYTES = 4 * (32 * 32 + 32)


@pytest.mark.parametrize("name", plain_scenarios.TWINS)
def test_a_plain_hook_shows_what_its_staged_twin_shows(two: Ranks, name: str) -> None:
    """Stages in their order, collectives, bytes, dtypes and bus bytes; and the gradients stay."""
    for found in two.run(plain_scenarios.twins):
        plain, twin, same_bits = found[name]
        assert plain == twin
        assert all(wire_bytes for *_, wire_bytes, _ in plain)
        assert same_bits


def test_bytes_are_known_where_an_end_is_not(two: Ranks) -> None:
    """One of gloo's reduce-scatter is not, so the stages are those that are seen from outside."""
    for told in two.run(plain_scenarios.without_an_end):
        for stages, wires, wire_bytes, _ in told:
            assert stages == ("hook", "pending")
            assert wires == []
            assert wire_bytes == BYTES + BYTES // 2


def test_collectives_under_way_at_once_are_one_wire_stage(two: Ranks) -> None:
    """With the bytes of both, so that a bucket's stages never overlap."""
    for told in two.run(plain_scenarios.at_once):
        for stages, wires, wire_bytes, _ in told:
            assert stages[0] == "compress"
            assert stages[-1] == "decompress"
            assert sum(size or 0 for _, size, _ in wires) == wire_bytes == BYTES


def test_the_scripts_own_collectives_are_not_a_hooks(two: Ranks) -> None:
    """Those in the backward pass beside the hooks, after it, and another model's in the group."""
    for told, of_other in two.run(plain_scenarios.among_others):
        assert of_other == {6 * BYTES}
        for _, wires, wire_bytes, _ in told:
            assert wires == [("all_reduce", BYTES // 2, "float16")]
            assert wire_bytes == BYTES // 2


def test_hooks_go_with_the_last_model(two: Ranks) -> None:
    """They hold no group, and leave those of others in the same registry alone."""
    for facts in two.run(plain_scenarios.taken_off):
        assert facts["watched"] >= 2
        assert facts == {"watched": facts["watched"], "left": 0, "others": True, "alive": False}


def test_a_clock_that_fails_in_a_groups_hook_costs_the_times_alone(two: Ranks) -> None:
    """What is raised in one would break the reducer for good."""
    for same_bits, lost in two.run(plain_scenarios.failing_clock):
        assert same_bits
        assert lost > 0


def test_a_sparse_gradient_has_no_size(two: Ranks) -> None:
    """So what such a bucket sends is unknown, and the step says so."""
    for wire_bytes, why in two.run(plain_scenarios.sparse):
        assert None in wire_bytes
        assert why - {None} == {UNSIZED}


def test_nothing_is_kept_of_calls_that_have_ended(two: Ranks) -> None:
    """But the last one of each bucket, before and after DDP has rebuilt them."""
    for held, buckets in two.run(plain_scenarios.kept):
        assert held <= 2 * buckets


@pytest.mark.skipif(not FINALISES_BY_HAND, reason="DDP of this torch waits at the end of backward")
def test_a_model_that_is_finalised_by_hand_exposes_what_is_waited_for_there(two: Ranks) -> None:
    """Where all buckets have arrived by then no more than the last call, whenever that is."""
    for steps in two.run(plain_scenarios.finalised_by_hand):
        assert len(steps) == plain_scenarios.STEPS
        assert all(exposed <= call for exposed, call in steps)


@pytest.mark.skipif(not FINALISES_BY_HAND, reason="DDP of this torch keeps its buffers")
def test_buffers_that_are_allocated_late(two: Ranks) -> None:
    """Buckets are found though their buffers are new in each step, and none is kept."""
    for steps, kept, same_bits in two.run(plain_scenarios.with_new_buffers):
        assert steps[2:] == [(1, 6)] * (3 * plain_scenarios.STEPS - 2)
        assert kept == 0
        assert same_bits
