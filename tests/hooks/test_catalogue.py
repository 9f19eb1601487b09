"""The catalogue says of each hook what the hook itself says."""

from __future__ import annotations

import pytest

from hooktrace import hooks
from hooktrace.hooks import HookEntry, catalogue
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


def test_every_hook_that_averages_is_tried() -> None:
    """Cheap ones first, so that what they leave of their time is the others'."""
    found = {one.name: one for one in candidates()}
    assert [*found] == [
        *("allreduce", "allgather", "fp16", "bf16"),
        *("quantize-per-tensor", "quantize-per-channel", "quantize-per-channel-128"),
        *("powersgd", "powersgd-rank2", "powersgd-rank4"),
        *("batched-powersgd", "batched-powersgd-rank2"),
    ]
    state = found["powersgd-rank4"].make_state(None, start_powerSGD_iter=7)
    assert dict(options_of(state))["matrix_approximation_rank"] == 4
    assert found["quantize-per-channel-128"].hook.__qualname__.endswith("(bucket_size=128)")
