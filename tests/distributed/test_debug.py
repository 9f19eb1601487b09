"""Debug mode, on 2 real gloo ranks."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.probes import debug_checks
from tests.distributed.comparison import serialised
from tests.distributed.harness import on
from tests.distributed.models import anomalies, backward, make_ddp, make_model, traced, train

pytestmark = pytest.mark.slow

STEPS = 16
CAP_MB = 0.004
BUCKETS = 6

Hook = Callable[..., Any]


def _run(hook: Hook, rank: int, state: object = None, **model: Any) -> tuple[list[Any], Any]:
    """Return the anomalies that debug mode alone found, and the gradients of all steps."""
    options: dict[str, Any] = {"debug": True, "error_every": 0, "steps": STEPS}
    tracer, seen = traced(hook, rank, state, model=model, **options)
    return tracer.anomalies(), seen


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


def _found(hook: Hook, rank: int, state: object = None, **options: Any) -> list[tuple[str, int]]:
    return sorted((a.kind, a.bucket) for a in _run(hook, rank, state, **options)[0])


@on(2)
def test_a_result_that_changes_after_its_future_completed_is_named(rank: int) -> None:
    """For each bucket that changed; the last one of a step did not."""
    changed = [("changed_after_completion", i) for i in range(BUCKETS)]
    assert _found(_early(lambda t: t.mul_(2), "at the next bucket"), rank) == changed[:-1]
    assert _found(_at_the_end, rank) == changed[:1]


@on(2)
def test_debug_mode_has_nothing_to_say_of_right_hooks(rank: int) -> None:
    """Hooktrace's and torch's, however DDP is set up."""
    assert _found(_early(lambda t: t.mul_(1), "at the next bucket"), rank) == []
    torchs = serialised(powerSGD_hook.powerSGD_hook)
    for views in (False, True):
        for hook, state in (
            (hooks.quantization_pertensor_hook, None),
            (hooks.powerSGD_hook, hooks.PowerSGDState(None, 1, 2)),
            (hooks.noop_hook, None),
            (torchs, powerSGD_hook.PowerSGDState(None, 1, 2)),
        ):
            assert _found(hook, rank, state, gradient_as_bucket_view=views) == [], hook
    for mode in ("find_unused_parameters", "static_graph"):
        assert _found(hooks.fp16_compress_hook, rank, **{mode: True}) == [], mode


@on(2)
def test_a_model_that_is_never_synchronised_is_named(rank: int) -> None:
    """After 100 backward passes; those under no_sync() are meant to be so."""
    found = {}
    for name in (
        *("ddp", "ddp.module", "later ddp.module", "no_sync", "forward only in no_sync"),
        "registered twice",
    ):
        ddp = make_ddp(CAP_MB)
        with Tracer(error_every=0) as tracer:
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            if name == "registered twice":
                with suppress(RuntimeError):
                    hooktrace.instrument(ddp, hooks.fp16_compress_hook, tracer=tracer)
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
    assert found == {
        "ddp": [],
        "no_sync": [],
        "registered twice": [],
        "ddp.module": [("not_synchronised", 0, -1)],
        "later ddp.module": [("not_synchronised", 8, -1)],
        "forward only in no_sync": [("not_synchronised", 0, -1)],
    }


@on(2)
def test_a_model_that_another_ddp_synchronises_trains_as_one(rank: int) -> None:
    """Its own hook is not called then; where there is no other DDP any more, it is named."""
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
    assert found == {
        "one module": [],
        "one layer": [],
        "untraced": [],
        "the other one is gone": [("not_synchronised", "model2")],
    }


@on(2)
def test_a_rank_that_has_run_out_of_data_is_watched_too(rank: int) -> None:
    """Its buckets are made for the purpose, outside any backward pass."""
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
    assert (tracer.anomalies(), steps, complaints.call_count) == ([], 20, 0)


@on(2)
def test_debug_mode_leaves_training_as_it_is(rank: int) -> None:
    """Bit for bit."""
    for hook, make in (
        (hooks.powerSGD_hook, lambda: hooks.PowerSGDState(None, 1, 2)),
        (default_hooks.fp16_compress_hook, lambda: None),
    ):
        _, watched = _run(hook, rank, make())
        plain = train(hook, rank, steps=STEPS, state=make(), bucket_cap_mb=CAP_MB)
        assert torch.equal(watched, plain)


@on(2)
def test_the_first_nan_has_its_step_parameter_and_rank(rank: int) -> None:
    """On the rank that had it; the other one says that it came from elsewhere."""
    for overflows, hook in ((False, hooks.allreduce_hook), (True, hooks.fp16_compress_hook)):
        ddp = make_ddp(CAP_MB)
        with Tracer(debug=True, error_every=0) as tracer:
            hooktrace.instrument(ddp, hook, tracer=tracer)
            for step in range(6):
                ddp.zero_grad()
                torch.manual_seed(rank)
                inputs = torch.randn(4, 32)
                if step == 3 and not overflows and rank == 1:
                    ddp.module[2].weight.register_hook(lambda g: g.fill_(float("nan")))
                loss = ddp(inputs).square().sum()
                (loss * 1e6 if overflows and step >= 3 else loss).backward()
            tracer.flush()
            found = {(a.kind, a.step, a.bucket, a.parameter, a.rank) for a in tracer.anomalies()}
        dist.barrier()
        if overflows:
            assert {(kind, at, r) for kind, at, *_, r in found} == {("nonfinite_average", 3, rank)}
        elif rank == 0:
            assert found == {("nonfinite_average", 3, 3, "2.weight", 0)}
        else:
            assert ("nonfinite_gradient", 3, 3, "2.weight", 1) in found
