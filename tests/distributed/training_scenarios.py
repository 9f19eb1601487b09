"""What the ranks do in ``test_training.py``: each function runs on every rank and returns facts."""

from __future__ import annotations

import functools
import pickle
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import (
    AllGather,
    AllToAll,
    Broadcast,
    ReduceScatter,
    Tracer,
    hooks,
    trace,
)
from tests.distributed.models import backward, gradients, make_ddp, make_model, train

MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "static_graph": {"static_graph": True},
    "find_unused_parameters": {"find_unused_parameters": True},
    "gradient_as_bucket_view": {"gradient_as_bucket_view": True},
}


# torch's own bf16 hook under a name that DDP does not refuse on gloo; a lambda, since DDP refuses
# the annotations of functions in this file too: they are strings.
torch_bf16 = lambda state, bucket: default_hooks.bf16_compress_hook(state, bucket)  # noqa: E731, PLW0108


HOOKS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "allreduce": (hooks.allreduce_hook, default_hooks.allreduce_hook),
    "fp16": (hooks.fp16_compress_hook, default_hooks.fp16_compress_hook),
    "bf16": (hooks.bf16_compress_hook, torch_bf16),
}


def bit_identical(rank: int) -> dict[str, dict[str, bool]]:
    """Compare gradients of each hook in each mode: staged, traced, and traced torch's own."""
    facts = {}
    for mode, options in MODES.items():
        for name, (ours, theirs) in HOOKS.items():
            reference = train(theirs, rank, **options)
            with Tracer() as tracer:
                facts[f"{name} {mode}"] = {
                    "differs between steps": not torch.equal(reference[0], reference[1]),
                    "staged": torch.equal(train(ours, rank, **options), reference),
                    "staged, traced": torch.equal(
                        train(trace(ours, tracer=tracer), rank, **options), reference
                    ),
                    "torch's, traced": torch.equal(
                        train(trace(theirs, tracer=tracer), rank, **options), reference
                    ),
                    "all steps recorded": len(tracer.steps()) == 10,
                    "nothing lost": tracer.losses() == {} and tracer.failures() == {},
                }
    return facts


def generations(rank: int) -> dict[str, list[tuple[int, int, int, bool]]]:
    """Return (step, generation, buckets, warm-up) of each step, by mode."""
    facts = {}
    for mode, options in MODES.items():
        with Tracer() as tracer:
            train(trace(hooks.allreduce_hook, tracer=tracer), rank, **options)
            facts[mode] = [(s.step, s.generation, s.bucket_count, s.warmup) for s in tracer.steps()]
    return facts


def one_bucket_rebuilt(rank: int) -> list[tuple[int, tuple[str, ...]]]:
    """Return (generation, parameter names) of each layout of a model that fits in one bucket."""
    with Tracer() as tracer:
        ddp = DistributedDataParallel(nn.Linear(4, 4))
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(3):
            backward(ddp, rank, step, width=4)
        return [
            (layout.generation, tuple(one.name for one in layout.buckets[0].parameters))
            for layout in tracer.layouts()
        ]


def no_sync(rank: int) -> list[int]:
    """Return the recorded steps of four backward passes, two of them under no_sync."""
    with Tracer() as tracer:
        ddp = make_ddp()
        ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
        for step in range(4):
            if step % 2 == 0:
                with ddp.no_sync():
                    backward(ddp, rank, step)
            else:
                backward(ddp, rank, step)
        return [s.step for s in tracer.steps()]


def join(rank: int) -> list[tuple[int, bool, int]]:
    """Return (step, shadow, buckets): rank 0 runs out of data two steps before rank 1."""
    with Tracer() as tracer:
        ddp = make_ddp()
        ddp.register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
        with ddp.join():
            for step in range(3 if rank == 0 else 5):
                ddp.zero_grad()
                backward(ddp, rank, step)
        return [(s.step, s.shadow, s.bucket_count) for s in tracer.steps()]


class Doubler:
    """Hooks in the shapes that DDP itself refuses."""

    def method(self, first: Any, second: Any) -> Any:
        """Be a bound method with parameter names of its own."""
        return default_hooks.allreduce_hook(first, second)

    def __call__(self, *args: Any) -> Any:
        """Be a callable object with star arguments."""
        return default_hooks.allreduce_hook(*args)


