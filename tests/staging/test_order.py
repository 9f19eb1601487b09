"""The serial lane: order, depth, and what must not leave it busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hooktrace import Tracer, staged, trace
from hooktrace.staging.order import Sequencer, sequencer_of
from hooktrace.testing import FakeBucket


def test_chains_run_one_at_a_time_in_order() -> None:
    """In the order of submission."""
    lane, events = Sequencer(), []
    for name in "abc":
        lane.submit(lambda name=name: events.append(name))
    assert events == ["a"]
    for _ in "abc":
        lane.release()
    assert events == ["a", "b", "c"]
    assert lane.wait_until_idle()


def test_many_chains_that_end_at_once_do_not_nest() -> None:
    """A long queue of chains that end inside their own start needs no deep stack."""
    lane, ended = Sequencer(), []

    def instant() -> None:
        ended.append(1)
        lane.release()

    lane.submit(lambda: None)
    for _ in range(20_000):
        lane.submit(instant)
    worker = threading.Thread(target=lane.release)
    worker.start()
    worker.join(60)
    assert len(ended) == 20_000
    assert lane.wait_until_idle()


def test_an_interrupted_chain_frees_the_lane() -> None:
    """Ctrl-C in a multi-round hook passes through, and the next hook call is not held up."""

    @staged(multi_round=True)
    def interrupted(state: Any, bucket: Any) -> Iterator[Any]:
        raise KeyboardInterrupt
        yield

    bucket = FakeBucket([torch.zeros(4)])
    with Tracer() as tracer:
        hook = trace(interrupted, tracer=tracer)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                hook(None, bucket)
        assert not sequencer_of(None)._busy
        assert [a.stage for a in tracer.anomalies()] == ["compress"]  # once a kind and bucket
        assert sum(b.exception is not None for b in tracer.buckets()) == 2
