"""FSDP's own code on simulated streams: each wait of the computing stream is seen, no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.utils.checkpoint import checkpoint

from hooktrace import Tracer, fsdp
from hooktrace.fsdp import torch_waits
from hooktrace.records import StepRecord

from .simulated_streams import Block, SimulatedStreams

pytestmark = pytest.mark.skipif(
    not str(torch.__version__).startswith(torch_waits._TORCH_VERSIONS),
    reason="where this torch's computing stream waits is not known",
)

FAST = {"all_gather": 4, "reduce_scatter": 7, "all_reduce": 9}
SLOW = {"all_gather": 33, "reduce_scatter": 41, "all_reduce": 57}

Setup = tuple[nn.Module, Callable[[], None]]


class Traced:
    """A device on which models are traced by a tracer that is connected to nobody."""

    def __init__(self, takes: dict[str, int]) -> None:
        self.device = SimulatedStreams(**takes)

    def __enter__(self) -> Self:
        self.device.__enter__()
        self.tracer = Tracer(error_every=0, align_clocks=False, channel=False, run_id="fake")
        return self

    def __exit__(self, *_: object) -> None:
        self.tracer.close()
        self.device.__exit__()

    def trace(self, model: nn.Module, **options: Any) -> Any:
        return fsdp.trace(model, tracer=self.tracer, **options)

    @property
    def steps(self) -> list[StepRecord]:
        self.tracer.flush()
        return self.tracer.steps()

    @property
    def exposed_ms(self) -> dict[str, float | None]:
        """What each collective exposes."""
        self.tracer.flush()
        return {
            str(one.unit): None if one.exposed_ns is None else one.exposed_ns / 1e6
            for one in self.tracer.buckets()
        }


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


def names(collective: str, phase: str, *ms: float) -> dict[str, float]:
    return {f"{i} {collective} ({phase})": one for i, one in enumerate(ms)}


def test_what_is_exposed_by_hand() -> None:
    """Of each call, ms; the step's is their sum."""
    with Traced(FAST | {"all_reduce": 15}) as traced:
        model = blocks(traced.device, 2, 2)
        traced.trace(model)
        train(model)
        # Forward is 10 ms a layer, backward 20.  Gathers end at 4, 8 and 12, and are needed at 0,
        # 14 and 24; in backward at 28, 38 and 58, needed at 34, 54 and 74.  Scatters are 54 to 61,
        # 74 to 81 and 94 to 101; what is reduced over the replicas 61 to 76, 81 to 96, and 101 to
        # 116.  At 94 all is waited for: layer 1's until 96, layer 0's scatter until 101, its
        # all-reduce until 116.
        assert traced.exposed_ms == {
            **names("all-gather", "forward", 4, 0, 0),
            **names("all-gather", "backward", 0, 0, 0),
            **names("reduce-scatter", "backward", 5, 0, 0),
            **names("all-reduce", "backward", 15, 2, 0),
        }
        assert [one.exposed_ns for one in traced.steps] == [26_000_000]
        assert traced.tracer.losses() == {}


def trained(model: nn.Module, **options: Any) -> Setup:
    return model, lambda: train(model, **options)


def accumulated(device: SimulatedStreams) -> Setup:
    """Over three micro-steps: nothing is reduced, then over the shards, then all."""
    model = blocks(device, 2, 2)

    def step() -> None:
        for sync, all_reduce in ((False, True), (True, False), (True, True)):
            model.set_requires_gradient_sync(sync)
            model.set_requires_all_reduce(all_reduce)
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
    return trained(model)


def partly_called(device: SimulatedStreams) -> Setup:
    """A trunk, and a head that the loss calls for itself, chunk by chunk; it is a unit of two."""
    trunk, norm, head = model = nn.Sequential(*(Block(device) for _ in range(3)))
    mesh = mesh_of(4)
    fully_shard(trunk, mesh=mesh)
    fully_shard([norm, head], mesh=mesh)
    model.forward = lambda x: norm(trunk(x))  # type: ignore[method-assign]
    fully_shard(model, mesh=mesh)

    def step() -> None:
        out = model(torch.ones(2, 8))
        leaf = out.detach().requires_grad_()
        for chunk in leaf.chunk(2):
            head(chunk).sum().backward()
            device.run(1)
        out.backward(leaf.grad)

    return model, step


def checkpointed(device: SimulatedStreams) -> Setup:
    """Layers compute again in backward."""
    model = blocks(device)
    for block in model:
        inner = block.forward
        block.forward = lambda x, inner=inner: checkpoint(inner, x, use_reentrant=False)
    return trained(model)


