"""What the ranks do in ``test_training.py`` with hooks, exporters and processes that fail."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import AllReduce, ReduceScatter, Tracer, hooks, trace
from hooktrace.exporters import OpenTelemetryExporter, RecordFileExporter
from tests.distributed.models import backward, train
from tests.ports import free_port


@hooktrace.staged
def fails_in_compress(state: Any, bucket: Any) -> Iterator[Any]:
    """Raise before the first collective."""
    raise ValueError("boom")
    yield


@hooktrace.staged
def fails_on_the_wire(state: Any, bucket: Any) -> Iterator[Any]:
    """Yield a collective that cannot be issued: the tensor does not divide by the ranks."""
    return (yield ReduceScatter(bucket.buffer()[:1]))


@hooktrace.staged
def fails_in_decompress(state: Any, bucket: Any) -> Iterator[Any]:
    """Raise after the collective."""
    yield AllReduce(bucket.buffer())
    raise ValueError("boom")


@hooktrace.staged
def yields_twice(state: Any, bucket: Any) -> Iterator[Any]:
    """Be multi-round without saying so."""
    first = yield AllReduce(bucket.buffer())
    return (yield AllReduce(first))


@hooktrace.staged
def returns_nothing(state: Any, bucket: Any) -> Iterator[Any]:
    """Forget the return statement."""
    yield AllReduce(bucket.buffer())


@hooktrace.staged(multi_round=True)
def fails_in_second_round(state: Any, bucket: Any) -> Iterator[Any]:
    """Raise between two collectives."""
    yield AllReduce(bucket.buffer())
    raise ValueError("boom")
    yield


def opaque_raises(state: Any, bucket: Any) -> Any:
    """Raise in the hook's call."""
    raise KeyError("opaque boom")


def opaque_returns_none(state: Any, bucket: Any) -> Any:
    """Return what makes DDP crash with a segmentation fault."""
    return None


def opaque_future_fails(state: Any, bucket: Any) -> Any:
    """Put an exception in the future, which DDP itself would read as the value."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_exception(ValueError("future boom"))
    return future


@hooktrace.staged
def staged_offset(state: Any, bucket: Any) -> Iterator[Any]:
    """Return a tensor that does not begin where its storage does."""
    buffer = yield AllReduce(bucket.buffer())
    return torch.cat([buffer, buffer])[buffer.numel() :]


@hooktrace.staged(multi_round=True)
def rounds_in_integers(state: Any, bucket: Any) -> Iterator[Any]:
    """Return integers."""
    buffer = yield AllReduce(bucket.buffer())
    return (yield AllReduce(buffer)).long()


WRONG_RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "nothing": lambda b: None,
    "number": lambda b: 3.0,
    "integers": lambda b: b.long(),
    "booleans": lambda b: b > 0,
    "complex": lambda b: torch.complex(b, b),
    "short": lambda b: b[:-1].clone(),
}
"""What the futures of wrong hooks hold; without hooktrace DDP takes half of them in silence."""

RIGHT_RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda b: b,
    "new": lambda b: b.clone(),
    "half": lambda b: b.half(),
    "double": lambda b: b.double(),
    "two dimensions": lambda b: b.clone().view(2, -1),
    "subclass": lambda b: nn.Parameter(b.clone()),
    "beginning": lambda b: torch.cat([b, b])[: b.numel()],
}
"""Unusual, and right: DDP reads or converts them as one would expect."""


class Gives:
    """An opaque hook whose future holds a function of the bucket's mean over ranks."""

    def __init__(self, name: str, function: Callable[[torch.Tensor], Any]) -> None:
        self.__name__ = self.__qualname__ = name
        self._function = function

    def __call__(self, state: Any, bucket: Any) -> Any:
        future = default_hooks.allreduce_hook(None, bucket)
        return future.then(lambda f: self._function(f.value()))


def own_future(state: Any, bucket: Any) -> Any:
    """Return the collective's own future, which holds a list."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future()


def right_results(rank: int) -> dict[str, tuple[float, int]]:
    """Return (largest difference from DDP's own over its largest gradient, anomalies) by kind."""
    reference = train(default_hooks.allreduce_hook, rank)
    facts = {}
    for name, function in RIGHT_RESULTS.items():
        with Tracer() as tracer:
            got = train(trace(Gives(name, function), tracer=tracer), rank)
            difference = (got - reference).abs().max() / reference.abs().max()
            facts[name] = difference.item(), len(tracer.anomalies())
    return facts


FAILING = (
    fails_in_compress,
    fails_on_the_wire,
    fails_in_decompress,
    yields_twice,
    returns_nothing,
    fails_in_second_round,
    opaque_raises,
    opaque_returns_none,
    opaque_future_fails,
    staged_offset,
    rounds_in_integers,
    own_future,
    *(Gives(name, function) for name, function in WRONG_RESULTS.items()),
)


def failures(rank: int) -> dict[str, tuple[str, str, list[tuple[str, str]], list[str | None]]]:
    """Return (exception, message, anomalies, exceptions on records) for hooks that fail."""
    facts = {}
    for hook in FAILING:
        name = hook.__name__
        with Tracer() as tracer:
            ddp = DistributedDataParallel(nn.Linear(4, 4))
            ddp.register_comm_hook(None, trace(hook, tracer=tracer))
            try:
                backward(ddp, rank, 0, width=4)
                raised = ("nothing", "")
            except Exception as error:
                raised = (type(error).__name__, str(error))
        facts[name] = (
            *raised,
            [(a.stage, a.message) for a in tracer.anomalies()],
            [b.exception for _, buckets in tracer._recent.steps() for b in buckets],
        )
        dist.barrier()
    return facts


def untraced_failures(rank: int) -> dict[str, str]:
    """Return what backward() raises for staged hooks that fail without being traced."""
    facts = {}
    for hook in FAILING[:6]:
        ddp = DistributedDataParallel(nn.Linear(4, 4))
        ddp.register_comm_hook(None, hook)
        try:
            backward(ddp, rank, 0, width=4)
            facts[hook.__name__] = "nothing"
        except Exception as error:
            facts[hook.__name__] = str(error)
        dist.barrier()
    return facts


class Raising:
    """An exporter that raises."""

    name = "raising"

    def export(self, batch: object) -> None:
        """Raise."""
        raise OSError("boom")

    def close(self) -> None:
        """Do nothing."""


def faults(rank: int) -> dict[str, Any]:
    """Train with everything around training broken; return (same gradients, closed, what is lost).

    An exporter that raises, a disk that is full, a backend that is down, a ring with room for one.
    """
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
    return {
        "same": torch.equal(result, reference),
        "closed": closed,
        "failures": tracer.failures(),
        "losses": tracer.losses(),
    }
