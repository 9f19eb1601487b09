"""The error of a sharded model's hooks, on real ranks: true numbers, and training as without."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import count
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from hooktrace import Tracer, fsdp
from hooktrace.fsdp import hooks, probe
from hooktrace.probes import plan
from hooktrace.staging.groups import collectives_issued
from tests.distributed.harness import on, scenario
from tests.distributed.models import heard
from tests.distributed.sharded import SETUPS, STEPS, Setup, equal, facts_of, sharded, train

pytestmark = pytest.mark.slow

Options = dict[str, Any]


def made() -> dict[str, Options]:
    return {
        "fp16": {"reduce_scatter": hooks.fp16_reduce_scatter()},
        "bf16, feedback": {"reduce_scatter": hooks.bf16_reduce_scatter(error_feedback=True)},
        "8 bit": {"reduce_scatter": hooks.EightBitReduceScatter()},
        "8 bit, feedback": {"reduce_scatter": hooks.EightBitReduceScatter(error_feedback=True)},
        "8 bit parameters": {"all_gather": hooks.EightBitAllGather(channel=64)},
        "fp8 parameters": {"all_gather": hooks.Fp8AllGather()},
        "both": {"reduce_scatter": hooks.bf16_reduce_scatter(), "all_gather": hooks.Fp8AllGather()},
    }


class Run(NamedTuple):
    """What became of a training.  ``parameters``: of this rank, after each step."""

    parameters: list[torch.Tensor]
    facts: dict[str, Any]
    warnings: list[str]
    issued: int


def run(
    rank: int,
    options: Options,
    *,
    setup: Setup = SETUPS["plain"],
    before: Callable[[Tracer, int], None] | None = None,
    every: int = 1,
) -> Run:
    """Train with probes; ``before``: each step."""
    model = sharded(setup)
    with (
        Tracer(error_every=every, error_all_buckets=True, channel=False) as tracer,
        heard() as said,
    ):
        handle = fsdp.trace(model, tracer=tracer, name="net", **options)
        steps = count()
        if before is not None:
            model.register_forward_pre_hook(lambda *_: before(tracer, next(steps)))
        issued = collectives_issued(dist.group.WORLD, torch.device("cpu"))
        parameters = train(setup, rank, model)
        issued = collectives_issued(dist.group.WORLD, torch.device("cpu")) - issued
        facts = facts_of(tracer) if tracer.recording else {"buckets": []}
        handle.remove()
    # What is counted as lost is said once, too.
    said = [line for line in said if "record(s) lost" not in line]
    return Run(parameters, facts, said, issued)


WAYS = {
    2: (
        *(("fp8 parameters", "plain"), ("both", "bfloat16 reduced")),
        ("8 bit, feedback", "micro steps"),
    ),
    4: (("8 bit parameters", "plain"), ("bf16, feedback", "divided"), ("both", "plain")),
}
"""Hooks of each kind, and ways to set FSDP up, by the number of ranks."""

UNITS = ["<root>", "blocks.0", "blocks.1", "blocks.2"]


@on(2, 4)
@scenario(deadline_s=300)
def test_training_is_the_same_with_probes(rank: int) -> None:
    """Bit for bit after each step; each hooked call has an error from the second step on."""
    for name, setup in WAYS[dist.get_world_size()]:
        plain = run(rank, made()[name], setup=SETUPS[setup], every=0)
        checked = run(rank, made()[name], setup=SETUPS[setup])
        assert equal(checked.parameters, plain.parameters) == [True] * STEPS
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
            # More than any format rounds by, and what error feedback adds.
            assert 0 < error.relative_l2 < (0.1 if "fp8" in name or name == "both" else 5e-2)
            assert (error.residual_l2 is not None) == ("feedback" in name)
            assert bucket.exposed_ns == bucket.duration_ns
            assert "check" in bucket.stage_totals_ns()
    assert [s.checked for s in found["steps"]] == [False, *[True] * (STEPS - 1)]


@on(4)
def test_errors_are_those_of_the_rank_s_gradients(rank: int) -> None:
    """Without padding, beside what FSDP reduces without a hook; no optimizer moves anything."""
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


@on(4)
def test_ranks_that_disagree_issue_no_reference(rank: int) -> None:
    """None on any rank, where the last one pauses or fails; training is as without."""
    is_last = rank == dist.get_world_size() - 1

    def pauses(tracer: Tracer, step: int) -> None:
        if is_last:
            tracer.recording = step != 2

    room = mock.patch.object(probe, "wide_copy", side_effect=MemoryError("no room"))
    plain = run(rank, made()["8 bit"], every=0)
    for why, before, steps, patch in (
        ("recorded no call of a step that others probe", pauses, [1, 3], nullcontext()),
        ("MemoryError: no room", None, [], room if is_last else nullcontext()),
    ):
        with patch:
            ended = run(rank, made()["8 bit"], before=before)
        assert equal(ended.parameters, plain.parameters) == [True] * STEPS, why
        (warning,) = ended.warnings
        begins = f"compression error of net is not measured at step {2 if steps else 1}"
        assert warning.startswith(begins)
        assert why in warning
        assert ended.issued - plain.issued == len(steps) * len(UNITS), why
        errors = [b.step for b in ended.facts["buckets"] if b.error is not None]
        # The root has five rows, of which a fourth rank has none.
        assert errors == sorted(steps * (len(UNITS) - is_last)), why


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
