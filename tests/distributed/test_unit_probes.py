"""The error of a sharded model's hooks, on real ranks: true numbers, and training as without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from hooktrace import Tracer, fsdp
from hooktrace.fsdp import hooks, probe
from hooktrace.probes import plan
from hooktrace.staging.groups import collectives_issued
from tests.distributed.harness import on, scenario
from tests.distributed.models import heard
from tests.distributed.sharded import (
    FOUR,
    SETUPS,
    STEPS,
    Net,
    Setup,
    equal,
    facts_of,
    sharded,
    train,
)

pytestmark = pytest.mark.slow

PATIENCE_S = 1.0

Options = dict[str, Any]


def made() -> dict[str, Options]:
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
    # What is counted as lost is said once, too.
    said = [line for line in said if "record(s) lost" not in line]
    return Run(parameters, facts, said, issued)


WAYS = {
    2: [
        ("bf16, feedback", "divided"),
        ("fp8 parameters", "plain"),
        ("8 bit, feedback", "micro steps"),
        ("both", "bfloat16 reduced"),
    ],
    4: [("8 bit parameters", "plain"), ("8 bit, feedback", "plain"), ("both", "plain")],
}
"""Hooks of each kind, and ways to set FSDP up, by the number of ranks."""

UNITS = ["<root>", "blocks.0", "blocks.1", "blocks.2"]

WORST = {"fp16": 1e-2, "bf16": 5e-2, "8 bit": 5e-2, "fp8": 0.1, "both": 0.1}
"""More than a format rounds by, and what error feedback adds, in bfloat16 as well."""


@on(2, 4)
@scenario(deadline_s=300)
def test_training_is_the_same_with_probes(rank: int) -> None:
    """Bit for bit after each step; each hooked call has an error from the second step on."""
    for name, setup in WAYS[dist.get_world_size()]:
        plain = run(rank, made()[name], setup=SETUPS[setup], every=0)
        checked = run(rank, made()[name], setup=SETUPS[setup])
        assert checked.same_as(plain) == [True] * STEPS
        assert (checked.facts["losses"], checked.facts["anomalies"]) == ({}, [])
        assert checked.warnings == []
        check_checked(rank, checked.facts, name)
        extra = 0 if "parameters" in name else len(UNITS) * (STEPS - 1)
        assert checked.issued - plain.issued == extra


def check_checked(rank: int, found: dict[str, Any], name: str) -> None:
    """What holds of a hook."""
    kinds = {"all_gather"} if "parameters" in name else {"reduce_scatter"}
    kinds |= {"all_gather"} if name == "both" else set()
    for bucket in found["buckets"]:
        hooked = bucket.unit.collective in kinds and bucket.step > 0
        expected = hooked and bucket.unit.repeat == 0
        assert bucket.checked == expected
        has_part = rank < 3 or bucket.unit.name != "<root>"  # of five rows
        assert (bucket.error is not None) == (expected and has_part), bucket.unit
        if bucket.error is not None:
            error = bucket.error
            assert 0 < error.relative_l2 < next(v for k, v in WORST.items() if k in name)
            feeds = "feedback" in name
            assert (error.residual_l2 is not None) == feeds
            assert bucket.exposed_ns == bucket.duration_ns
            assert "check" in bucket.stage_totals_ns()
    assert [s.checked for s in found["steps"]] == [False, *[True] * (STEPS - 1)]


@on(4)
def test_a_group_is_asked_by_itself(rank: int) -> None:
    """Of hybrid sharding the other replica's errors go on while a rank of this one pauses."""

    def pauses(tracer: Tracer, step: int) -> None:
        if rank == 3:
            tracer.recording = step != 2

    # As no other run has it: models that are alike go by their order, and in another test one
    # rank has one less.
    hook = {"reduce_scatter": hooks.EightBitReduceScatter(channel=256)}
    checked = run(rank, hook, setup=FOUR["hybrid"], before=pauses)
    plain = run(rank, hook, setup=FOUR["hybrid"], every=0)
    assert checked.same_as(plain) == [True] * STEPS
    expected = [1, 2, 3] if rank < 2 else [1, 3]
    assert sorted({step for step, _ in checked.errors}) == expected
    assert len(checked.errors) == len(UNITS) * len(expected)
    assert len(checked.warnings) == (rank >= 2)


@on(4)
def test_errors_are_those_of_the_rank_s_gradients(rank: int) -> None:
    """Of its own elements, without padding, beside what FSDP reduces without a hook.

    The optimizer moves nothing, so that both trainings have the same parameters.
    """
    for setup in ("plain", "divided"):
        exact = _gradients_of(SETUPS[setup], rank, {})[0]
        for name in ("fp16", "8 bit, feedback"):  # which writes to the gradients
            lossy, facts = _gradients_of(SETUPS[setup], rank, made()[name])
            records = {b.unit.name: b.error for b in facts["buckets"] if b.error and b.step == 1}
            for unit, whole in exact.items():
                record = records.get(unit)
                if not whole.numel():
                    assert record is None
                    continue
                off = (lossy[unit] - whole).norm() / whole.norm()
                assert record.relative_l2 == pytest.approx(float(off), rel=1e-3)
                # The root's own parameters are divided by a set factor after that.
                after = 3 if (setup, unit) == ("divided", "<root>") else 1
                assert record.reference_l2 == pytest.approx(float(whole.norm()) * after)
                assert record.cosine == pytest.approx(1, abs=1e-3)


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


