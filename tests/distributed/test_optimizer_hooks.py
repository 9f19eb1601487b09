"""Optimizer overlap on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import optimizer_scenarios
from tests.distributed.harness import Ranks
from tests.distributed.optimizer_runs import STEPS

pytestmark = pytest.mark.slow


def test_overlap_gives_the_bits_of_a_step_after_backward(two: Ranks) -> None:
    """Parameters and gradients of each step: hooks, optimizers and their implementations, modes."""
    for facts in two.run(optimizer_scenarios.overlap):
        assert len(facts) == 23
        assert [case for case, same in facts.items() if not same] == []


def test_functional_optimizers_step_as_torch_overlaps_them(two: Ranks) -> None:
    """The same bits as torch's own overlap, and as the ordinary optimizer after backward."""
    for facts in two.run(optimizer_scenarios.functional):
        assert len(facts) == 9
        assert set(facts.values()) == {(True, True)}


def test_only_the_given_parameters_are_stepped(two: Ranks) -> None:
    """The others keep their values."""
    assert two.run(optimizer_scenarios.subset) == [{"params": True, "of": True}] * 2


@pytest.mark.parametrize("way", optimizer_scenarios.WAYS)
def test_all_ways_of_training_give_these_bits(two: Ranks, way: str) -> None:
    """``bucket.gradients()`` reads channels-last gradients as contiguous; the step must not."""
    assert [facts[way] for facts in two.run(optimizer_scenarios.both_ways)] == [True, True]


def test_a_resumed_run_goes_on_with_the_same_bits(two: Ranks) -> None:
    """A new model and a new state take over in the middle."""
    assert two.run(optimizer_scenarios.resume) == [{"SGD default": True, "AdamW default": True}] * 2


def test_unused_parameters_are_stepped_with_zeros(two: Ranks) -> None:
    """Weight decay moves them, though DDP leaves their ``grad`` alone."""
    assert two.run(optimizer_scenarios.unused) == [(True, True)] * 2


def test_every_bucket_is_recorded(two: Ranks) -> None:
    """A traced overlap has the inner hook's stages, and the same bits."""
    for facts in two.run(optimizer_scenarios.traced):
        assert facts.pop("buckets") >= 6
        assert facts == {
            "same": True,
            "hooks": {"hook_then_optimizer(fp16_compress_hook)"},
            "steps": STEPS,
            "recorded": True,
            "stages": {("compress", "wire", "decompress")},
            "anomalies": [],
        }


def test_what_cannot_be_stepped_is_named(two: Ranks) -> None:
    """Errors out of backward name the hook and say what to do."""
    name = "hook_then_optimizer(allreduce_hook)"
    for facts in two.run(optimizer_scenarios.refusals):
        assert (
            f"hook '{name}', bucket 0, stage decompress: ArithmeticError: no step today"
            in facts["failing"]
        )
        assert f"hook '{name}', bucket 0, stage compress: TypeError: " in facts["sparse"]
        assert "are sparse; call optimizer.step() after backward" in facts["sparse"]
        assert "set torch._dynamo.config.optimize_ddp = True" in facts["compiled"]
