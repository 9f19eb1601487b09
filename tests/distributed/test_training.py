"""Hooks and tracer on real gloo ranks: DDP's modes, compiled models, records, times."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    checkpoint_wrapper,
)
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import BucketRecord, Tracer, hooks, trace
from tests.distributed.comparison import SHAPES, Given, drawn
from tests.distributed.harness import on
from tests.distributed.models import (
    backward,
    gradients,
    make_ddp,
    make_model,
    make_steps,
    of_all_ranks,
    train,
)
from tests.fakes import calls_in_flight
from tests.staging.test_units import Reduces

MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
}


def bf16(state, bucket):  # DDP refuses annotations that are strings, and torch's name on gloo
    return default_hooks.bf16_compress_hook(state, bucket)


HOOKS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "allreduce": (hooks.allreduce_hook, default_hooks.allreduce_hook),
    "fp16": (hooks.fp16_compress_hook, default_hooks.fp16_compress_hook),
    "bf16": (hooks.bf16_compress_hook, bf16),
}


@pytest.mark.slow
@on(4)
def test_gradients_are_bit_identical(rank: int) -> None:
    """Staged, traced staged and traced torch hooks all give torch's own bits, in every mode."""
    for mode, options in MODES.items():
        for name, (ours, theirs) in HOOKS.items():
            reference = train(theirs, rank, **options)
            assert not torch.equal(reference[0], reference[1])
            # Unchecked: of a plain hook nobody knows the group where other tests have made some.
            with Tracer(error_every=0) as tracer:
                for hook in (ours, trace(ours, tracer=tracer), trace(theirs, tracer=tracer)):
                    assert torch.equal(train(hook, rank, **options), reference), (name, mode)
                assert len(tracer.steps()) == 10
                assert (tracer.losses(), tracer.failures()) == ({}, {})


@on(2)
def test_join_dummies_are_marked_and_counted(rank: int) -> None:
    """Rank 0 runs out of data; it goes on counting, so that all ranks agree on the number."""
    with Tracer() as tracer:
        ddp = make_ddp()
        ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
        with ddp.join():
            make_steps(ddp, rank, range(3 if rank == 0 else 5))
        steps = tracer.steps()
    assert [(s.step, s.join_dummy) for s in steps] == [(n, rank == 0 and n >= 3) for n in range(5)]
    assert len({s.bucket_count for s in steps[1:]}) == 1


class Doubler:
    """Hooks in the shapes that DDP itself refuses."""

    def method(self, first: Any, second: Any) -> Any:
        return default_hooks.allreduce_hook(first, second)

    def __call__(self, *args: Any) -> Any:
        return default_hooks.allreduce_hook(*args)


