"""The factors of a bucket, alike on all ranks."""

from __future__ import annotations

import copy

import torch

from hooktrace.hooks import PowerSGDState


def test_random_factors_are_the_same_on_all_ranks() -> None:
    """And torch's global generator stays where it is."""
    before = torch.get_rng_state()
    ours, others = torch.empty(4, 2), torch.empty(4, 2)
    state = PowerSGDState(None)
    copy.deepcopy(state).randomize([others])
    state.randomize([ours])
    assert torch.equal(ours, others)
    assert torch.equal(before, torch.get_rng_state())
