"""What the ranks do in ``test_debug.py``: hooks that keep or change the bucket's memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.probes import debug_checks
from tests.distributed.models import anomalies, backward, gradients, make_ddp, make_model, train

STEPS = 16
CAP_MB = 0.004
Hook = Callable[..., Any]


def _run(hook: Hook, rank: int, state: object = None, **options: Any) -> tuple[list[Any], Any]:
    """Return the anomalies that debug mode alone found, and the gradients of all steps."""
    ddp = make_ddp(CAP_MB, **options)
    seen = []
    with Tracer(debug=True, error_every=0) as tracer:
        hooktrace.instrument(ddp, hook, state, tracer=tracer)
        for step in range(STEPS):
            ddp.zero_grad(set_to_none=step % 2 == 0)
            backward(ddp, rank, step)
            seen.append(gradients(ddp).clone())
        tracer.flush()
        found = tracer.anomalies()
    dist.barrier()
    return found, torch.stack(seen)


class Keeping:
    """An all-reduce that keeps something of the bucket; ``kept`` forgets all but the last."""

    def __init__(self, what: Callable[[Any], Any], *, last_only: bool) -> None:
        self.what = what
        self.last_only = last_only
        self.kept: dict[int, Any] = {}

    def __call__(self, state: Any, bucket: Any) -> Any:
        place = bucket.index() if self.last_only else len(self.kept)
        self.kept[place] = self.what(bucket)
        return default_hooks.allreduce_hook(None, bucket)


KEEPING: dict[str, Callable[[Any], Any]] = {
    "the buffer": lambda bucket: bucket.buffer(),
    "a view": lambda bucket: bucket.buffer()[1:3],
    "a detached alias": lambda bucket: bucket.buffer().detach(),
    "the gradients": lambda bucket: bucket.gradients(),
    "the bucket": lambda bucket: bucket,
    "numpy": lambda bucket: bucket.buffer().numpy(),
}
INNOCENT: dict[str, Callable[[Any], Any]] = {
    "a copy": lambda bucket: bucket.buffer().clone(),
    "a number": lambda bucket: float(bucket.buffer().norm()),
    "the parameters": lambda bucket: bucket.parameters(),
    "a shape": lambda bucket: bucket.buffer().shape,
}


def _early(change: Callable[[torch.Tensor], None], when: str) -> Hook:
    """Return a hook whose results change after they were given, when the next hook is called."""
    last: list[torch.Tensor] = []

    def early(state: Any, bucket: Any) -> Any:
        if last and when == "at the next bucket":
            change(last.pop())
        buffer = bucket.buffer()
        dist.all_reduce(buffer.div_(dist.get_world_size()))
        if not bucket.is_last():
            last[:] = [buffer]
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(buffer)
        return future

    return early


def _at_the_end(state: Any, bucket: Any) -> Any:
    """Average, and change the result of bucket 0 while DDP waits for the last one's."""
    buffer = bucket.buffer()
    dist.all_reduce(buffer.div_(dist.get_world_size()))
    if bucket.index() == 0:
        _first[:] = [buffer]
    elif bucket.is_last():
        first = _first.pop()
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: first.mul_(2))
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(buffer)
    return future


_first: list[torch.Tensor] = []


def _powersgd(state: Any, bucket: Any) -> Any:
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    future.wait()
    return future


def memory(rank: int) -> dict[str, Any]:
    """Return the (kind, bucket) pairs that debug mode found, by what a hook keeps or does."""
    found: dict[str, Any] = {}

    def note(name: str, hook: Hook, state: object = None, **options: Any) -> None:
        anomalies, _ = _run(hook, rank, state, **options)
        found[name] = sorted((a.kind, a.bucket) for a in anomalies)

    for name, what in (KEEPING | INNOCENT).items():
        for last_only in (True, False):
            hook = Keeping(what, last_only=last_only)
            note(f"{name}, {last_only}", hook, gradient_as_bucket_view=last_only)
    note("doubles", _early(lambda t: t.mul_(2), "at the next bucket"))
    note("doubles at the end", _at_the_end)
    note("touches nothing", _early(lambda t: None, "at the next bucket"))
    note("writes the same", _early(lambda t: t.mul_(1), "at the next bucket"))
    for views in (False, True):
        for name, hook, make_state in (
            ("allreduce", hooks.allreduce_hook, None),
            ("per tensor", hooks.quantization_pertensor_hook, None),
            ("powersgd", hooks.powerSGD_hook, hooks.PowerSGDState),
            ("noop", hooks.noop_hook, None),
            ("torch's fp16", default_hooks.fp16_compress_hook, None),
            ("torch's powersgd", _powersgd, powerSGD_hook.PowerSGDState),
        ):
            state = None if make_state is None else make_state(None, 1, 2)
            note(f"{name}, {views}", hook, state, gradient_as_bucket_view=views)
    note("unused", hooks.fp16_compress_hook, find_unused_parameters=True)
    note("static", hooks.fp16_compress_hook, static_graph=True)
    return found


