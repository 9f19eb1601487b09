"""What ranks do in ``test_unit_probes.py``: hooks of sharded models, probed and not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hooktrace import Tracer, fsdp
from hooktrace.fsdp import hooks, probe, probe_plan
from hooktrace.staging.groups import collectives_issued
from tests.distributed.harness import scenario
from tests.distributed.models import heard
from tests.distributed.sharded_scenarios import (
    FOUR,
    SETUPS,
    Net,
    Setup,
    equal,
    facts_of,
    sharded,
    train,
)

PATIENCE_S = 1.0

Options = dict[str, Any]


def made() -> dict[str, Options]:
    """Return hooks by name, new ones."""
    return {
        "fp16": {"reduce_scatter": hooks.fp16_reduce_scatter()},
        "bf16, feedback": {"reduce_scatter": hooks.bf16_reduce_scatter(error_feedback=True)},
        "8 bit": {"reduce_scatter": hooks.EightBitReduceScatter()},
        "8 bit, feedback": {"reduce_scatter": hooks.EightBitReduceScatter(error_feedback=True)},
        "8 bit parameters": {"all_gather": hooks.EightBitAllGather(channel=64)},
        "fp8 parameters": {"all_gather": hooks.Fp8AllGather()},
        "both": {
            "reduce_scatter": hooks.bf16_reduce_scatter(),
            "all_gather": hooks.Fp8AllGather(),
        },
    }


@dataclass
class Run:
    """What became of a training.  ``parameters``: of this rank, after each step."""

    parameters: list[torch.Tensor]
    facts: dict[str, Any]
    warnings: list[str]
    issued: int

    @property
    def errors(self) -> list[tuple[int, str]]:
        """Step and unit of each call that has an error."""
        return [(b.step, str(b.unit)) for b in self.facts["buckets"] if b.error is not None]

    def same_as(self, other: Run) -> list[bool]:
        """Return whether parameters are the same, bit for bit, after each step."""
        return equal(self.parameters, other.parameters)


def run(
    rank: int,
    options: Options,
    *,
    setup: Setup = SETUPS["plain"],
    model: Any = None,
    group: Any = None,
    before: Callable[[Tracer, int], None] = lambda tracer, step: None,
    every: int = 1,
    **tracing: Any,
) -> Run:
    """Train with probes; ``before``: each step."""
    model = sharded(setup) if model is None else model
    tracing = {"error_all_buckets": True, **tracing}
    group = dist.group.WORLD if group is None else group
    with Tracer(error_every=every, channel=False, **tracing) as tracer, heard() as said:
        handle = fsdp.trace(model, tracer=tracer, name="net", **options)
        steps = iter(range(100))
        model.register_forward_pre_hook(lambda *_: before(tracer, next(steps)))
        issued = collectives_issued(group, torch.device("cpu"))
        parameters = train(setup, rank, model)
        issued = collectives_issued(group, torch.device("cpu")) - issued
        facts = facts_of(tracer) if tracer.recording else {"buckets": []}
        handle.remove()
    return Run(parameters, facts, said, issued)


PLAIN_WAYS = [(name, "plain") for name in made()]
WAYS = PLAIN_WAYS + [
    (name, setup)
    for name in ("8 bit, feedback", "both")
    for setup in ("divided", "bfloat16 reduced", "micro steps")
]
"""Each hook, and on two ranks each way to set FSDP up with hooks of each kind."""


@scenario(deadline_s=300)  # dozens of runs, all of which come to an end
def all_hooks(rank: int) -> dict[str, dict[str, Any]]:
    """Return what each hook's probes found, and whether training was the same without them."""
    found = {}
    for name, setup in WAYS if dist.get_world_size() == 2 else PLAIN_WAYS:
        plain = run(rank, made()[name], setup=SETUPS[setup], every=0)
        for scope in ("global", "local"):
            probed = run(rank, made()[name], setup=SETUPS[setup], error=scope)
            found[f"{name}, {setup}, {scope}"] = {
                **probed.facts,
                "equal": probed.same_as(plain),
                "warnings": probed.warnings,
                "extra": probed.issued - plain.issued,
            }
    return found