SETUPS: dict[str, Callable[[SimulatedStreams], Setup]] = {
    "reduced in the end of the pass": lambda device: trained(blocks(device), to_input=False),
    "replicas": lambda device: trained(blocks(device, 2, 2, count=5)),
    "nothing is gathered in backward": lambda device: trained(
        blocks(device, reshard_after_forward=False)
    ),
    "gathers in backward are of a smaller group": lambda device: trained(
        blocks(device, reshard_after_forward=2)
    ),
    "two roots": lambda device: trained(nn.Sequential(blocks(device), blocks(device, 2, 2))),
    "accumulated": accumulated,
    "prefetched": prefetched,
    "partly called": partly_called,
    "checkpointed": checkpointed,
}


@pytest.mark.parametrize("takes", [FAST, SLOW], ids=["fast", "slow"])
@pytest.mark.parametrize("setup", SETUPS)
def test_steps_expose_what_the_computing_stream_stood_still_for(
    setup: str, takes: dict[str, int]
) -> None:
    """Exactly: streams copy and divide in no time here.  Events are used again after a step."""
    created = []
    with Traced(takes) as traced:
        model, step = SETUPS[setup](traced.device)
        traced.trace(model)
        for _ in range(4):
            step()
            traced.tracer.flush()
            pool = traced.tracer.event_pool
            free = [event for of_device in pool._free.values() for event in of_device]
            assert len({*map(id, free)}) == len(free), "each goes back once"
            created.append(pool.created)
        exposed = [one.exposed_ns or 0 for one in traced.steps]
        assert all(one.exposed_ns is not None for one in traced.steps)
        assert sum(exposed) == traced.device.standstill_ms() * 10**6 > 0
        assert traced.tracer.losses() == {}
        for bucket in traced.tracer.buckets():
            assert bucket.device is not None
            assert bucket.exposed_ns is not None
            assert bucket.exposed_ns <= bucket.device.done_ns - bucket.device.ready_ns
    assert created[1] == created[3]


def test_what_is_waited_for_after_its_step_is_not_known() -> None:
    """A pass that is not the last one leaves its last reduction to the next one, and says so."""
    with Traced(FAST) as traced:
        model = blocks(traced.device)
        traced.trace(model)
        model.set_is_last_backward(False)
        train(model)
        unknown = [name for name, ms in traced.exposed_ms.items() if ms is None]
        assert unknown == ["0 reduce-scatter (backward)"]
        model.set_is_last_backward(True)
        train(model)
        unfinished, ended = traced.steps
        assert (unfinished.exposed_ns, unfinished.complete) == (None, True)
        assert ended.exposed_ns is not None
        assert traced.tracer.losses() == {}


def test_tracing_again_and_removing() -> None:
    """One wait is told of once; then all is as it was, the inputs that are kept among it."""
    with Traced(SLOW) as traced:
        model = blocks(traced.device)
        train(model)
        at = traced.device.standstill_ms()
        traced.trace(model)
        handle = traced.trace(model)
        train(model)
        assert [one.exposed_ns for one in traced.steps] == [
            (traced.device.standstill_ms() - at) * 10**6
        ]
        model.set_is_last_backward(False)
        train(model)
        (context,) = {id(one.comm_ctx): one.comm_ctx for one in groups_of(model)}.values()
        kept = list(context.reduce_scatter_states)
        assert len(kept) == 1
        handle.remove()
        assert own_methods(model) == []
        assert type(context.reduce_scatter_states) is list
        assert [*map(id, context.reduce_scatter_states)] == [*map(id, kept)]
        model.set_is_last_backward(True)
        train(model)
        assert context.reduce_scatter_states == []


def test_an_event_that_fails_leaves_it_unknown() -> None:
    """Of those that it was for; it is counted, and training goes on."""
    with Traced(FAST) as traced:
        model = blocks(traced.device)
        traced.trace(model)
        traced.device.fails_on = traced.device.computing
        train(model)
        traced.device.fails_on = None
        train(model)
        failed, well = traced.steps
        assert (failed.exposed_ns, failed.complete) == (None, True)
        assert failed.communication_ns is not None
        assert well.exposed_ns is not None
        # Six gathers, two inputs that are used again, and the end.
        assert traced.tracer.losses() == {"stamp_failed": 9}


@pytest.mark.parametrize("what", ["version", "names"])
def test_another_version_of_torch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Of which nobody has looked, or of other names: nothing is touched, and that is said."""
    if what == "version":
        monkeypatch.setattr(torch, "__version__", "2.16.0+cu130")
    else:
        monkeypatch.setattr(torch_waits, "_OF_GROUPS", ("unheard_of",))
    with Traced(FAST) as traced:
        model = blocks(traced.device)
        with caplog.at_level(logging.WARNING, "hooktrace"):
            traced.trace(model, name="net")
        (said,) = caplog.messages
        assert f"torch {torch.__version__} waits for FSDP's collectives is not known" in said
        assert "so what is exposed of net is not known; use torch 2.13, 2.14 or 2.15" in said
        assert own_methods(model) == []
        train(model)
        assert [(one.exposed_ns, one.complete) for one in traced.steps] == [(None, True)]
        assert traced.tracer.losses() == {}
