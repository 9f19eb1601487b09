"""PowerSGD's memory and pickling; the mathematics are in distributed/test_powersgd.py."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs

from hooktrace.hooks import PowerSGDState
from hooktrace.testing import FakeBucket


def bucket_of(*shapes: tuple[int, ...], index: int = 0, is_last: bool = True) -> FakeBucket:
    """Return a bucket of new parameters."""
    return FakeBucket([torch.zeros(shape) for shape in shapes], index, is_last=is_last)


def test_all_of_torchs_attributes_are_there() -> None:
    """With the same values for the same arguments."""
    ours, its = PowerSGDState(None, 2, 5), theirs.PowerSGDState(None, 2, 5)
    for name in set(its.__slots__) - {"rng"}:
        assert getattr(ours, name) == getattr(its, name), name
    assert ours.rng.randint(1000) == its.rng.randint(1000)
    with pytest.raises(AttributeError):
        ours.start_iter = 3  # type: ignore[attr-defined]


def remembering() -> tuple[PowerSGDState, FakeBucket]:
    """Return a state that has a residual and factors of a bucket of one matrix and one vector."""
    state, bucket = PowerSGDState(None, 1), bucket_of((8, 8), (3,))
    state.claim(bucket)
    state.recall(bucket)
    bucket.buffer().fill_(2.0)
    residual = state.residual_for(0, bucket.buffer(), 67)
    factors, is_new = state.factors(bucket, residual)
    assert is_new
    state.randomize([factors.q])
    return state, bucket


def test_memory_of_another_model_is_refused() -> None:
    """Its parameters have other sizes."""
    copied: PowerSGDState = pickle.loads(pickle.dumps(remembering()[0]))
    other = bucket_of((8, 9), (3,))
    copied.claim(other)
    with pytest.raises(ValueError, match="does not fit bucket 0; resume it with the model"):
        copied.recall(other)


def test_random_factors_are_the_same_on_all_ranks() -> None:
    """And torch's global generator stays where it is."""
    before = torch.get_rng_state()
    ours, others = torch.empty(4, 2), torch.empty(4, 2)
    state = PowerSGDState(None)
    copy.deepcopy(state).randomize([others])
    state.randomize([ours])
    assert torch.equal(ours, others)
    assert torch.equal(before, torch.get_rng_state())
