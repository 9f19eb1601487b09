"""Sharded models whose backward passes the script finalises by hand, on real ranks (torch 2.15).

A step ends there.  The oracle is the same training, finalised by FSDP itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.distributed.harness import Ranks
from tests.distributed.sharded import STEPS, Setup, Step, agree, micro_steps, one_pass
from tests.distributed.test_fsdp import check_lossless
from tests.versions import FINALISES_BY_HAND

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FINALISES_BY_HAND, reason="this torch's FSDP finalises by itself"),
]

Batch = Callable[[], torch.Tensor]


def _by_hand(model: Any) -> None:
    model.set_manual_backward_finalization(True)


def _finalised(model: Any, batch: Batch) -> None:
    one_pass(model, batch)
    model.finalize_backward()


def _later(model: Any, batch: Batch) -> None:
    """What is reduced is waited for by the script, in its own time."""
    one_pass(model, batch)
    model.finalize_backward(async_op=True).wait()


def _reduced_at_the_end(model: Any, batch: Batch) -> None:
    """No pass reduces gradients: the finalisation does, of all three."""
    model.set_requires_gradient_sync(False)
    for _ in range(3):
        one_pass(model, batch)
    model.set_requires_gradient_sync(True)
    model.finalize_backward()


def _in_several(model: Any, batch: Batch) -> None:
    """Each of two passes reduces; the step is over when both are finalised."""
    one_pass(model, batch)
    one_pass(model, batch)
    model.finalize_backward()


PAIRS: dict[str, tuple[Step, Step]] = {
    "one pass": (_finalised, one_pass),
    "waited for later": (_later, one_pass),
    "reduced at the end": (_reduced_at_the_end, micro_steps),
}
"""What the script does by hand, and the same by FSDP."""


def by_hand(rank: int) -> dict[str, dict[str, Any]]:
    setup = Setup(prepare=_by_hand)
    steps = {name: own for name, (own, _) in PAIRS.items()} | {"in several": _in_several}
    return agree({name: replace(setup, step=step) for name, step in steps.items()}, rank)


def by_fsdp(rank: int) -> dict[str, dict[str, Any]]:
    return agree({name: Setup(step=own) for name, (_, own) in PAIRS.items()}, rank)


def of_step(facts: dict[str, Any], step: int) -> Counter[str]:
    return Counter(str(b.unit) for b in facts["buckets"] if b.step == step)


@pytest.mark.parametrize("name", list(PAIRS))
def test_a_step_ends_where_the_script_says(two: Ranks, name: str) -> None:
    """With the same collectives as by FSDP: those of the end are of the backward pass."""
    for own, other in zip(two.run(by_hand), two.run(by_fsdp), strict=True):
        facts, oracle = own[name], other[name]
        check_lossless(facts)
        assert [step.step for step in facts["steps"]] == list(range(STEPS))
        for step in range(STEPS):
            assert of_step(facts, step) == of_step(oracle, step)


def test_several_passes_are_one_step(two: Ranks) -> None:
    """Though each of them reduces gradients."""
    for own in two.run(by_hand):
        facts = own["in several"]
        check_lossless(facts)
        assert [step.step for step in facts["steps"]] == list(range(STEPS))
        found = of_step(facts, 2)
        assert found["blocks.1 reduce-scatter (backward)"] == 1
        assert found["blocks.1 reduce-scatter (backward) #2"] == 1
