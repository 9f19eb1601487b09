"""How the probes of a model end for good, where its ranks cannot connect."""

from __future__ import annotations

import logging
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
from tests.probes.fakes import Sink, bucket_of, future_of, slot_of, start_of


class Job(Sink):
    """The probes of a model of one bucket and one rank, which cannot connect; and its tracer."""

    error_every, error_all_buckets, error = 10, False, "global"

    def __init__(self) -> None:
        super().__init__()
        self.bucket = bucket_of((3,))
        self.slot = slot_of(self.bucket)
        self.slot.is_last = True
        group: Any = SimpleNamespace(rank=lambda: 0, size=lambda: 1)
        tracer: Any = self
        self.probes = ModelProbes(group, self.slot, [], tracer, local=False)

    def step(self, number: int) -> None:
        start, tracer, result = start_of(self.slot, number, self.bucket), self, torch.ones(3)
        self.probes.enter(start, tracer)  # type: ignore[arg-type]
        for probe in start.looks:
            assert probe.join(future_of(result)).wait() is result

    @property
    def losses(self) -> list[Loss]:
        return [one for one in self.pushed if isinstance(one, Loss)]


@pytest.fixture(autouse=True)
def _nobody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a store, through which no rank connects to another one."""
    store = HashStore()
    for name in ("job_store", "rendezvous_store"):
        monkeypatch.setattr(plan_module, name, lambda _: store)
    nobody = mock.Mock(side_effect=RuntimeError("nobody came"))
    monkeypatch.setattr(model_module, "PrivateGroup", nobody)
    monkeypatch.setattr(plan_module.dist, "get_process_group_ranks", lambda group: [0])


def test_connections_that_fail_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    """Three, each counted; then one warning, and nothing is tried any more."""
    job = Job()
    for step in range(200):
        if step >= job.probes.next_step:
            job.step(step)
    assert job.losses == [Loss("check_failed", "RuntimeError: nobody came")] * 3
    assert job.probes.next_step == OFF
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == [
        "compression error of net is no longer measured: 3 checks failed one after another, the "
        "last by RuntimeError: nobody came; training goes on"
    ]
