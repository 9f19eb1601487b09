"""Whose window is open; what is seen in one is in tests/distributed/test_other_collectives.py."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hooktrace import Tracer
from hooktrace.staging import other_collectives


@pytest.fixture
def tracer() -> Iterator[Any]:
    """What a window asks of a tracer; no window is left."""
    yield SimpleNamespace(clock=lambda: 0, push=lambda _: None)
    other_collectives.forget()


def opens(owner: object, tracer: Any) -> bool:
    return other_collectives.begin(owner, tracer, "net", 2, 0)


def test_a_window_whose_model_trains_no_more_gives_way(tracer: Any) -> None:
    """To the first of the others that asks again, however many there are."""
    assert opens("gone", tracer)
    assert not opens("b", tracer)
    assert not opens("c", tracer)
    assert opens("b", tracer)


def test_a_pause_closes_the_window() -> None:
    """Else it would hold all until training is recorded again, and say that it was one step."""
    with Tracer() as tracer:
        assert opens("model", tracer)
        tracer.recording = False
        assert other_collectives.window is None
