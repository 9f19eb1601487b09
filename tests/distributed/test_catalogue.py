"""Every standard hook by name, on real gloo ranks: one launch of 2 ranks."""

from __future__ import annotations

import pytest

from hooktrace.hooks import DDPCommHookType, catalogue
from tests.distributed import harness

SCENARIOS = ["paper_ratios", "registered", "refusals", "encoded", "resumed", "compiled"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> harness.Results:
    """All scenarios on 2 ranks."""
    names = [f"catalogue_scenarios:{name}" for name in SCENARIOS]
    return harness.run(tmp_path_factory.mktemp("catalogue"), names, ranks=2, deadline_s=280)


def test_powersgd_gives_the_papers_compression(two: harness.Results) -> None:
    """243.3, 135.8 and 72.1 on the authors' ResNet-18, from measured wire bytes."""
    for facts in two["catalogue_scenarios:paper_ratios"]:
        assert {count for count, _ in facts.values()} == {11_173_962}
        assert {rank: round(ratio, 1) for rank, (_, ratio) in facts.items()} == {
            1: 243.3,
            2: 135.8,
            4: 72.1,
        }


@pytest.mark.parametrize("member", DDPCommHookType)
def test_each_hook_registers_by_its_type(two: harness.Results, member: DDPCommHookType) -> None:
    """Traced or not the gradients are the same, and the stages are those of the hook."""
    rounds = 0 if member is DDPCommHookType.NOOP else 2 if "SGD" in member.name else 1
    if member is DDPCommHookType.POST_LOCAL_SGD:
        rounds = 1
    expected = ["compress", *["wire", "compress"] * rounds]
    if rounds:
        expected[-1] = "decompress"
    for facts in two["catalogue_scenarios:registered"]:
        same, finite, stages, plain = facts[member.name]
        assert (same, finite, plain) == (True, True, True)
        assert stages == expected


REFUSALS = {
    "state": ("TypeError", "PowerSGD hook is a object", "hooktrace.hooks.PowerSGDState"),
    "group": ("TypeError", "state is a str", "register the hook with"),
    "gossip": ("TypeError", "needs a GossipGradState", "register it with GossipGradState()"),
    "complex": ("TypeError", "hook fp16_compress_hook", "weight are complex64; use allreduce_hook"),
    "sparse": ("TypeError", "hook quantization_pertensor_hook", "0 are sparse; use allreduce_hook"),
    "powersgd sparse": ("TypeError", "hook powerSGD_hook", "0 are sparse; use allreduce_hook"),
}


@pytest.mark.parametrize("case", [*REFUSALS, *[f"{name} traced" for name in REFUSALS]])
def test_what_cannot_work_is_refused_at_registration(two: harness.Results, case: str) -> None:
    """The error names the hook and the thing, and ends in what to do."""
    for facts in two["catalogue_scenarios:refusals"]:
        for part in REFUSALS[case.removesuffix(" traced")]:
            assert part in facts[case]


def test_what_ddp_registers_is_refused_in_backward(two: harness.Results) -> None:
    """Where hooktrace does not see the registration, the first call says the same."""
    for facts in two["catalogue_scenarios:refusals"]:
        where = "hook 'quantization_pertensor_hook', bucket 0, stage compress: TypeError"
        assert where in facts["in backward"]
        assert "bucket 0 are sparse; use allreduce_hook" in facts["in backward"]


def test_encode_and_decode_make_a_hook(two: harness.Results) -> None:
    """A bfloat16 encoding errs by its rounding, twice: of a gradient, and of the sum."""
    for facts in two["catalogue_scenarios:encoded"]:
        assert 0 < facts["error"] <= 2 * 2**-8
        assert facts["name"] == "encode_and_decode(halve, same)"


def test_a_resumed_run_goes_on(two: harness.Results) -> None:
    """Bit for bit, though DDP begins with other buckets again; the square needs its buckets."""
    for facts in two["catalogue_scenarios:resumed"]:
        layered = {name: value for name, value in facts.items() if name.startswith("layered")}
        assert layered == dict.fromkeys(layered, 0.0)
        assert len(layered) == 3
        assert facts["square find_unused_parameters"] == 0.0


QUANTISATION_ERROR = 0.02
"""Of one element at most half a step, 1/510 of the range; the norm's error is smaller than this."""


def test_single_round_hooks_run_compiled(two: harness.Results) -> None:
    """The compiled python reducer gives the same gradients."""
    for facts in two["catalogue_scenarios:compiled"]:
        exact = {name: value for name, value in facts.items() if "QUANTIZE" not in name}
        assert exact == dict.fromkeys(exact, 0.0)
        assert len(exact) == 5
        assert facts["QUANTIZE_PER_TENSOR"] < QUANTISATION_ERROR
        assert facts["QUANTIZE_PER_CHANNEL"] < QUANTISATION_ERROR


def test_the_catalogue_says_what_each_hook_is() -> None:
    """One entry a type, with names for the command line that differ."""
    entries = catalogue()
    assert [member.value for member in DDPCommHookType] == list(entries)
    assert len({entry.name for entry in entries}) == len(entries) == 13
    several = {entry.name for entry in entries if not entry.is_single_round}
    assert several == {
        "powersgd",
        "powersgd-rank2",
        "batched-powersgd",
        "batched-powersgd-rank2",
    }
