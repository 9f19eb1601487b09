"""FSDP's own code on simulated streams: each wait of the computing stream is seen, and no other.

What a step exposes is what the computing stream stood still for, by the clocks of the streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, share_comm_ctx
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather
from torch.utils.checkpoint import checkpoint

from hooktrace import Tracer, fsdp
from hooktrace.fsdp import torch_groups, torch_waits
from hooktrace.records import BucketRecord
from hooktrace.staging.calls import BucketCall
from tests.staging.test_units import Reduces
from tests.versions import FINALISES_BY_HAND

from .simulated_streams import Block, SimulatedStreams

pytestmark = pytest.mark.skipif(
    not str(torch.__version__).startswith(torch_waits._KNOWN_VERSIONS),
    reason="where this torch's computing stream waits is not known",
)

FAST = {"all_gather": 4, "reduce_scatter": 7, "all_reduce": 9}
SLOW = {"all_gather": 33, "reduce_scatter": 41, "all_reduce": 57}

Setup = tuple[nn.Module, Callable[[], None]]


def alone() -> Tracer:
    """Return a tracer that is connected to nobody."""
    return Tracer(error_every=0, align_clocks=False, channel=False, run_id="fake")


def mesh_of(*shape: int) -> DeviceMesh:
    """Return a mesh of the four ranks, of which one is there."""
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")[-len(shape) :])


def blocks(device: SimulatedStreams, *shape: int, count: int = 3, **options: Any) -> Any:
    """Return a model of so many layers, each a unit; over four shards by default."""
    mesh = mesh_of(*(shape or (4,)))
    model = nn.Sequential(*(Block(device) for _ in range(count)))
    for block in model:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def train(model: nn.Module, *, to_input: bool = True) -> None:
    """Make a step; ``to_input``: backward through the first layer too."""
    model(torch.ones(2, 8, requires_grad=to_input)).sum().backward()


def groups_of(model: nn.Module) -> list[Any]:
    modules: list[Any] = [one for one in model.modules() if isinstance(one, FSDPModule)]
    return [group for one in modules for group in one._get_fsdp_state()._fsdp_param_groups]


def own_methods(model: nn.Module) -> list[str]:
    """Return which methods instances have, where their class's would do."""
    states = [one._get_fsdp_state() for one in model.modules() if isinstance(one, FSDPModule)]
    names = (*torch_waits._METHODS, torch_waits._END)
    return [name for one in (*groups_of(model), *states) for name in names & vars(one).keys()]


def exposed_ms(records: list[BucketRecord]) -> dict[str, float | None]:
    return {
        str(one.unit): None if one.exposed_ns is None else one.exposed_ns / 1e6 for one in records
    }


def names(collective: str, phase: str, *ms: float) -> dict[str, float]:
    """Return what the layers' collectives expose."""
    return {f"{i} {collective} ({phase})": one for i, one in enumerate(ms)}


HIDDEN = {
    **names("all-gather", "forward", 4, 0, 0),
    **names("all-gather", "backward", 0, 0, 0),
}

