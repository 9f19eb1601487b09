"""What PowerSGD is told, counts, remembers and saves; the rest: distributed/test_powersgd.py."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs

from hooktrace.hooks import PowerSGDState, powersgd_saved
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


def test_a_square_of_other_parameters_is_waited_for() -> None:
    """For so many passes in a row as DDP takes to its buckets: also if it wraps the model again."""
    state, bucket = PowerSGDState(None, 1), bucket_of((8, 8), (3,))
    part = FakeBucket(bucket.parameters()[:1])
    state.claim(bucket)
    for wrapped in (bucket, part, part, part, bucket, part, part, part):
        assert state.knows_square(wrapped, 9) == (wrapped is bucket)
        state.maybe_increase_iter(wrapped)
    with pytest.raises(ValueError, match="does not fit bucket 0; resume it with the model"):
        state.knows_square(part, 9)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"process_group": "all"}, TypeError, "process_group is a str; pass a torch.distributed"),
        ({"matrix_approximation_rank": 0}, ValueError, "cannot work; pass 1 or more"),
        ({"start_powerSGD_iter": -1}, ValueError, "cannot work; pass 2 or more"),
        ({"start_powerSGD_iter": 1}, ValueError, "pass 2 or more, or turn both off"),
        ({"min_compression_rate": 0}, ValueError, "pass more than 0, such as 2"),
        ({"orthogonalization_epsilon": -1e-8}, ValueError, "pass 0, or a small number"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    """With what to pass."""
    with pytest.raises(error, match=message):
        PowerSGDState(**{"process_group": None, **settings})


def test_what_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A step at its last bucket; statistics at the first compressed step and then every third."""
    state = PowerSGDState(None, start_powerSGD_iter=2, compression_stats_logging_frequency=3)
    compressed = []
    with caplog.at_level(logging.INFO):
        for _ in range(7):
            compressed.append(state.compresses)
            for bucket in (bucket_of((2, 2), is_last=False), bucket_of((2, 2))):
                if state.compresses and bucket.is_last():
                    state.count(100, 25, bucket)
                state.maybe_increase_iter(bucket)
    assert compressed == [False] * 2 + [True] * 5
    assert state.compression_stats() == (4.0, 500, 125)
    assert [r.getMessage() for r in caplog.records] == [
        "PowerSGD begins to compress after 2 steps",
        "PowerSGD at step 2: 100 elements compressed to 25, rate 4.0",
        "PowerSGD at step 5: 400 elements compressed to 100, rate 4.0",
    ]


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


def test_other_settings_are_refused() -> None:
    """Under which something else would be remembered."""
    saved = remembering()[0].state_dict()
    for name, value in (("matrix_approximation_rank", 2), ("warm_start", False)):
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
