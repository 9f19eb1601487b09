"""The catalogue says of each hook what the hook itself says."""

from __future__ import annotations

import pytest
from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook

from hooktrace import hooks
from hooktrace.hooks import DDPCommHookType, HookEntry, catalogue
from hooktrace.hooks.catalogue import candidates
from hooktrace.staging.slots import options_of


@pytest.mark.parametrize("entry", catalogue(), ids=lambda entry: entry.name)
def test_an_entry_says_what_its_hook_is(entry: HookEntry) -> None:
    """Its public name, and whether one collective a bucket is all."""
    assert entry.hook is getattr(hooks, entry.hook_name)
    assert entry.hook.__qualname__ == entry.hook_name
    assert entry.is_single_round == (entry.hook.multi_round is False)
    assert (entry.kind == "local") == entry.hook.local
    assert len({one.name for one in catalogue()}) == len(catalogue())


def test_the_state_is_the_group_or_made_with_the_entry_s_options() -> None:
    """Options given win over the entry's."""
    assert DDPCommHookType.ALLREDUCE.value.make_state("group") == "group"
    state = DDPCommHookType.POWER_SGD_RANK2.value.make_state(None, start_powerSGD_iter=7)
    assert (state.matrix_approximation_rank, state.start_powerSGD_iter) == (2, 7)


def test_every_hook_that_averages_is_tried() -> None:
    """Cheap ones first, so that what they leave of their time is the others'."""
    assert [one.name for one in candidates()] == [
        *("allreduce", "allgather", "fp16", "bf16"),
        *("quantize-per-tensor", "quantize-per-channel", "quantize-per-channel-128"),
        *("powersgd", "powersgd-rank2", "powersgd-rank4"),
        *("batched-powersgd", "batched-powersgd-rank2"),
    ]


def test_a_candidate_is_what_its_name_says() -> None:
    """In its hook, its state, and what records say of it."""
    found = {one.name: one for one in candidates()}
    assert found["quantize-per-channel-128"].hook.__qualname__ == (
        "quantization_perchannel_hook(bucket_size=128)"
    )
    state = found["powersgd-rank4"].make_state(None, start_powerSGD_iter=7)
    assert (state.matrix_approximation_rank, state.start_powerSGD_iter) == (4, 7)
    assert (
        dict(options_of(found["powersgd-rank2"].make_state(None)))["matrix_approximation_rank"] == 2
    )


def test_the_hooks_of_zero_are_torchs_own() -> None:
    """Under the same names, as those of all other hooks."""
    for name in ("hook_with_zero_step", "hook_with_zero_step_interleaved"):
        assert getattr(hooks, name) is getattr(ddp_zero_hook, name)