def hybrid(rank: int) -> dict[str, Any]:
    """Return what is found where each unit has two groups of ranks."""
    setup = FOUR["hybrid"]
    probed = run(rank, made()["8 bit"], setup=setup)
    plain = run(rank, made()["8 bit"], setup=setup, every=0)
    return {
        **probed.facts,
        "equal": probed.same_as(plain),
        "warnings": probed.warnings,
    }


def hybrid_paused(rank: int) -> dict[str, Any]:
    """Return the same where one rank of one of the groups pauses for a step."""

    def pauses(tracer: Tracer, step: int) -> None:
        if rank == 3:
            tracer.recording = step != 2

    # As no other run has it: models that are alike go by their order, and in ``switched`` one
    # rank has one less.
    hook = {"reduce_scatter": hooks.EightBitReduceScatter(channel=256)}
    probed = run(rank, hook, setup=FOUR["hybrid"], before=pauses)
    plain = run(rank, hook, setup=FOUR["hybrid"], every=0)
    return {
        "equal": probed.same_as(plain),
        "warnings": probed.warnings,
        "errors": probed.errors,
    }


def known_errors(rank: int) -> dict[str, Any]:
    """Return errors by unit beside those of gradients that FSDP itself has reduced.

    The optimizer moves nothing, so that both trainings have the same parameters.
    """
    found = {}
    for setup_name in ("plain", "divided"):
        setup = SETUPS[setup_name]
        exact = _gradients_of(setup, rank, {})[0]
        for name in ("fp16", "8 bit", "8 bit, feedback"):  # which writes to the gradients
            lossy, facts = _gradients_of(setup, rank, made()[name])
            records = {b.unit.name: b.error for b in facts["buckets"] if b.error and b.step == 1}
            expected = {}
            for unit, whole in exact.items():
                off, norm = (lossy[unit] - whole).norm(), whole.norm()
                expected[unit] = float(off / norm), float(norm), whole.numel()
            found[f"{name}, {setup_name}"] = {"records": records, "expected": expected}
    return found


