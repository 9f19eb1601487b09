"""States of hooks in a file that one rank writes for all."""

from __future__ import annotations

import io

import pytest
import torch

from hooktrace.hooks import GossipGradState, PostLocalSGDState
from hooktrace.integrations.checkpoints import gathered, restore


def test_through_a_file_that_runs_nothing() -> None:
    states = [GossipGradState(), PostLocalSGDState(None, None, 9)]
    states[0].step, states[1].iter = 3, 5
    file = io.BytesIO()
    torch.save(gathered(states), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    loaded = [GossipGradState(), PostLocalSGDState(None, None, 9)]
    restore(loaded, saved)
    assert (loaded[0].step, loaded[1].iter) == (3, 5)


def test_what_is_of_others_is_refused() -> None:
    """Of a job of other ranks, and of other models."""
    saved = gathered([GossipGradState()])
    with pytest.raises(ValueError, match=r"has states of 1 hook.s., and here are 0; prepare all"):
        restore([], saved)
    with pytest.raises(ValueError, match=r"of rank.s. 1, 2 and none of rank 0; begin without"):
        restore([GossipGradState()], {"ranks": {1: saved["ranks"][0], 2: saved["ranks"][0]}})