def silent(rank: int) -> dict[str, list[tuple[str, int, int]]]:
    """Return (kind, step, bucket) of the anomalies of models that are used in different ways."""
    found = {}
    for name in (
        *("ddp", "ddp.module", "later ddp.module", "no_sync", "forward only in no_sync"),
        *("registered twice", "no clock"),
    ):
        ddp = make_ddp(CAP_MB)
        with Tracer(error_every=0) as tracer:
            traced = hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            if name == "registered twice":
                with suppress(RuntimeError):
                    hooktrace.instrument(ddp, hooks.fp16_compress_hook, tracer=tracer)
            elif name == "no clock":
                vars(traced)["_clock"] = lambda: 1 // 0
            for step in range(120):
                called: Any = ddp
                if name == "ddp.module" or (name == "later ddp.module" and step >= 9):
                    called = ddp.module
                inputs = torch.ones(2, 32)
                if name == "no_sync" and step < 119:
                    with ddp.no_sync():
                        called(inputs).sum().backward()
                elif name == "forward only in no_sync":
                    with ddp.no_sync():
                        outputs = called(inputs)
                    outputs.sum().backward()
                else:
                    called(inputs).sum().backward()
            tracer.flush()
            found[name] = [(a.kind, a.step, a.bucket) for a in anomalies(tracer)]
    return found


def shared(rank: int) -> dict[str, list[tuple[str, str]]]:
    """Return (kind, model) of anomalies where two DDP objects have parameters in common.

    Each is trained for more passes than the other may be silent for.
    """
    found = {}
    for name in ("one module", "one layer", "untraced", "the other one is gone"):
        with Tracer(error_every=0, align_clocks=False) as tracer:
            module = make_model()
            other = nn.Sequential(*module[:2], nn.Linear(32, 32)) if name == "one layer" else module
            ddps = [DistributedDataParallel(m, bucket_cap_mb=1.0) for m in (module, other)]
            for ddp in ddps[: 1 if name == "untraced" else 2]:
                hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            used = [ddps[1]] if name == "untraced" else ddps
            for ddp in used:
                for _ in range(120):
                    ddp(torch.ones(2, 32)).sum().backward()
            if name == "the other one is gone":
                del ddps, used, ddp
                gc.collect()
                ddp = DistributedDataParallel(module, bucket_cap_mb=1.0)
                hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
                for _ in range(220):
                    module(torch.ones(2, 32)).sum().backward()
            tracer.flush()
            found[name] = [(a.kind, a.model) for a in anomalies(tracer)]
        dist.barrier()
    return found


def joined_while_watched(rank: int) -> tuple[list[Any], int, int]:
    """Return anomalies, steps and complaints where rank 1 has half the data."""
    ddp = make_ddp(CAP_MB)
    with (
        mock.patch.object(debug_checks.logger, "exception") as complaints,
        Tracer(debug=True, error_every=0) as tracer,
    ):
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        with ddp.join():
            for step in range(20 if rank == 0 else 10):
                backward(ddp, rank, step)
        steps = len(tracer.steps())
        return tracer.anomalies(), steps, complaints.call_count


def untouched_by_debug(rank: int) -> dict[str, bool]:
    """Return by hook whether debug mode leaves the gradients as they are."""
    facts = {}
    for name, hook, state in (
        ("allreduce", hooks.allreduce_hook, lambda: None),
        ("powersgd", hooks.powerSGD_hook, lambda: hooks.PowerSGDState(None, 1, 2)),
        ("torch's", default_hooks.fp16_compress_hook, lambda: None),
    ):
        _, watched = _run(hook, rank, state())
        plain = train(hook, rank, steps=STEPS, state=state(), bucket_cap_mb=CAP_MB)
        facts[name] = torch.equal(watched, plain)
    return facts


def not_finite(rank: int) -> dict[str, list[tuple[str, int, int, str | None, int | None]]]:
    """Return the anomalies where rank 1's gradients have a NaN from step 3 on, and by an overflow.

    Each as (kind, step, bucket, parameter, rank).
    """
    found = {}
    for name, hook, scale in (
        ("came in", hooks.allreduce_hook, None),
        ("overflow", hooks.fp16_compress_hook, 1e6),
    ):
        ddp = make_ddp(CAP_MB)
        with Tracer(debug=True, error_every=0) as tracer:
            hooktrace.instrument(ddp, hook, tracer=tracer)
            for step in range(6):
                ddp.zero_grad()
                torch.manual_seed(rank)
                inputs = torch.randn(4, 32)
                if step == 3 and scale is None and rank == 1:
                    ddp.module[2].weight.register_hook(lambda g: g.fill_(float("nan")))
                loss = ddp(inputs).square().sum()
                (loss * scale if scale and step >= 3 else loss).backward()
            tracer.flush()
            found[name] = [
                (a.kind, a.step, a.bucket, a.parameter, a.rank) for a in tracer.anomalies()
            ]
        dist.barrier()
    return found