@on(2)
def test_units_take_turns(rank: int) -> None:
    """One on each checked step, the same on all ranks, every second step."""
    step = SETUPS["plain"].step

    def twice(model: Any, batch: Any) -> None:
        """Reduce twice, which is two steps of the tracer's."""
        step(model, batch)
        step(model, batch)

    found = run(rank, made()["fp16"], setup=Setup(step=twice), every=2, error_all_buckets=False)
    named = [(step, unit.partition(" ")[0]) for step, unit in found.errors]
    assert named == [(2, "<root>"), (4, "blocks.0"), (6, "blocks.1")]


WHY = {
    "pauses once": "recorded no call of a step that others probe",
    "fails": "MemoryError: no room",
    "is silent": "not all ranks came to the same place",
}
"""What the last rank does, and what is said of it.

The last one never will come again.
"""


@on(4)
def test_ranks_that_disagree_issue_no_reference(rank: int) -> None:
    """None on any rank, at that step alone where all come to the next; training is as without.

    A warning says why, and one more where the probes are over.
    """
    is_last = rank == dist.get_world_size() - 1

    def pauses_once(tracer: Tracer, step: int) -> None:
        if is_last:
            tracer.recording = step != 2

    hasty = dist.new_group(timeout=timedelta(seconds=4 * PATIENCE_S))
    room = mock.Mock(side_effect=MemoryError("no room"))
    does: dict[str, Options] = {
        "pauses once": {"before": pauses_once},
        "is silent": {"model": _over(hasty), "group": hasty},
    }
    patches = {
        "fails": mock.patch.object(probe, "wide_copy", room),
        "is silent": mock.patch.object(plan.ProbePlan, "takes", return_value=False),
    }
    plain = run(rank, made()["8 bit"], every=0)
    for way, why in WHY.items():
        with patches[way] if is_last and way in patches else nullcontext():
            ended = run(rank, made()["8 bit"], **does.get(way, {}))
        assert ended.same_as(plain) == [True] * STEPS, way
        steps = [1, 3] if way == "pauses once" else []
        said = [f"is not measured at step {2 if steps else 1}"]
        if way == "is silent":
            said = [] if is_last else [*said, "is no longer measured"]
            assert is_last or ended.facts["losses"]["check_failed"] >= 1
        assert len(ended.warnings) == len(said), way
        for warning, begins in zip(ended.warnings, said, strict=True):
            assert warning.startswith(f"compression error of net {begins}")
            assert why in warning
        assert ended.issued - plain.issued == len(steps) * len(UNITS), way
        assert sorted({step for step, _ in ended.errors}) == steps, way
        # The root has five rows, of which a fourth rank has none.
        assert len(ended.errors) == len(steps) * (len(UNITS) - is_last), way


def _over(group: Any) -> Any:
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


@on(2)
def test_a_hook_that_raises_has_no_reference(rank: int) -> None:
    """Its own error comes out; the others do not wait there."""
    with heard() as said, pytest.raises(Exception, match="boom"):
        run(rank, {"reduce_scatter": Raises()})
    assert any("hook raised" in warning for warning in said)


@on(2)
def test_what_float16_cannot_hold_is_named_by_unit(rank: int) -> None:
    """The parameter, and what a lossless reduce-scatter has there."""
    sizes = iter((1.0, 1e7, 1.0, 1.0))
    setup = Setup(step=lambda model, batch: (model(batch()) * next(sizes)).sum().backward())
    found = run(rank, {"reduce_scatter": hooks.fp16_reduce_scatter()}, setup=setup)
    anomalies = [record for record in found.facts["anomalies"] if "step 1" in record]
    assert anomalies
    assert any("unit blocks.2 reduce-scatter (backward), step 1" in one for one in anomalies)
    assert any("the hook made NaN or inf of blocks.2" in one for one in anomalies)
    assert all("where the lossless result is" in one for one in anomalies)


@on(2)
def test_training_does_not_go_on_where_nobody_knows_what_others_do(rank: int) -> None:
    """The store is gone in the middle of an agreement: a collective may be paired wrongly."""
    gone = mock.Mock(side_effect=RuntimeError("Connection reset"))
    said = r"the job's store did not answer \(RuntimeError: Connection reset\)(.|\n)*a probe of net"
    with (
        mock.patch.object(plan.Consent, "given", gone),
        pytest.raises(RuntimeError, match=said + r"(.|\n)*or pass Tracer\(error_every=0\)\s*$"),
    ):
        run(rank, made()["fp16"])
