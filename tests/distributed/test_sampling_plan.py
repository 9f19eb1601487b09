"""Which probes of a model take place, as its ranks agree on them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.probes.model import PrivateGroup
from hooktrace.probes.probe import Probe
from hooktrace.ranks import native_calls
from hooktrace.tracing.traced_hook import TracedHook
from tests.distributed.harness import Ranks, on, scenario
from tests.distributed.models import anomalies, backward, gradients, heard, make_ddp
from tests.distributed.test_probes import CAP_MB, FIRST, STEPS, Probed, checked_of
from tests.versions import BROADCASTS_COMPLEX

pytestmark = pytest.mark.slow


@scenario(apart=True)  # a rank that traces alone counts models that others do not
def schedules(rank: int) -> dict[str, Any]:
    """Return which (step, bucket) are checked of two models, and what ranks say that disagree."""
    facts: dict[str, Any] = {}
    with Tracer(error_every=3) as tracer:
        first, second = make_ddp(CAP_MB), make_ddp(0.006)
        for ddp in (first, second):
            hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(30):
            with first.no_sync():
                backward(first, rank, step)
            backward(first, rank, step)
            backward(second, rank, step)
        facts["checked"] = [checked_of(tracer, name) for name in ("model0", "model1")]
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=1) as tracer:
        hook = hooks.allreduce_hook
        ddp.register_comm_hook(None, hook if rank else hooktrace.trace(hook, tracer=tracer))
        for step in range(20):
            backward(ddp, rank, step)
        assert checked_of(tracer) == []
    wishes: tuple[tuple[dict[str, Any], bool], ...] = (
        ({"error_every": 1 + rank}, False),
        ({"error_every": 1, "error_all_buckets": rank == 1}, False),
        ({"error_every": 1}, rank == 1),
    )
    with heard("is no longer measured") as facts["different wishes"]:
        # Other layers than before: of models that are alike rank 0 has traced one more.
        for layers, (options, local) in enumerate(wishes, 2):
            with Tracer(align_clocks=False, **options) as tracer:
                ddp = make_ddp(CAP_MB, layers)
                hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer, local=local)
                for step in range(20):
                    backward(ddp, rank, step)
                assert checked_of(tracer) == []
    return facts


def test_ranks_agree_on_what_is_checked(two: Ranks) -> None:
    """Two models and no_sync: the same buckets on both ranks; nothing where they cannot agree."""
    both = two.run(schedules)
    assert both[0]["checked"] == both[1]["checked"]
    for checked in both[0]["checked"]:
        assert [step for step, _ in checked] == [*range(3, 30, 3)]
    for facts in both:
        said = [
            ("error_every=1", "error_every=2"),
            ("error_all_buckets=False", "error_all_buckets=True"),
            ("local=False", "local=True"),
        ]
        for message, wishes in zip(facts["different wishes"], said, strict=True):
            assert "is no longer measured: " in message
            assert all(f"{wish}" in message for wish in wishes)
            assert "on rank 0" in message
            assert message.endswith("on rank 1; give all the same; training goes on")


PAUSES = {(14, 1), (110, 0)}
"""Steps at which a rank pauses for longer than probes wait."""


@mock.patch("hooktrace.probes.plan._TIMEOUT", timedelta(seconds=2))
@mock.patch("hooktrace.probes.plan._MOST_SILENT", 10)
def paused(rank: int) -> tuple[Probed, int, list[str]]:
    ddp = make_ddp(CAP_MB)
    with (
        heard("check") as said,
        Tracer(error_every=1, align_clocks=False) as tracer,
    ):
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        for step in range(180):
            if (step, rank) in PAUSES:
                time.sleep(4)
            ddp.zero_grad()
            backward(ddp, rank, step)
        tracer.flush()
        assert anomalies(tracer) == []
        return checked_of(tracer), tracer.losses().get("check_failed", 0), said


def test_ranks_meet_again_after_a_pause(two: Ranks) -> None:
    """At the next step; the same ones are checked on both, and warnings say it.

    On a busy machine a rank may come too late once more, and they meet again after that.
    """
    ranks = two.run(paused)
    first, second = (checked for checked, _, _ in ranks)
    assert first == second
    steps = {step for step, _ in first}
    assert {11, 12, 13} <= steps
    for paused_at, _ in PAUSES:
        assert paused_at not in steps
        assert {*range(paused_at + 60, paused_at + 70)} <= steps
    assert min(failed for _, failed, _ in ranks) >= len(PAUSES)
    why = "not all ranks came to the same place of step 14 within 2 s"
    for _, _, (once, lost) in ranks:
        assert f"is not measured at step 14: {why}" in once
        assert lost.startswith(f"1 record(s) lost (check_failed: {why}")
        assert "all are asked again at the next one" in lost


@on(2)
def test_a_rank_without_data_is_checked_with_the_others(rank: int) -> None:
    """Under join() its dummy steps have the same steps and buckets."""
    ddp = make_ddp(CAP_MB)
    with Tracer(error_every=1) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        with ddp.join():
            for step in range(14 if rank == 1 else STEPS):
                backward(ddp, rank, step)
        found = [b for b in tracer.buckets() if b.error is not None]
    assert [(b.step, b.bucket) for b in found] == [(s, (s - FIRST) % 6) for s in range(FIRST, 20)]
    assert sum(b.join_dummy for b in found) == 6 * rank


@on(4)
def test_a_model_on_some_ranks_is_compared_on_these(rank: int) -> None:
    """The group is ``instrument``'s; where nobody says which it is, it is not guessed."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = groups[rank // 2]

    def own_group(state: Any, bucket: Any) -> Any:
        work = dist.all_reduce(bucket.buffer().div_(2), group=mine, async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    for known in (True, False):
        ddp = make_ddp(CAP_MB, process_group=mine)
        with Tracer(error_every=1) as tracer:
            if known:
                hooktrace.instrument(ddp, own_group, tracer=tracer)
            else:
                ddp.register_comm_hook(None, hooktrace.trace(own_group, tracer=tracer))
            for step in range(STEPS):
                ddp.zero_grad()
                backward(ddp, rank, step)
                dist.barrier()
            errors = [b.error.relative_l2 for b in tracer.buckets() if b.error is not None]
            assert errors == ([0.0] * (STEPS - FIRST) if known else [])
            assert anomalies(tracer) == []


ODD: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "sparse": (lambda: nn.Embedding(10, 8, sparse=True), lambda: torch.randint(0, 10, (4,))),
    "complex": (
        lambda: nn.Linear(8, 8, dtype=torch.complex64),
        lambda: torch.randn(4, 8, dtype=torch.complex64),
    ),
}
"""Models, and their inputs."""


