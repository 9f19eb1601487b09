"""What PowerSGD is told and what it counts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hooktrace.hooks import PowerSGDState
from tests.hooks.test_powersgd_state import bucket_of


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
