"""Bytes on the wire of opaque hooks, on real gloo ranks.

What torch's Flight Recorder saw in sampled steps; from torch 2.14 on, in every step, what process
groups tell, but of a hook inside another one.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed import wire_scenarios
from tests.distributed.harness import Ranks
from tests.versions import HOOKS_GROUPS, RECORDS_GLOO

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RECORDS_GLOO, reason="this torch's Flight Recorder knows NCCL only"),
]

NUMEL, BUCKETS = 32 * 32 + 32, 6
PADDED = 3 * 512
"""torch's per-channel hook fills a third chunk of 512."""

ALL_FLOAT32 = [("all_reduce", "float32", 4 * NUMEL)]
ALL_FLOAT16 = [("all_reduce", "float16", 2 * NUMEL)]
SENT = {
    "allreduce": ALL_FLOAT32,
    "fp16": ALL_FLOAT16,
    "in a wrapper": ALL_FLOAT16,
    "off": ALL_FLOAT32,
    # Of a 32 x 32 matrix of rank 1 two vectors, and the bias as it is.
    "powersgd": [("all_reduce", "float32", 3 * 32 * 4)],
    # A scale and a zero point for each chunk, then bytes.
    "pertensor": [("all_gather", "float32", 8), ("all_gather", "uint8", NUMEL)],
    "perchannel": [("all_gather", "float32", 3 * 8), ("all_gather", "uint8", PADDED)],
}


@pytest.mark.parametrize("hook", SENT)
def test_bytes_of_torchs_own_hooks(two: Ranks, hook: str) -> None:
    """By collective and dtype, for each bucket and for the step, on sampled steps only."""
    for facts in two.run(wire_scenarios.torchs_hooks):
        for step, gradient_bytes, wire_bytes, sent, of_buckets, why in facts[hook]:
            assert why is None
            if HOOKS_GROUPS and hook != "in a wrapper":
                begun = hook != "powersgd" or step >= 2  # before, it averages
                whole = sum(size for *_, size in SENT[hook]) if begun else 4 * NUMEL
                assert wire_bytes == BUCKETS * whole or step == 0  # in one bucket, of which ranks
                continue
            if step not in (2, 5):
                assert (wire_bytes, sent) == (None, None)
                assert set(of_buckets) == {None}
                continue
            assert gradient_bytes == BUCKETS * NUMEL * 4
            assert of_buckets == [SENT[hook]] * BUCKETS
            assert sent == [(kind, dtype, BUCKETS * size) for kind, dtype, size in SENT[hook]]
            assert wire_bytes == sum(size for *_, size in sent)
        assert [row[0] for row in facts[hook]] == list(range(wire_scenarios.STEPS))


def test_a_hook_without_collectives(two: Ranks) -> None:
    """A process group tells of sends; of a hook that it tells nothing of, nothing is known."""
    if not HOOKS_GROUPS:
        pytest.skip("this torch's process groups take no hooks")
    for facts in two.run(wire_scenarios.torchs_hooks):
        for _, gradient_bytes, wire_bytes, sent, _, why in facts["in pairs"]:
            assert (wire_bytes, why) == (gradient_bytes, None)
            assert sent == [("send", "float32", gradient_bytes)]
        for _, _, wire_bytes, sent, of_buckets, why in facts["noop"]:
            assert (wire_bytes, sent, set(of_buckets)) == (None, None, {None})
            assert "it sends nothing, or by other ways" in why


@pytest.mark.skipif(HOOKS_GROUPS, reason="process groups tell of them")
@pytest.mark.parametrize("hook", ["noop", "in pairs"])
def test_sends_and_receives_are_not_known(two: Ranks, hook: str) -> None:
    """Torch lists none of gloo's; a hook that sends nothing looks the same."""
    for facts in two.run(wire_scenarios.torchs_hooks):
        for step, _, wire_bytes, sent, of_buckets, why in facts[hook]:
            assert (wire_bytes, sent, set(of_buckets)) == (None, None, {None})
            assert (why is not None) == (step in (2, 5))
            assert why is None or "does not list sends and receives" in why


def test_what_no_bucket_can_be_told_to_have_sent_is_the_steps(two: Ranks) -> None:
    """Two buckets under way, and a collective from a thread: unknown for both, and it is said.

    The Flight Recorder knows the sum.

    On a busy machine the thread comes so late that a third one is under way too.
    """
    for rows in two.run(wire_scenarios.overlapping):
        rows_by_step: dict[int, Any] = {row[0]: row[1:] for row in rows}
        _, wire_bytes, sent, of_buckets, why = rows_by_step[2]
        if HOOKS_GROUPS:
            assert (wire_bytes, sent, of_buckets[:2]) == (None, None, [None, None])
            assert "from a thread of its own" in why
            continue
        assert sent == [("all_reduce", "float16", 6), ("all_reduce", "float32", 4 * NUMEL)]
        assert wire_bytes == 6 + 4 * NUMEL
        assert of_buckets[:2] == [None, None]
        assert [one for one in of_buckets[2:] if one is not None] in ([[]] * 3, [[]] * 4)


def test_a_hook_that_says_it_compresses_and_does_not_is_named(two: Ranks) -> None:
    """One that loses precision for nothing at once; one that loses nothing may begin later."""
    for facts in two.run(wire_scenarios.liars):
        named = facts.pop("rounds to 16 bits, sends 32")
        assert named == [("no_compression", bucket) for bucket in range(BUCKETS)]
        assert set(facts) == {"compresses", "may be in its warm-up", "claims nothing", "staged"}
        assert not any(facts.values())
