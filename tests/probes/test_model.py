"""How the probes of a model end for good, where its ranks cannot connect."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed import HashStore

from hooktrace.probes import model as model_module
from hooktrace.probes import plan as plan_module
from hooktrace.probes.model import ModelProbes
from hooktrace.probes.schedule import OFF
from hooktrace.staging.ring import Loss
from hooktrace.staging.slots import BucketSlot
from hooktrace.testing import FakeBucket
from tests.probes.fakes import Sink, future_of, slot_of, start_of


def unreachable(*_: object) -> None:
    """Fail as a group does whose ranks do not come."""
    raise RuntimeError("nobody came")


class OneRank(Sink):
    """The tracer of a job of one rank."""

    error_every, error_all_buckets, error = 10, False, "global"


Made = tuple[ModelProbes, BucketSlot, FakeBucket, OneRank, HashStore]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Return the probes of a model of one bucket, whose ranks cannot connect."""
    store = HashStore()
    for name in ("job_store", "rendezvous_store"):
        monkeypatch.setattr(plan_module, name, lambda _: store)
    monkeypatch.setattr(model_module, "PrivateGroup", unreachable)
    monkeypatch.setattr(plan_module.dist, "get_process_group_ranks", lambda group: [0])
    bucket = FakeBucket([torch.zeros(3)], is_last=True)
    slot, sink = slot_of(bucket), OneRank()
    group: Any = SimpleNamespace(rank=lambda: 0, size=lambda: 1)
    tracer: Any = sink
    return ModelProbes(group, slot, [], tracer, local=False), slot, bucket, sink, store


def test_connections_that_fail_are_bounded(made: Made, caplog: pytest.LogCaptureFixture) -> None:
    """Three, each counted; then one warning, and nothing is tried any more."""
    model, slot, bucket, sink, _ = made
    tracer: Any = sink
    for step in range(200):
        if step >= model.next_step:
            start = start_of(slot, step, bucket)
            model.enter(start, tracer)
            result = torch.ones(3)
            for probe in start.looks:
                assert probe.join(future_of(result)).wait() is result
    losses = [one for one in sink.pushed if isinstance(one, Loss)]
    assert losses == [Loss("check_failed", "RuntimeError: nobody came")] * 3
    assert model.next_step == OFF
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "compression error of net is no longer measured: 3 checks failed one after another, the "
        "last by RuntimeError: nobody came; training goes on"
    ]


def test_a_forked_child_says_nothing_to_the_other_ranks(made: Made) -> None:
    """The connection to the store is its parent's."""
    model, _, _, _, store = made
    said = store.num_keys()
    model.begin_in_child()
    model.leave()
    assert store.num_keys() == said


def test_without_a_thread_the_result_is_there_at_once(made: Made) -> None:
    """It is counted, and the next probe does not wait for it."""
    model, slot, bucket, sink, _ = made
    tracer: Any = sink
    none = mock.Mock(side_effect=RuntimeError("can't start new thread"))
    result = torch.ones(3)
    for step, failing in ((10, True), (20, False)):
        with mock.patch.object(model_module, "call_aside", none) if failing else nullcontext():
            start = start_of(slot, step, bucket)
            model.enter(start, tracer)
            (probe,) = start.looks
            assert probe.join(future_of(result)).wait() is result
    why = [one.why for one in sink.pushed if isinstance(one, Loss)]
    assert why == ["no thread could be started", "RuntimeError: nobody came"]
