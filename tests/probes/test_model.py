"""How the probes of a model end for good, where its ranks cannot meet."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed import HashStore

from hooktrace.probes import model as model_module
from hooktrace.probes.model import ModelProbes
from hooktrace.probes.schedule import OFF
from hooktrace.staging.ring import Loss
from hooktrace.staging.slots import BucketSlot
from hooktrace.testing import FakeBucket
from tests.probes.fakes import Sink, slot_of, start_of


def unreachable(*_: object) -> None:
    """Fail as a group does whose ranks do not come."""
    raise RuntimeError("nobody came")


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> tuple[ModelProbes, BucketSlot, FakeBucket]:
    """Return the probes of a model of one bucket, whose ranks cannot meet."""
    store = HashStore()
    monkeypatch.setattr(model_module, "job_store", lambda: store)
    monkeypatch.setattr(model_module, "PrivateGroup", unreachable)
    monkeypatch.setattr(model_module.dist, "get_process_group_ranks", lambda group: [0])
    bucket = FakeBucket([torch.zeros(3)], is_last=True)
    slot = slot_of(bucket)
    group: Any = SimpleNamespace(rank=lambda: 0, size=lambda: 1)
    return ModelProbes(group, slot, [], 10, all_buckets=False, local=False), slot, bucket


def test_meetings_that_fail_are_bounded(
    probes: tuple[ModelProbes, BucketSlot, FakeBucket], caplog: pytest.LogCaptureFixture
) -> None:
    """Three, each counted; then one warning, and nothing is tried any more."""
    model, slot, bucket = probes
    sink: Any = Sink()
    for step in range(200):
        if step >= model.next_step:
            start = start_of(slot, step, bucket)
            model.enter(start, sink)
            assert not start.looks
    assert sink.pushed == [Loss("probe_failed", "RuntimeError: nobody came")] * 3
    assert model.next_step == OFF
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "compression error of net is no longer measured: 3 checks failed one after another, the "
        "last by RuntimeError: nobody came; training goes on"
    ]


def test_a_forked_child_says_nothing_to_the_other_ranks(
    probes: tuple[ModelProbes, BucketSlot, FakeBucket],
) -> None:
    """The connection to the store is its parent's."""
    model, _, _ = probes
    model.begin_in_child()
    model.leave()
    assert model._agreement.has_left() is None
    assert not model._agreement.is_over()