@on(2)
def test_gradients_that_cannot_be_checked_are_left_alone(rank: int) -> None:
    """Sparse ones have no flat form, complex ones come as pairs; training and records go on."""
    for name, (make, inputs) in ODD.items():
        if name == "complex" and not BROADCASTS_COMPLEX:
            continue
        seen = []
        with Tracer(error_every=1) as tracer:
            for traced in (False, True):
                torch.manual_seed(0)
                ddp = DistributedDataParallel(make())
                hook = default_hooks.allreduce_hook
                ddp.register_comm_hook(
                    None, hooktrace.trace(hook, tracer=tracer) if traced else hook
                )
                for step in range(STEPS):
                    ddp.zero_grad()
                    torch.manual_seed(1000 * rank + step)
                    ddp(inputs()).abs().sum().backward()
                (parameter, *_) = ddp.parameters()
                assert parameter.grad is not None
                seen.append(parameter.grad.to_dense() if name == "sparse" else parameter.grad)
            assert torch.equal(*seen)
            assert len(tracer.steps()) == STEPS
            assert anomalies(tracer) == []


LONG = 40
PATIENCE_S = 60
"""For which a probe waits for a rank that does not come."""

TROUBLES = ("copy", "join", "comparison", "clock", "group")
"""What fails once on rank 1."""


def _once(function: Callable[..., Any], at: int) -> Callable[..., Any]:
    """Return a function, which may be a method, that raises when it is called for the n-th time."""
    calls = itertools.count()

    def failing(*args: Any, **options: Any) -> Any:
        if next(calls) == at:
            raise MemoryError("of hooktrace's own")
        return function(*args, **options)

    return failing


def _trouble(kind: str, traced: TracedHook) -> AbstractContextManager[object]:
    if kind == "clock":  # a call a step
        return mock.patch.object(traced, "_clock", _once(traced._clock, 14))
    if kind == "group":
        return mock.patch("hooktrace.probes.model.PrivateGroup", _once(PrivateGroup, 0))
    name = {"copy": "__init__", "join": "join", "comparison": "_compare"}[kind]
    return mock.patch.object(Probe, name, _once(getattr(Probe, name), 2))


def _train_with(rank: int, kind: str | None) -> tuple[torch.Tensor, float, Tracer]:
    """Return gradients, the longest step in s, and the tracer, which is closed."""
    ddp = make_ddp(1.0)
    seen, longest = [], 0.0
    with Tracer(error_every=1 if kind else 0, align_clocks=False) as tracer:
        traced = hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        with _trouble(kind, traced) if kind and rank == 1 else mock.MagicMock():
            for step in range(LONG):
                ddp.zero_grad()
                begin = time.perf_counter()
                backward(ddp, rank, step)
                dist.barrier()  # as a loop that looks at all ranks' losses
                longest = max(longest, time.perf_counter() - begin)
                seen.append(gradients(ddp).clone())
        tracer.flush()
    return torch.stack(seen), longest, tracer


@on(2)
@scenario(deadline_s=240)
@mock.patch("hooktrace.probes.model._TIMEOUT", timedelta(seconds=PATIENCE_S))
def test_what_fails_on_one_rank_holds_nobody_up(rank: int) -> None:
    """The others do not wait for it until their timeout; all meet again, and gradients stay."""
    plain, *_ = _train_with(rank, None)
    for kind in TROUBLES:
        found, longest, tracer = _train_with(rank, kind)
        assert torch.equal(found, plain), kind
        assert longest < PATIENCE_S / 2, kind
        assert anomalies(tracer) == [], kind
        checked = [step for step, _ in checked_of(tracer)]
        assert len(checked) > LONG / 4, kind
        assert checked[-1] == LONG - 1, kind
        assert rank == 0 or sum(tracer.losses().values()) >= 1, kind
    assert native_calls.wait(PATIENCE_S)  # a process that ends waits for less