BY_HAND: dict[str, tuple[dict[str, int], tuple[int, ...], dict[str, float]]] = {
    # Forward is 10 ms a layer, backward 20.  Gathers end at 4, 8 and 12, and are needed at 0, 14
    # and 24; in backward at 28, 38 and 58, needed at 34, 54 and 74.  The scatters of layers 2 and 1
    # are 54 to 61 and 74 to 81, waited for at 74 and 94; that of layer 0 is 94 to 101, at the end.
    "overlapped": (FAST, (4,), {**HIDDEN, **names("reduce-scatter", "backward", 7, 0, 0)}),
    # Forward gathers are 0 to 14, 14 to 28, 28 to 42, needed at 0, 24, 38, and backward begins with
    # 42 to 56, needed at 52; then 56 to 70, needed at 76.
    "late gathers": (
        FAST | {"all_gather": 14},
        (4,),
        {
            **names("all-gather", "forward", 14, 4, 4),
            **names("all-gather", "backward", 0, 0, 4),
            **names("reduce-scatter", "backward", 7, 0, 0),
        },
    ),
    # 54 to 81, and layer 1 wants the memory of its input at 74; 81 to 108, wanted at 101; then the
    # last one, 108 to 135, which nothing hides.
    "recycling": (
        FAST | {"reduce_scatter": 27},
        (4,),
        {**HIDDEN, **names("reduce-scatter", "backward", 27, 7, 7)},
    ),
    # Scatters as when overlapped, and what is reduced over the replicas 61 to 76, 81 to 96, and 101
    # to 116.  At 94 all is waited for: layer 1's until 96, layer 0's scatter until 101, its
    # all-reduce until 116.
    "replicas": (
        FAST | {"all_reduce": 15},
        (2, 2),
        {
            **HIDDEN,
            **names("reduce-scatter", "backward", 5, 0, 0),
            **names("all-reduce", "backward", 15, 2, 0),
        },
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_is_exposed_by_hand(name: str) -> None:
    """Of each call, ms; the step's is their sum."""
    takes, shape, expected = BY_HAND[name]
    with SimulatedStreams(**takes) as device, alone() as tracer:
        model = blocks(device, *shape)
        fsdp.trace(model, tracer=tracer)
        train(model)
        tracer.flush()
        assert tracer.losses() == {}
        assert exposed_ms(tracer.buckets()) == expected
        assert [one.exposed_ns for one in tracer.steps()] == [sum(expected.values()) * 1e6]


def plain(device: SimulatedStreams) -> Setup:
    """Gradients of the first layer are reduced in the end of the pass."""
    model = blocks(device)
    return model, lambda: train(model, to_input=False)


def as_is(count: int, *shape: int, **options: Any) -> Callable[[SimulatedStreams], Setup]:
    """Return what makes a model of so many layers, over this mesh, and trains it."""

    def made(device: SimulatedStreams) -> Setup:
        model = blocks(device, *shape, count=count, **options)
        return model, lambda: train(model)

    return made


def several_inputs_kept(device: SimulatedStreams) -> Setup:
    """A reduce-scatter is waited for three layers later."""
    model = blocks(device, 2, 2, count=6)
    model.set_reduce_scatter_max_input_buffers(3)
    return model, lambda: train(model)


def accumulated(device: SimulatedStreams) -> Setup:
    """Over three micro-steps: nothing is reduced, then over the shards, then all."""
    model = blocks(device, 2, 2)

    def step() -> None:
        model.set_requires_gradient_sync(False)
        train(model)
        model.set_requires_gradient_sync(True)
        model.set_requires_all_reduce(False)
        train(model)
        model.set_requires_all_reduce(True)
        train(model)

    return model, step


def prefetched(device: SimulatedStreams) -> Setup:
    """Two layers ahead in forward, one in backward, as set."""
    model = blocks(device, count=5)
    layers: list[FSDPModule] = list(model)
    for i, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 3])
    for layer, following in pairwise(reversed(layers)):
        layer.set_modules_to_backward_prefetch([following])
    return model, lambda: train(model)


def reduced_twice(device: SimulatedStreams) -> Setup:
    """Passes inside another one: a unit waits for what it has reduced itself in the one before."""
    model = blocks(device, 2, 2)
    model.set_reduce_scatter_max_input_buffers(9)

    def passes() -> None:
        for is_last in (False, True):
            model.set_is_last_backward(is_last)
            with torch.enable_grad():
                train(model)

    return model, lambda: Reduces.apply(torch.ones(1, requires_grad=True), passes).backward()


def by_hand(device: SimulatedStreams) -> Setup:
    """The script waits for what the pass has reduced, after some work of its own."""
    model = blocks(device)
    model.set_manual_backward_finalization(True)

    def step() -> None:
        train(model)
        device.run(3)
        model.finalize_backward()

    return model, step


def by_hand_later(device: SimulatedStreams) -> Setup:
    """Two passes are reduced together by the script, which works on and then waits."""
    model = blocks(device, 2, 2)
    model.set_manual_backward_finalization(True)

    def step() -> None:
        model.set_requires_gradient_sync(False)
        train(model)
        train(model)
        model.set_requires_gradient_sync(True)
        handle = model.finalize_backward(async_op=True)
        device.run(11)
        handle.wait()

    return model, step


