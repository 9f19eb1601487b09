"""Hooks that fail, and wrong results: hook, bucket and stage are named."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllReduce, ReduceScatter, Tracer, hooks, trace
from hooktrace.exporters import OpenTelemetryExporter, RecordFileExporter
from tests.distributed.harness import on
from tests.distributed.models import backward, train
from tests.ports import free_port

Hook = Callable[..., Any]


@hooktrace.staged
def fails_in_compress(state: Any, bucket: Any) -> Iterator[Any]:
    raise ValueError("boom")
    yield


@hooktrace.staged
def fails_on_the_wire(state: Any, bucket: Any) -> Iterator[Any]:
    """Yield a collective that cannot be issued: the tensor does not divide by the ranks."""
    return (yield ReduceScatter(bucket.buffer()[:1]))


@hooktrace.staged
def fails_in_decompress(state: Any, bucket: Any) -> Iterator[Any]:
    yield AllReduce(bucket.buffer())
    raise ValueError("boom")


def plain_raises(state: Any, bucket: Any) -> Any:
    raise KeyError("plain boom")


def plain_returns_none(state: Any, bucket: Any) -> Any:
    """Return what makes DDP crash with a segmentation fault."""
    return None


def plain_future_fails(state: Any, bucket: Any) -> Any:
    """Put an exception in the future, which DDP itself would read as the value."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_exception(ValueError("future boom"))
    return future


STAGED: dict[Hook, tuple[str, str]] = {
    fails_in_compress: ("compress", "ValueError: boom"),
    fails_on_the_wire: ("wire", "pad the tensor"),
    fails_in_decompress: ("decompress", "ValueError: boom"),
}
"""Hooks that say the same when they are not traced: the stage and the reason."""

TRACED: dict[Hook, tuple[str, str]] = {
    plain_raises: ("hook", "KeyError: 'plain boom'"),
    plain_returns_none: ("hook", "returned None and not a future; return a torch.futures.Futu"),
    plain_future_fails: ("future_wait", "ValueError: future boom"),
}
"""DDP would crash, or train on wrong gradients; more in ``staging/test_hook_checks.py``."""


@pytest.mark.slow
@on(2)
def test_a_failing_hook_is_named_before_ddp_sees_its_result(rank: int) -> None:
    """Hook, bucket, stage and fix are in the error out of backward(), and on the record."""
    for hook, (stage, reason) in {**STAGED, **TRACED}.items():
        said = f"hook '{hook.__name__}', bucket 0, stage {stage}: "
        with Tracer() as tracer:
            raised = raised_by(trace(hook, tracer=tracer), rank)
        assert said in raised
        assert reason in raised
        (anomaly,) = tracer.anomalies()
        assert anomaly.stage == stage
        assert anomaly.message.endswith("since a raising hook leaves DDP's reducer broken")
        (recorded,) = [b.exception for _, bs in tracer._recent.steps() for b in bs]
        assert reason in (recorded or "")
        assert hook in TRACED or said in raised_by(hook, rank)


def raised_by(hook: Hook, rank: int) -> str:
    ddp = DistributedDataParallel(nn.Linear(4, 4))
    ddp.register_comm_hook(None, hook)
    with pytest.raises((hooktrace.HookError, RuntimeError)) as raised:
        backward(ddp, rank, 0, width=4)
    dist.barrier()
    return str(raised.value)


class Raising:
    name = "raising"

    def export(self, batch: object) -> None:
        raise OSError("boom")

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.slow
@on(2)
def test_faults_leave_training_alone(rank: int) -> None:
    """With everything around it broken at once, training gets the same bits and ends in time."""
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    reference = train(default_hooks.allreduce_hook, rank)
    with tempfile.TemporaryDirectory() as directory:
        exporters = [
            Raising(),
            RecordFileExporter(directory),
            OpenTelemetryExporter(close_seconds=2),
        ]
        tracer = Tracer(exporters, ring_capacity=1, interval_s=0.01)
        # Every write beyond this size fails, as on a full disk.
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
        try:
            hook = trace(hooks.allreduce_hook, tracer=tracer)
            result = train(hook, rank, each_step=tracer.flush)  # or only a layout may get through
            closed = tracer.close(20)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert torch.equal(result, reference)
    assert closed
    assert tracer.failures() == {"raising": 1, "record_file": 1}
    unsent = {"opentelemetry_spans", "opentelemetry_metric_exports"}
    assert set(tracer.losses()) == {"ring_full", "not_exported", *unsent}