def _gradients_of(
    setup: Setup, rank: int, options: Options
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return this rank's gradients of the second step by unit, and what was recorded."""
    model = sharded(setup)
    numbers = torch.Generator().manual_seed(rank + 1)
    with Tracer(error_every=1, error_all_buckets=True, channel=False) as tracer:
        handle = fsdp.trace(model, tracer=tracer, **options)
        for _ in range(2):
            for parameter in model.parameters():
                parameter.grad = None
            setup.step(model, lambda: torch.randn(8, 32, generator=numbers))
        facts = facts_of(tracer)
        handle.remove()
    units: dict[str, list[torch.Tensor]] = {}
    for name, parameter in model.named_parameters():
        unit = name.rpartition(".inner")[0] or "<root>"
        units.setdefault(unit, []).append(parameter.grad.to_local().flatten())
    return {unit: torch.cat(parts) for unit, parts in units.items()}, facts


def turns(rank: int) -> list[tuple[int, str]]:
    """Return which calls are probed where units take turns, every second step."""
    step = SETUPS["plain"].step

    def twice(model: Any, batch: Any) -> None:
        """Reduce twice, which is two steps of the tracer's."""
        step(model, batch)
        step(model, batch)

    return run(
        rank, made()["fp16"], setup=Setup(step=twice), every=2, error_all_buckets=False
    ).errors


def switched(rank: int) -> dict[str, dict[str, Any]]:
    """Return what becomes of probes where ranks disagree, and whether training was the same."""
    last = dist.get_world_size() - 1

    def pauses(tracer: Tracer, step: int) -> None:
        if rank == last and step == 2:
            tracer.recording = False

    def pauses_once(tracer: Tracer, step: int) -> None:
        if rank == last:
            tracer.recording = step != 2

    def closes(tracer: Tracer, step: int) -> None:
        if rank == last and step == 2:
            tracer.close()

    steps = [0]

    def counts_once(tracer: Tracer, step: int) -> None:
        steps[0] = step

    hasty = dist.new_group(timeout=timedelta(seconds=4 * PATIENCE_S))
    fails = mock.Mock(side_effect=MemoryError("no room"))
    nowhere = mock.Mock(side_effect=RuntimeError("no store"))
    ways: dict[str, Callable[[], Run]] = {
        "pauses": lambda: run(rank, made()["8 bit"], before=pauses),
        "pauses once": lambda: run(rank, made()["8 bit"], before=pauses_once),
        "counts once": lambda: run(rank, made()["8 bit"], before=counts_once),
        "closes": lambda: run(rank, made()["8 bit"], before=closes),
        "fails": lambda: run(rank, made()["8 bit"]),
        "no store": lambda: run(rank, made()["8 bit"]),
        "counts": lambda: run(rank, made()["8 bit"]),
        "wants none": lambda: run(
            rank, made()["8 bit"], model=_over(hasty), group=hasty, every=int(rank != last)
        ),
    }
    patches: dict[str, Any] = {
        "fails": mock.patch.object(probe, "wide_copy", fails),
        "no store": mock.patch.object(probe_plan, "rendezvous_store", nowhere),
        "counts": mock.patch.object(
            probe_plan,
            "collectives_issued",
            lambda group, device: collectives_issued(group, device) + 1,
        ),
        "counts once": mock.patch.object(
            probe_plan,
            "collectives_issued",
            lambda group, device: collectives_issued(group, device) + (steps[0] == 2),
        ),
    }
    expected = run(rank, made()["8 bit"], every=0)
    found = {}
    for name, way in ways.items():
        patch = patches.get(name)
        if patch is not None and rank == last:
            with patch:
                ended = way()
        else:
            ended = way()
        found[name] = {
            "equal": ended.same_as(expected),
            "warnings": ended.warnings,
            "extra": ended.issued - expected.issued,
            "errors": ended.errors,
        }
    return found


def _over(group: Any) -> Any:
    """Return a model that is sharded over a group."""
    mesh = DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(0)
    model = Net()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


class Raises(hooks.CastReduceScatter):
    """Raises on all ranks, once it has communicated, in the second step."""

    def __init__(self) -> None:
        super().__init__(torch.float16, "raises")
        self._calls = 0

    def steps(self, reduction: hooks.Reduction) -> Any:
        """Raise at the last unit of the second step."""
        self._calls += 1
        result = yield from super().steps(reduction)
        if self._calls == 8:
            raise ValueError("boom")
        return result


def after_a_failure(rank: int) -> dict[str, Any]:
    """Return what a hook that raises leaves behind."""
    with heard() as said:
        try:
            run(rank, {"reduce_scatter": Raises()})
        except Exception as error:
            return {"raised": str(error), "warnings": said}
    return {}


def stays_local(rank: int) -> dict[str, Any]:
    """Return what is said of a hook that cannot be tried without sending."""

    class Sends(hooks.ScatterHook):
        name = "sends"

        def steps(self, reduction: hooks.Reduction) -> Any:
            from hooktrace.staging.collectives import AllToAll

            parts = reduction.gradients.view(reduction.group.size(), -1)
            rows = [1] * len(parts)
            received = yield AllToAll(
                parts.contiguous(), reduction.group, input_splits=rows, output_splits=rows
            )
            return received.sum(0) / reduction.divisor

    found = run(rank, {"reduce_scatter": Sends()}, error="local")
    return {"warnings": found.warnings, "errors": found.errors}


def overflows(rank: int) -> list[str]:
    """Return what is seen of gradients that float16 cannot hold, on all ranks alike."""
    sizes = iter((1.0, 1e7, 1.0, 1.0))
    setup = Setup(step=lambda model, batch: (model(batch()) * next(sizes)).sum().backward())
    found = run(rank, {"reduce_scatter": hooks.fp16_reduce_scatter()}, setup=setup)
    return [record for record in found.facts["anomalies"] if "step 1" in record]


def without_a_store(rank: int) -> str:
    """Return what ends training where the job's store fails while the ranks agree."""
    gone = mock.Mock(side_effect=RuntimeError("Connection reset"))
    with mock.patch.object(probe_plan.Consent, "given", gone):
        try:
            run(rank, made()["fp16"])
        except RuntimeError as error:
            return str(error)
    return ""
