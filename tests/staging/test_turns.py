"""Calls that take turns: one that ends badly lets the next one have its turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hooktrace import Tracer, staged, trace
from hooktrace.staging.sequencer import sequencer_of
from hooktrace.testing import FakeBucket


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