def annotated(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Have annotations that are strings, as everything in this file has."""
    return default_hooks.allreduce_hook(state, bucket)


OF_ANY_SHAPE: dict[str, Callable[..., Any]] = {
    "allreduce_hook": default_hooks.allreduce_hook,
    "annotated": annotated,
    "method": partial(Doubler().method),
    "Doubler": Doubler(),
    "<lambda>": lambda s, b: default_hooks.allreduce_hook(s, b),  # noqa: PLW0108
}


@on(2)
def test_hooks_of_any_shape_are_accepted(rank: int) -> None:
    """Functions, methods, partials, objects and lambdas work, keep a name, pickle if they can."""
    reference = train(default_hooks.allreduce_hook, rank)
    with Tracer() as tracer:
        for name, hook in OF_ANY_SHAPE.items():
            traced = trace(hook, tracer=tracer)
            assert traced.__name__ == name
            assert torch.equal(train(traced, rank), reference), name
            if name == "<lambda>":
                with pytest.raises((AttributeError, pickle.PicklingError)):
                    pickle.dumps(traced)
            else:
                copy = pickle.loads(pickle.dumps(traced))
                assert torch.equal(train(copy, rank), reference), name
    hooktrace.default_tracer().close()


def _check_bucket(bucket: BucketRecord, start: int, end: int) -> None:
    assert start < bucket.ready_ns < bucket.launched_ns < end
    assert bucket.model == "net"
    assert bucket.hook == "fp16_compress_hook"
    assert bucket.gradient_bytes == 4 * bucket.numel == 2 * (bucket.wire_bytes or 0)
    assert bucket.compression_ratio == 2.0
    assert [s.name for s in bucket.stages if s.name != "queue"] == [
        *["check"] * bucket.checked,  # where other ranks are asked whether they probe
        "compress",
        "wire",
        "decompress",
    ]
    edges = [bucket.ready_ns, *[s.end_ns for s in bucket.stages]]
    assert [s.start_ns for s in bucket.stages] == edges[:-1]
    assert edges[-1] == bucket.done_ns < end
    assert edges == sorted(edges)
    wire = next(s for s in bucket.stages if s.name == "wire")
    assert (wire.collective, wire.dtype, wire.derived) == ("all_reduce", "float16", True)


@on(2)
def test_records_hold_together(rank: int) -> None:
    """Stages are contiguous and fill the bucket; step numbers follow from the buckets'."""
    with Tracer() as tracer:
        ddp = make_ddp()
        hooktrace.instrument(ddp, hooks.fp16_compress_hook, tracer=tracer, model="net")
        start = time.perf_counter_ns()
        make_steps(ddp, rank, range(4))
        end = time.perf_counter_ns()
        steps, found, run = tracer.steps(), tracer.buckets(), tracer.run_info()
    assert (run.rank, run.world_size, run.backend) == (rank, 2, "gloo")
    # The ranks agree on it without a collective.
    assert len(run.run_id) == 32
    assert of_all_ranks(run.run_id) == [run.run_id] * 2
    for bucket in found:
        _check_bucket(bucket, start, end)
    for record in steps:
        own = [b for b in found if b.step == record.step]
        assert record.complete
        assert record.first_ready_ns == min(b.ready_ns for b in own)
        assert record.last_ready_ns == max(b.ready_ns for b in own)
        assert record.exposed_ns is not None  # and less where backward went on
        assert 0 <= record.exposed_ns <= record.done_ns - record.last_ready_ns
        assert record.wire_bytes is not None
        assert record.wire_bytes * 2 == record.gradient_bytes
    names = [p.name for b in tracer.assignments()[-1].buckets for p in b.parameters]
    assert sorted(names) == sorted(f"{i}.{p}" for i in range(6) for p in ("weight", "bias"))


DTYPES = [(torch.float32, torch.float64)[i // 2 % 2] for i in range(len(SHAPES))]

REBUILT: tuple[tuple[dict[str, Any], int], ...] = (
    ({}, 1),
    ({"static_graph": True, "gradient_as_bucket_view": True}, 2),
    ({"find_unused_parameters": True}, 0),
)
"""DDP's modes, and the step in which it rebuilds its buckets; 0 if it never does."""


@pytest.mark.slow
@on(2)
def test_two_dtypes_are_one_model_in_every_mode(rank: int) -> None:
    """Steps are whole and timed, averages right; before the rebuild a bucket for each dtype."""
    for options, at in REBUILT:
        with Tracer(error_every=2) as tracer:
            ddp = DistributedDataParallel(Given(SHAPES, DTYPES), bucket_cap_mb=0.005, **options)
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
            for step in range(6):
                ddp.zero_grad()
                ddp(drawn(rank, step, SHAPES, DTYPES)).backward()
                ranks = [drawn(r, step, SHAPES, DTYPES) for r in range(dist.get_world_size())]
                for parameter, *parts in zip(ddp.parameters(), *ranks, strict=True):
                    assert parameter.grad is not None
                    difference = parameter.grad - torch.stack(parts).mean(0)
                    assert difference.abs().max() < 1e-6, options
        steps, buckets = tracer.steps(), tracer.buckets()
        assert {step.model for step in steps} == {"model0"}
        assert [(step.step, step.complete) for step in steps] == [(n, True) for n in range(6)]
        assert all(s.exposed_ns is not None and s.communication_ns is not None for s in steps)
        for one in steps:
            own = [b.bucket for b in buckets if b.step == one.step]
            assert own == list(range(one.bucket_count))
        assert {b.dtype for b in buckets if b.step == 0} == {"float32", "float64"}
        assert (tracer.anomalies(), tracer.losses()) == ([], {})
        count = steps[-1].bucket_count
        found = [(s.rebuild, s.bucket_count, s.warmup) for s in steps]
        assert found[:at] == [(0, 2, True)] * at
        assert found[at:] == [(int(at > 0), count, at == 0 and n < 2) for n in range(at, 6)]
        assert count > 2


def _goes_on(tracer: Tracer) -> Callable[[], None]:
    """Return work until nothing is under way, and as long again as the step took until then.

    So it outlasts what the hook's own calls took, which is not backward's.
    """
    begun = time.monotonic()

    def work() -> None:
        while calls_in_flight(tracer):
            assert time.monotonic() < begun + 60, "buckets are under way for ever"
            time.sleep(0.001)
        time.sleep(time.monotonic() - begun)

    return work


def _traced(tracer: Tracer, name: str) -> DistributedDataParallel:
    ddp = make_ddp()
    ddp.register_comm_hook(None, trace(hooks.fp16_compress_hook, tracer=tracer, model=name))
    return ddp


@pytest.mark.slow
@on(2)
def test_what_later_backward_hides_is_not_exposed(rank: int) -> None:
    """A trunk's work and a second model's, which go on until all is there; then nothing is left."""
    with Tracer(error_every=0) as tracer:
        behind_trunk, first, second = (_traced(tracer, n) for n in ("trunk", "first", "second"))
        for _ in range(4):
            x = torch.randn(4, 32, requires_grad=True)
            behind_trunk(Reduces.apply(x, _goes_on(tracer))).square().sum().backward()
            y = second(torch.randn(4, 32))
            first(Reduces.apply(y, _goes_on(tracer))).square().sum().backward()
    steps = {name: tracer.steps(name) for name in ("trunk", "first", "second")}
    assert {name: len(found) for name, found in steps.items()} == dict.fromkeys(steps, 4)
    for step in (*steps["trunk"], *steps["first"]):
        assert step.done_ns > step.last_ready_ns
        assert step.exposed_ns == 0
    for step in steps["second"]:
        assert step.exposed_ns is not None
        assert step.exposed_ns <= step.done_ns - step.last_ready_ns
    assert any(step.exposed_ns for step in steps["second"])


def _checkpointed(layers: int) -> nn.Module:
    wrapped = (checkpoint_wrapper(m, CheckpointImpl.REENTRANT) for m in make_model(layers))
    return nn.Sequential(*wrapped)


@on(2)
def test_reentrant_checkpoints_have_their_steps(rank: int) -> None:
    """Hooks run in passes inside the pass: each step is there when backward returns, and timed."""
    with Tracer(error_every=0) as tracer:
        ddp = make_ddp(make=_checkpointed)
        ddp.register_comm_hook(None, trace(hooks.fp16_compress_hook, tracer=tracer))
        seen = []
        for _ in range(4):
            ddp(torch.randn(4, 32, requires_grad=True)).square().sum().backward()
            seen.append(len(tracer.steps()))
    assert seen == [1, 2, 3, 4]
    for step in tracer.steps():
        assert step.exposed_ns is not None
        assert step.exposed_ns <= step.done_ns - step.last_ready_ns


def trained(set_up: Callable[[Any, Any], object], rank: int) -> torch.Tensor:
    """Return the gradients of some steps of a compiled model; ``set_up``: of DDP's and of it."""
    torch._dynamo.reset()
    counters.clear()
    # Buckets below 1 MB torch's compiler refuses.
    ddp = DistributedDataParallel(make_model(3, width=512), bucket_cap_mb=1)
    compiled: nn.Module = torch.compile(ddp, backend="aot_eager")  # type: ignore[assignment]
    set_up(ddp, compiled)
    seen = []
    for step in range(4):
        ddp.zero_grad()
        backward(compiled, rank, step, width=512)
        seen.append(gradients(ddp).clone())
    assert counters["frames"]["ok"] > 0
    torch._dynamo.reset()
    return torch.stack(seen)


@pytest.mark.slow
@on(2)
def test_instrument_takes_a_compiled_model(rank: int) -> None:
    """Its buckets are traced under the names of the model that was compiled; no bit changes."""
    ours, theirs = hooks.fp16_compress_hook, default_hooks.fp16_compress_hook
    for hook, name, stock in (
        (ours, "fp16_compress_hook", lambda ddp, _: ddp.register_comm_hook(None, theirs)),
        (None, "ddp_allreduce", lambda ddp, compiled: None),
    ):
        expected = trained(stock, rank)
        with Tracer(error_every=0) as tracer:
            instrument = partial(hooktrace.instrument, hook=hook, tracer=tracer)
            found = trained(lambda _, compiled, to=instrument: to(compiled), rank)
        assert torch.equal(found, expected)
        assert [(s.hook, s.bucket_count) for s in tracer.steps()] == [(name, 1), *[(name, 3)] * 3]
        assert tracer.anomalies() == []
        names = {p.name for b in tracer.assignments()[-1].buckets for p in b.parameters}
        assert names == {f"{layer}.{kind}" for layer in range(3) for kind in ("weight", "bias")}
