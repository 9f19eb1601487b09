"""A PowerSGD state saved as numbers and tensors, and who may load it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hooktrace.hooks import PowerSGDState, powersgd_saved
from tests.hooks.test_powersgd_state import bucket_of, remembering


def saved_twice(state: PowerSGDState) -> PowerSGDState:
    """Return what two checkpoints leave of a state, loaded without running what they might say."""
    for _ in range(2):
        file = io.BytesIO()
        torch.save(state.state_dict(), file)
        file.seek(0)
        state = PowerSGDState(None, 1)
        state.load_state_dict(torch.load(file, weights_only=True))
    return state


def pickled(state: PowerSGDState) -> PowerSGDState:
    """Return a copy by pickle."""
    copied: PowerSGDState = pickle.loads(pickle.dumps(state))
    return copied


@pytest.mark.parametrize("again", [saved_twice, pickled])
def test_memory_is_found_again_by_parameter(again: Callable[[Any], PowerSGDState]) -> None:
    """In other buckets than before; random numbers go on."""
    state, _ = remembering()
    q, expected = state.q_memory_dict[0].clone(), PowerSGDState(None, 1)
    expected.rng.set_state(state.rng.get_state())
    state.iter = 7
    loaded = again(state)
    assert loaded.process_group is None
    for bucket in (bucket_of((8, 8), index=0, is_last=False), bucket_of((3,), index=1)):
        loaded.claim(bucket)
        loaded.recall(bucket)
    assert loaded.iter == 7
    assert torch.equal(loaded.error_dict[0], torch.full((64,), 2.0))
    assert torch.equal(loaded.error_dict[1], torch.full((3,), 2.0))
    assert torch.equal(loaded.q_memory_dict[0], q)
    assert 1 not in loaded.q_memory_dict
    assert loaded.rng.randint(1 << 30) == expected.rng.randint(1 << 30)


def test_loading_leaves_what_was_saved_and_the_order_that_is_known() -> None:
    """The hook writes into its memory, and a state that has served its model keeps that's order."""
    state, bucket = remembering()
    saved = state.state_dict()
    loaded = PowerSGDState(None, 1)
    loaded.load_state_dict(saved)
    loaded.claim(bucket)
    loaded.recall(bucket)
    loaded.error_dict[0].zero_()
    assert torch.equal(state.error_dict[0], torch.full((67,), 2.0))
    state.load_state_dict(saved)
    state.claim(bucket)
    with pytest.raises(ValueError, match="make one PowerSGDState for each model"):
        state.claim(bucket_of((2, 2)))


@pytest.mark.parametrize(
    ("name", "value"), [("matrix_approximation_rank", 2), ("warm_start", False)]
)
def test_other_settings_are_refused(name: str, value: object) -> None:
    """Under which something else would be remembered."""
    saved = remembering()[0].state_dict()
    other = PowerSGDState(None, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"the saved PowerSGD state has {name}="):
        other.load_state_dict(saved)


def test_another_ranks_residuals_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of a job of another size; what has no residuals is the same on all ranks."""
    places = [(0, 2)]
    monkeypatch.setattr(powersgd_saved, "_place", lambda _: places[-1])
    saved, empty = remembering()[0].state_dict(), PowerSGDState(None, 1).state_dict()
    PowerSGDState(None, 1).load_state_dict(saved)
    for place in ((1, 2), (0, 3)):
        places.append(place)
        with pytest.raises(ValueError, match="residuals are a rank's own"):
            PowerSGDState(None, 1).load_state_dict(saved)
        PowerSGDState(None, 1).load_state_dict(empty)