def annotated(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Have annotations that are strings, as everything in this file has."""
    return default_hooks.allreduce_hook(state, bucket)


def opaque_shapes(rank: int) -> dict[str, tuple[bool, str, bool]]:
    """Return (same gradients, name, pickles) for hooks of unusual shape."""
    reference = train(default_hooks.allreduce_hook, rank)
    shapes: dict[str, Callable[..., Any]] = {
        "function": default_hooks.allreduce_hook,
        "annotated": annotated,
        "method": Doubler().method,
        "partial": functools.partial(Doubler().method),
        "object": Doubler(),
        "lambda": lambda s, b: default_hooks.allreduce_hook(s, b),  # noqa: PLW0108
    }
    facts = {}
    with Tracer() as tracer:
        for name, hook in shapes.items():
            traced = trace(hook, tracer=tracer)
            same = torch.equal(train(traced, rank), reference)
            try:
                copy = pickle.loads(pickle.dumps(traced))
                pickles = torch.equal(train(copy, rank), reference)
            except (AttributeError, pickle.PicklingError):
                pickles = False
            facts[name] = (same, traced.__name__, pickles)
    hooktrace.default_tracer().close()
    return facts


def pickled_model(rank: int) -> list[bool]:
    """Pickle a DDP model with a traced hook, and train the copy with the hook that it carries."""
    with Tracer() as tracer:
        ddp = make_ddp()
        ddp.register_comm_hook(None, trace(hooks.fp16_compress_hook, tracer=tracer))
        backward(ddp, rank, 0)
        copy = pickle.loads(pickle.dumps(ddp))
        # torch pickles the hooks with the model, but registers none of them in the copy.
        ((hook, state),) = copy._comm_hooks
        copy._comm_hooks.clear()
        copy.register_comm_hook(state, hook)
        ddp.zero_grad()
        copy.zero_grad()
        backward(ddp, rank, 1)
        backward(copy, rank, 1)
        default = hooktrace.default_tracer()
        facts = [
            torch.equal(gradients(ddp), gradients(copy)),
            len(tracer.steps()) == 2,
            len(default.steps()) == 1,
        ]
        default.close()
        return facts


def two_models(rank: int) -> dict[str, list[int]]:
    """Return the steps by model: two models in one backward pass, one hook and two."""
    with Tracer() as tracer:
        shared = trace(hooks.allreduce_hook, tracer=tracer, model="shared")
        models = [make_ddp() for _ in range(4)]
        models[0].register_comm_hook(None, shared)
        models[1].register_comm_hook(None, shared)
        models[2].register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
        models[3].register_comm_hook(None, trace(hooks.allreduce_hook, tracer=tracer))
        for step in range(4):
            torch.manual_seed(step)
            sum(m(torch.randn(4, 32)).sum() for m in models).backward()
        facts: dict[str, list[int]] = {}
        for record in tracer.steps():
            assert record.complete
            facts.setdefault(record.model, []).append(record.bucket_count)
        return facts


def record_facts(rank: int) -> dict[str, Any]:
    """Return records of the fp16 hook, with parameter names, and the run's identity."""
    with Tracer() as tracer:
        ddp = make_ddp()
        hooktrace.instrument(ddp, hooks.fp16_compress_hook, tracer=tracer, model="net")
        before = time.perf_counter_ns()
        for step in range(4):
            backward(ddp, rank, step)
        return {
            "window": (before, time.perf_counter_ns()),
            "steps": tracer.steps(),
            "buckets": tracer.buckets(),
            "layouts": tracer.layouts(),
            "run": tracer.run_info(),
        }


def other_group(rank: int) -> dict[str, bool]:
    """Reduce over groups that the hook's state names: both ranks anew, and this rank alone."""
    both = dist.new_group([0, 1])
    alone = [dist.new_group([other]) for other in range(2)][rank]
    facts = {}
    for name, group in (("both", both), ("alone", alone)):
        reference = train(default_hooks.allreduce_hook, rank, state=group)
        with Tracer() as tracer:
            traced = trace(hooks.allreduce_hook, tracer=tracer)
            facts[name] = torch.equal(train(traced, rank, state=group), reference)
    facts["the groups differ"] = not torch.equal(
        train(hooks.allreduce_hook, rank, state=alone), train(hooks.allreduce_hook, rank)
    )
    return facts


def compiled_models(rank: int) -> dict[str, dict[str, Any]]:
    """Instrument compiled models; compare with a compiled model that hooktrace does not know."""
    import torch._dynamo
    from torch._dynamo.utils import counters

    def run(set_up: Callable[[nn.Module, nn.Module], object]) -> torch.Tensor:
        torch._dynamo.reset()
        counters.clear()
        # Buckets below 1 MB torch's compiler refuses.
        ddp = DistributedDataParallel(make_model(3, width=512), bucket_cap_mb=1)
        compiled = torch.compile(ddp, backend="aot_eager")
        set_up(ddp, compiled)
        seen = []
        for step in range(4):
            ddp.zero_grad()
            backward(compiled, rank, step, width=512)
            seen.append(gradients(ddp).clone())
        assert counters["frames"]["ok"] > 0
        return torch.stack(seen)

    facts: dict[str, dict[str, Any]] = {}
    fp16 = default_hooks.fp16_compress_hook
    reference = {
        "fp16": run(lambda ddp, _: ddp.register_comm_hook(None, fp16)),
        "none": run(lambda ddp, compiled: None),
    }
    for name, hook in (("fp16", hooks.fp16_compress_hook), ("none", None)):
        with Tracer(error_every=0) as tracer:
            instrument = functools.partial(hooktrace.instrument, hook=hook, tracer=tracer)
            ours = run(lambda _, compiled, to=instrument: to(compiled))
            facts[name] = {
                "same bits": torch.equal(ours, reference[name]),
                "steps": [(step.hook, step.bucket_count) for step in tracer.steps()],
                "anomalies": [anomaly.kind for anomaly in tracer.anomalies()],
                "names": {p.name for b in tracer.layouts()[-1].buckets for p in b.parameters},
            }
    torch._dynamo.reset()
    return facts


def _nap(seed: int) -> None:
    """Take a random time: chains of different buckets must not depend on it."""
    time.sleep(random.Random(seed).random() * 0.002)


@hooktrace.staged(multi_round=True)
def every_collective(state: Any, bucket: Any) -> Iterator[Any]:
    """Average through a reduce-scatter and an all-gather, and check the others on the way."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    buffer = bucket.buffer()
    padded = nn.functional.pad(buffer / ranks, (0, -buffer.numel() % ranks))
    part = yield ReduceScatter(padded)
    _nap(rank * 7 + bucket.index())
    parts = yield AllGather(part)
    # A size that depends on the bucket: pairing two buckets' collectives up wrongly shows.
    sent = torch.arange(float(ranks * (bucket.index() + 1))) + 100 * rank
    received = yield AllToAll(sent)
    expected = [
        100 * other + rank * (bucket.index() + 1) + i
        for other in range(ranks)
        for i in range(bucket.index() + 1)
    ]
    assert received.tolist() == expected, (received, expected)
    _nap(rank * 13 + bucket.index())
    copied = yield Broadcast(torch.full((bucket.index() + 1,), float(rank)), ranks - 1)
    assert copied.tolist() == [ranks - 1.0] * (bucket.index() + 1)
    return parts.flatten()[: buffer.numel()]


def multi_round(rank: int) -> dict[str, Any]:
    """Run a four-round hook in all modes; return errors against an all-reduce, and records."""
    facts: dict[str, Any] = {"errors": {}}
    for mode, options in MODES.items():
        reference = train(default_hooks.allreduce_hook, rank, steps=10, **options)
        with Tracer() as tracer:
            result = train(trace(every_collective, tracer=tracer), rank, steps=10, **options)
            facts["errors"][mode] = (result - reference).abs().max().item()
            facts["buckets"] = tracer.buckets()
    # Two models, one of them single-round, on the same group in one backward pass.
    first, second = make_ddp(), make_ddp()
    first.register_comm_hook(None, every_collective)
    second.register_comm_hook(None, hooks.allreduce_hook)
    for step in range(10):
        first.zero_grad()
        second.zero_grad()
        torch.manual_seed(1000 * rank + step)
        data = torch.randn(4, 32)
        (first(data).square().sum() + second(data).square().sum()).backward()
    facts["two models"] = (gradients(first) - gradients(second)).abs().max().item()
    return facts
