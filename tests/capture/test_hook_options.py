"""What a layout says of the hook's state: what it was made with, in numbers and words."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState as Theirs

from hooktrace.capture.hook_options import options_of
from hooktrace.hooks import PowerSGDState


@pytest.mark.parametrize("state", [PowerSGDState, Theirs])
def test_a_state_is_what_it_was_made_with(state: Any) -> None:
    """Ours and torch's: the arguments, and not the counters nor the tensors."""
    found = dict(options_of(state(None, matrix_approximation_rank=3, start_powerSGD_iter=7)))
    assert (found["matrix_approximation_rank"], found["start_powerSGD_iter"]) == (3, 7)
    assert found["warm_start"] is True
    assert not {"iter", "rng", "error_dict", "process_group", "random_seed"} & set(found)


class _Odd:
    kind = "of the class"

    def __init__(self, rate: Any, name: str, weights: object, kind: str = "") -> None:
        self.rate, self.name, self.weights = rate, name, weights


class _Broken(_Odd):
    @property
    def kind(self) -> str:  # type: ignore[override]
        raise RuntimeError


def test_what_is_no_option_is_left_out() -> None:
    """Tensors, NaN, texts without end; a state that raises tells nothing, and raises nothing."""
    assert options_of(None) == ()
    assert options_of(0.5) == (("state", 0.5),)
    assert options_of(_Broken(0.5, "a", None)) == ()
    assert options_of(_Odd(0.5, "a", torch.zeros(3))) == (("rate", 0.5), ("name", "a"))
    assert options_of(_Odd(math.nan, "a" * 201, None)) == ()
    assert options_of(_Odd(1 << 70, "", None)) == (("name", ""),)