class Chunks(nn.Module):
    """A trunk, and a head that the loss calls for itself, chunk by chunk."""

    def __init__(self, device: SimulatedStreams) -> None:
        super().__init__()
        self.trunk, self.norm, self.head = Block(device), Block(device), Block(device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.norm(self.trunk(x))
        return found


def partly_called(device: SimulatedStreams) -> Setup:
    """Two modules are one unit, of which each backward pass of a chunk has one."""
    model, mesh = Chunks(device), mesh_of(4)
    fully_shard(model.trunk, mesh=mesh)
    fully_shard([model.norm, model.head], mesh=mesh)
    fully_shard(model, mesh=mesh)

    def step() -> None:
        out = model(torch.ones(2, 8))
        leaf = out.detach().requires_grad_()
        for chunk in leaf.chunk(2):
            model.head(chunk).sum().backward()
            device.run(1)
        out.backward(leaf.grad)

    return model, step


def unsharded_before(device: SimulatedStreams) -> Setup:
    """On the computing stream itself, and beside it."""
    model = blocks(device)

    def step() -> None:
        model[0].unshard()
        handles = [model[i].unshard(async_op=True) for i in (1, 2)]
        device.run(2)
        for handle in reversed(handles):
            handle.wait()
            device.run(5)
        train(model)

    return model, step


def checkpointed(device: SimulatedStreams) -> Setup:
    """Layers compute again in backward."""
    model = blocks(device)
    for block in model:
        inner = block.forward
        block.forward = lambda x, inner=inner: checkpoint(inner, x, use_reentrant=False)
    return model, lambda: train(model)


def not_needed(device: SimulatedStreams) -> Setup:
    """A layer is gathered again after its last use, and waited for at the end."""
    model = blocks(device, count=4)
    model[0].set_modules_to_backward_prefetch([model[3]])
    return model, lambda: train(model)


def two_roots(device: SimulatedStreams) -> Setup:
    """Each with streams of its own."""
    model = nn.Sequential(blocks(device), blocks(device, 2, 2))
    return model, lambda: train(model)


def own_gathers(device: SimulatedStreams) -> Setup:
    """Gathers that are somebody's own."""

    class Own(DefaultAllGather):
        """Like torch's."""

    model = blocks(device)
    for block in model:
        block.set_custom_all_gather(Own())
    return model, lambda: train(model)


def evaluated_between(device: SimulatedStreams) -> Setup:
    """What is gathered then is of no step, nor is it waited for in one."""
    model = blocks(device)

    def step() -> None:
        train(model)
        at = device.standstill_ms()
        with torch.no_grad():
            model(torch.ones(2, 8))
        device.beside_ms += device.standstill_ms() - at

    return model, step


SETUPS = {
    **({one.__name__: one for one in (by_hand, by_hand_later)} if FINALISES_BY_HAND else {}),
    "replicas": as_is(5, 2, 2),
    "nothing but the all-reduce": as_is(3, 4, 1),
    "nothing is gathered in backward": as_is(3, reshard_after_forward=False),
    "gathers in backward are of a smaller group": as_is(3, reshard_after_forward=2),
    **{
        setup.__name__: setup
        for setup in (
            *(plain, several_inputs_kept, accumulated, prefetched, reduced_twice, partly_called),
            *(unsharded_before, checkpointed, not_needed, two_roots, own_gathers),
            evaluated_between,
        )
    },
}


@pytest.mark.parametrize("takes", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("setup", SETUPS)
def test_steps_expose_what_the_computing_stream_stood_still_for(
    setup: str, takes: dict[str, int]
) -> None:
    """Exactly: streams copy and divide in no time here."""
    with SimulatedStreams(**takes) as device, alone() as tracer:
        model, step = SETUPS[setup](device)
        fsdp.trace(model, tracer=tracer)
        for _ in range(3):
            step()
        tracer.flush()
        exposed = [one.exposed_ns for one in tracer.steps()]
        assert None not in exposed
        assert sum(exposed) == (device.standstill_ms() - device.beside_ms) * 1_000_000 > 0  # type: ignore[arg-type]
        assert tracer.losses() == {}
        for bucket in tracer.buckets():
            assert bucket.device is not None
            assert bucket.exposed_ns is not None
            assert bucket.exposed_ns <= bucket.device.done_ns - bucket.device.ready_ns


def test_models_that_share_streams() -> None:
    """The end of one's pass waits for what the other has reduced; each has its own part of it."""
    with SimulatedStreams(**SLOW) as device, alone() as tracer:
        first, second = blocks(device), blocks(device)
        share_comm_ctx([first, second])
        for model in (first, second):
            fsdp.trace(model, tracer=tracer)
        for _ in range(3):
            train(nn.Sequential(first, second))
        tracer.flush()
        assert tracer.losses() == {}
        assert len(tracer.steps()) == 6
        exposed = [one.exposed_ns for one in tracer.steps()]
        assert sum(exposed) == device.standstill_ms() * 1_000_000  # type: ignore[arg-type]


def test_what_is_waited_for_after_its_step_is_not_known() -> None:
    """A pass that is not the last one leaves its last reduction to the next one, and says so."""
    with SimulatedStreams(**FAST) as device, alone() as tracer:
        model = blocks(device)
        fsdp.trace(model, tracer=tracer)
        model.set_is_last_backward(False)
        train(model)
        model.set_is_last_backward(True)
        train(model)
        tracer.flush()
        unfinished, ended = tracer.steps()
        assert (unfinished.exposed_ns, unfinished.complete) == (None, True)
        known = exposed_ms(tracer.buckets()[:9])
        assert [name for name, ms in known.items() if ms is None] == ["0 reduce-scatter (backward)"]
        assert ended.exposed_ns is not None
        assert tracer.losses() == {}


def test_tracing_again_and_removing() -> None:
    """One wait is told of once; then all is as it was, the inputs that are kept among it."""
    with SimulatedStreams(**SLOW) as device, alone() as tracer:
        model = blocks(device)
        train(model)
        at = device.standstill_ms()
        fsdp.trace(model, tracer=tracer)
        traced = fsdp.trace(model, tracer=tracer)
        train(model)
        tracer.flush()
        assert [one.exposed_ns for one in tracer.steps()] == [
            (device.standstill_ms() - at) * 1_000_000
        ]
        model.set_is_last_backward(False)
        train(model)
        (context,) = {id(one.comm_ctx): one.comm_ctx for one in groups_of(model)}.values()
        kept = list(context.reduce_scatter_states)
        assert len(kept) == 1
        traced.remove()
        assert own_methods(model) == []
        assert type(context.reduce_scatter_states) is list
        assert [*map(id, context.reduce_scatter_states)] == [*map(id, kept)]
        model.set_is_last_backward(True)
        train(model)
        assert context.reduce_scatter_states == []


def test_events_are_used_again() -> None:
    """Each goes back once, also where several calls have it."""
    with SimulatedStreams(**SLOW) as device, alone() as tracer:
        model = blocks(device, 2, 2)
        fsdp.trace(model, tracer=tracer)
        created = []
        for _ in range(4):
            train(model)
            tracer.flush()
            pool = tracer.event_pool
            free = [event for of_device in pool._free.values() for event in of_device]
            assert len({*map(id, free)}) == len(free)
            created.append(pool.created)
        assert created[1:] == created[:1] * 3


def test_a_call_that_lost_its_stamps_is_unknown_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waited for together with it is known."""
    over = BucketCall.over

    def lost(call: BucketCall) -> None:
        over(call)
        if call.slot.unit is not None and str(call.slot.unit).startswith("0 reduce-scatter"):
            call.lose_stamps(RuntimeError("a clock"))

    monkeypatch.setattr(BucketCall, "over", lost)
    with SimulatedStreams(**FAST) as device, alone() as tracer:
        model = blocks(device, 2, 2)
        fsdp.trace(model, tracer=tracer)
        train(model)
        tracer.flush()
        found = exposed_ms(tracer.buckets())
        assert [name for name, ms in found.items() if ms is None] == ["0 reduce-scatter (backward)"]
        assert found["0 all-reduce (backward)"] == 9
        assert [one.exposed_ns for one in tracer.steps()] == [None]


def test_a_group_on_a_cpu_is_left_alone() -> None:
    """Beside others that are on a device."""
    with SimulatedStreams(**FAST) as device, alone() as tracer:
        model = blocks(device)
        one, *others = torch_groups.groups_of(model)
        with pytest.MonkeyPatch.context() as patch:  # which ends before that of the streams
            patch.setattr(torch_waits, "has_events", lambda device: False)
            assert torch_waits.watched(one, tracer.unit_waits) is None
            assert not torch_waits.can_watch([one, *others], "net")
        assert own_methods(model) == []


def test_methods_that_others_have_put_there() -> None:
    """One from before is called, and there again; one from after stays."""
    called: list[str] = []
    with SimulatedStreams(**FAST) as device, alone() as tracer:
        model = blocks(device)
        group, *_ = groups_of(model)
        torchs = group.finalize_backward

        def before() -> None:
            called.append("before")
            torchs()

        group.finalize_backward = before
        traced = fsdp.trace(model, tracer=tracer)
        ours = group.post_backward

        def after(*args: Any) -> None:
            called.append("after")
            ours(*args)

        group.post_backward = after
        train(model)
        traced.remove()
        assert called == ["after", "before"]
        assert group.finalize_backward is before
        assert group.post_backward is after
        train(model)
        assert type(group.comm_ctx.reduce_scatter_states) is list


def test_an_event_that_fails_leaves_it_unknown() -> None:
    """Of those that it was for; it is counted, and training goes on."""
    with SimulatedStreams(**FAST) as device, alone() as tracer:
        model = blocks(device)
        fsdp.trace(model, tracer=tracer)
        device.fails_on = device.computing
        train(model)
        device.fails_on = None
        train(model)
        tracer.flush()
        failed, well = tracer.steps()
        assert (failed.exposed_ns, failed.complete) == (None, True)
        assert failed.communication_ns is not None
        assert well.exposed_ns is not None
        # Six gathers, two inputs that are used again, and the end.
        assert tracer.losses() == {"stamp_failed": 9}


def test_what_raises_beside_the_event_is_no_matter_of_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where another version of FSDP has other names: it is counted, and nothing is known."""

    def gone(*_: Any, **__: Any) -> None:
        raise AttributeError("reduce_scatter_stream")

    with SimulatedStreams(**FAST) as device, alone() as tracer:
        model = blocks(device)
        fsdp.trace(model, tracer=tracer)
        monkeypatch.setattr(tracer.unit_waits, "before", gone)
        train(model)
        tracer.flush()
        assert {one.exposed_ns for one in tracer.buckets()} == {None}
        assert [(one.exposed_ns, one.complete) for one in tracer.steps()] == [(None, True)]
        assert tracer.losses()["stamp_failed"] > 0


@pytest.mark.parametrize(
    ("where", "what", "other"),
    [
        (torch_waits, "_OF_GROUPS", (*torch_waits._OF_GROUPS, "unheard_of")),
        (torch, "__version__", "2.16.0+cu130"),
    ],
)
def test_another_version_of_torch(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: Any,
    what: str,
    other: object,
) -> None:
    """Of other names, or of which nobody has looked: nothing is touched, and that is said."""
    monkeypatch.setattr(where, what, other)
    with SimulatedStreams(**FAST) as device, alone() as tracer:
        model = blocks(device)
        with caplog.at_level(logging.WARNING, "hooktrace"):
            fsdp.trace(model, tracer=tracer, name="net")
        assert caplog.messages == [
            f"where the computing stream of torch {torch.__version__} waits for FSDP's "
            "collectives is not known to hooktrace, so what is exposed of net is not known; use "
            "torch 2.13, 2.14 or 2.15"
        ]
        assert own_methods(model) == []
        train(model)
        tracer.flush()
        (step,) = tracer.steps()
        assert (step.exposed_ns, step.complete) == (None, True)
        assert tracer.losses() == {}
