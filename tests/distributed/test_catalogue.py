"""Every standard hook by name, on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from hooktrace import hooks
from hooktrace.hooks import DDPCommHookType, catalogue
from tests.distributed import catalogue_scenarios
from tests.distributed.harness import Ranks
from tests.versions import BROADCASTS_COMPLEX

pytestmark = pytest.mark.slow

CATALOGUE = {
    "ALLREDUCE": ("allreduce", hooks.allreduce_hook, "lossless"),
    "FP16_COMPRESS": ("fp16", hooks.fp16_compress_hook, "cast"),
    "BF16_COMPRESS": ("bf16", hooks.bf16_compress_hook, "cast"),
    "QUANTIZE_PER_TENSOR": ("quantize-per-tensor", hooks.quantization_pertensor_hook, "quantised"),
    "QUANTIZE_PER_CHANNEL": (
        "quantize-per-channel",
        hooks.quantization_perchannel_hook,
        "quantised",
    ),
    "POWER_SGD": ("powersgd", hooks.powerSGD_hook, "low-rank"),
    "POWER_SGD_RANK2": ("powersgd-rank2", hooks.powerSGD_hook, "low-rank"),
    "BATCHED_POWER_SGD": ("batched-powersgd", hooks.batched_powerSGD_hook, "low-rank"),
    "BATCHED_POWER_SGD_RANK2": ("batched-powersgd-rank2", hooks.batched_powerSGD_hook, "low-rank"),
    "NOOP": ("noop", hooks.noop_hook, "local"),
    "ALLGATHER_THEN_AGGREGATE": ("allgather", hooks.allgather_then_aggregate_hook, "lossless"),
    "POST_LOCAL_SGD": ("post-local-sgd", hooks.post_localSGD_hook, "local"),
    "GOSSIP_GRAD": ("gossip", hooks.gossip_grad_hook, "local"),
}
"""Each type's name on the command line, hook and kind."""


def test_powersgd_gives_the_papers_compression(two: Ranks) -> None:
    """243.3, 135.8 and 72.1 on the authors' ResNet-18, from measured wire bytes."""
    for facts in two.run(catalogue_scenarios.paper_ratios):
        assert {count for count, _ in facts.values()} == {11_173_962}
        assert {rank: round(ratio, 1) for rank, (_, ratio) in facts.items()} == {
            1: 243.3,
            2: 135.8,
            4: 72.1,
        }


@pytest.mark.parametrize("member", DDPCommHookType)
def test_each_hook_registers_by_its_type(two: Ranks, member: DDPCommHookType) -> None:
    """It is that type's hook, traced or not the gradients are the same, and the stages are its."""
    rounds = 0 if member is DDPCommHookType.NOOP else 2 if "SGD" in member.name else 1
    if member is DDPCommHookType.POST_LOCAL_SGD:
        rounds = 1
    expected = ["compress", *["wire", "compress"] * rounds]
    if rounds:
        expected[-1] = "decompress"
    _, hook, _ = CATALOGUE[member.name]
    columns = (2 if "RANK2" in member.name else 1) if "POWER" in member.name else None
    for facts in two.run(catalogue_scenarios.registered):
        assert facts[member.name] == {
            "same": True,
            "finite": True,
            "stages": expected,
            "plain": True,
            "hooks": {hook.__qualname__},
            "columns": columns,
        }


REFUSALS = {
    "state": ("TypeError", "PowerSGD hook is a object", "hooktrace.hooks.PowerSGDState"),
    "group": ("TypeError", "state is a str", "register the hook with"),
    "gossip": ("TypeError", "needs a GossipGradState", "register it with GossipGradState()"),
    "complex": ("TypeError", "hook fp16_compress_hook", "weight are complex64; use allreduce_hook"),
    "sparse": ("TypeError", "hook quantization_pertensor_hook", "0 are sparse; use allreduce_hook"),
    "powersgd sparse": ("TypeError", "hook powerSGD_hook", "0 are sparse; use allreduce_hook"),
}


@pytest.mark.parametrize("case", [*REFUSALS, *[f"{name} traced" for name in REFUSALS]])
def test_what_cannot_work_is_refused_at_registration(two: Ranks, case: str) -> None:
    """The error names the hook and the thing, and ends in what to do."""
    if case.startswith("complex") and not BROADCASTS_COMPLEX:
        pytest.skip("this torch cannot make DDP of complex parameters on gloo")
    for facts in two.run(catalogue_scenarios.refusals):
        for part in REFUSALS[case.removesuffix(" traced")]:
            assert part in facts[case]


def test_what_ddp_registers_is_refused_in_backward(two: Ranks) -> None:
    """Where hooktrace does not see the registration, the first call says the same."""
    for facts in two.run(catalogue_scenarios.refusals):
        where = "hook 'quantization_pertensor_hook', bucket 0, stage compress: TypeError"
        assert where in facts["in backward"]
        assert "bucket 0 are sparse; use allreduce_hook" in facts["in backward"]


def test_the_catalogue_says_what_each_hook_is() -> None:
    """One entry a type, with names for the command line that differ."""
    entries = catalogue()
    assert [member.value for member in DDPCommHookType] == list(entries)
    assert len({entry.name for entry in entries}) == len(entries) == 13
    assert {
        member.name: (member.value.name, member.value.hook, member.value.kind)
        for member in DDPCommHookType
    } == CATALOGUE
    several = {entry.name for entry in entries if not entry.is_single_round}
    assert several == {
        "powersgd",
        "powersgd-rank2",
        "batched-powersgd",
        "batched-powersgd-rank2",
    }
