"""What a unit's hook loses, on sampled steps: a lossless collective beside the hook's.

    whole gradients --clone--> reference --all ranks are here--> reduce-scatter, FSDP's group and op
         +--> hook --> this rank's part --compare-------------------------+
    own parameters --clone--> compared with what the hook has decoded of them: nothing is sent
    local: the hook on trial, on copies, each collective answered by an echo: nothing is sent

                         all --> ProbeResult, of this rank's part --> ring

A reference takes the memory of a unit's gradients in 32 bits an element or more.  The time that a
probe takes is stamped: the call is ``probed``, and its step counts in no timings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from ..capture.calls import BucketCall
from ..capture.ring import Loss
from ..probes.compare import first_overflow, measure, square_sum
from ..probes.local import copy_of_state, random_state_kept
from ..probes.probe_result import ProbeResult
from ..ranks.job import current_rank
from ..records import Scope
from ..staging.collectives import reduce_scatter_flat
from ..staging.driver import run_answered
from .hooks import Gathering, Reduction, ScatterHook
from .probe_plan import ProbePlan
from .torch_groups import ParameterGroup, Share

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer


class Look(Protocol):
    """A hook's call that is looked at."""

    def compare(self, result: torch.Tensor) -> None:
        """Compare the flat result that FSDP gets."""

    def abandon(self) -> None:
        """Let go of the call: the hook raised."""


class UnitProbe:
    """The probes of one unit, the how-manieth of the model ``number`` says."""

    def __init__(self, plan: ProbePlan, number: int, unit: ParameterGroup) -> None:
        self.plan = plan
        self.number = number
        self._unit = unit

    def of_scatter(
        self, hook: ScatterHook, call: BucketCall | None, asked: Reduction, op: Any
    ) -> Look | None:
        """Return what looks at a reduce-scatter, if it is its turn; raises nothing.

        ``call``: ``None`` where this rank records none.
        """
        plan, group = self.plan, asked.group
        if not plan.takes(self.number) or (call is not None and _comes_again(call)):
            return None
        if plan.scope == "local":
            if call is not None:
                self._try_alone(hook, call, asked)
            return None
        if call is None:
            why = "recorded no call of a step that others probe; trace the same steps on all ranks"
            plan.refuse(self.number, group, f"{_rank()} {why}")
            return None
        try:
            plan.prepare(group, asked.gradients.device)
            found = self._found(call, group, asked.part)
            look = _Reference(self, found, hook, asked, op)
        except Exception as error:  # the probe's trouble must not become training's
            plan.refuse(self.number, group, f"{_rank()}: {_trouble(error)}")
            return None
        call.enter()
        return look

    def of_gather(self, call: BucketCall | None, asked: Gathering) -> Look | None:
        """Return what looks at an all-gather, if it is its turn; raises nothing."""
        plan = self.plan
        if call is None or not plan.takes(self.number) or _comes_again(call):
            return None
        try:
            look = _OwnPart(plan, self._found(call, asked.group, asked.own), asked)
        except Exception as error:
            plan.end(_trouble(error))
            return None
        call.enter()
        return look

    def _try_alone(self, hook: ScatterHook, call: BucketCall, asked: Reduction) -> None:
        """Measure what the hook does to this rank's own gradients, without sending them."""
        group = asked.group
        try:
            found = self._found(call, group, asked.part)
            with random_state_kept(asked.gradients.device), torch.no_grad():
                trial = replace(
                    asked, gradients=asked.gradients.clone(), part=torch.empty_like(asked.part)
                )
                steps = copy_of_state(hook).steps(trial)
                echo = methodcaller("echo")
                result = run_answered(hook.name, steps, trial, echo).flatten()
            own = _wide(asked.gradients.view(group.size(), -1)[group.rank()])
            own *= group.size() / asked.divisor  # as if all ranks had the same
            given = found.finite(asked.gradients)
            found.send(self.plan.sink, result, own, given, hook.residual(asked.unit))
        except Exception as error:
            self.plan.end(_trouble(error))
        call.enter()

    def _found(self, call: BucketCall, group: dist.ProcessGroup, part: torch.Tensor) -> _Found:
        pieces = _pieces(self._unit.shares, len(part), self._unit.unit.name)
        return _Found(call, group, self.plan.scope, pieces)


class _Reference:
    """A reduce-scatter beside the hook's, of a copy of the gradients; all memory is taken first."""

    def __init__(
        self, probe: UnitProbe, found: _Found, hook: ScatterHook, asked: Reduction, op: Any
    ) -> None:
        self._plan, self._number = probe.plan, probe.number
        self._found, self._hook, self._asked, self._op = found, hook, asked, op
        # Wider than 16 bits: a sum that is rounded itself cannot tell what rounding costs.
        self._gradients = _wide(asked.gradients)
        self._part = self._gradients.new_empty(asked.part.shape)
        self._finite = found.finite(asked.gradients)

    def compare(self, result: torch.Tensor) -> None:
        """Issue the reference if all ranks do, and compare; raises as ``all_are_here``."""
        group, plan = self._asked.group, self._plan
        if plan.all_are_here(self._number, group, result.device):
            try:
                reduce_scatter_flat(self._part, self._gradients, op=self._op, group=group)
                kept = self._hook.residual(self._asked.unit)
                self._found.send(plan.sink, result, self._part, self._finite, kept)
            except Exception as error:
                plan.sink.push(Loss("probe_failed", _trouble(error)))

    def abandon(self) -> None:
        """Issue no reference."""
        self._plan.refuse(self._number, self._asked.group, f"{_rank()}'s hook raised")


class _OwnPart:
    """This rank's parameters before an all-gather, beside what the hook has made of them."""

    def __init__(self, plan: ProbePlan, found: _Found, asked: Gathering) -> None:
        self._plan, self._found = plan, found
        self._place, self._ranks = asked.group.rank(), asked.group.size()
        self._own = _wide(asked.own)

    def compare(self, result: torch.Tensor) -> None:
        """Compare the part of the result that is this rank's."""
        own = result.view(self._ranks, -1)[self._place]
        try:
            self._found.send(self._plan.sink, own, self._own)
        except Exception as error:
            self._plan.sink.push(Loss("probe_failed", _trouble(error)))

    def abandon(self) -> None:
        """Do nothing: no other rank waits."""


class _Found:
    """What is found of one call: of this rank's part, by parameter, without padding."""

    def __init__(
        self, call: BucketCall, group: dist.ProcessGroup, scope: Scope, pieces: Sequence[Share]
    ) -> None:
        self._pieces = pieces
        self._ranks = group.size()
        self._result = ProbeResult(
            call.slot,
            call.step,
            group.rank(),
            False,
            scope,
            tuple(dist.get_process_group_ranks(group)),
            ready=call.ready,
            parts=tuple((piece.name, piece.numel) for piece in pieces),
        )

    def finite(self, gradients: torch.Tensor) -> torch.Tensor:
        """Return whether each parameter's gradient is finite on this rank: bool of (pieces,)."""
        columns = gradients.view(self._ranks, -1).split([p.padded for p in self._pieces], dim=1)
        return torch.stack([torch.isfinite(column).all() for column in columns])

    def send(
        self,
        sink: Tracer,
        result: torch.Tensor,
        reference: torch.Tensor,
        finite: torch.Tensor | None = None,
        kept: torch.Tensor | None = None,
    ) -> None:
        """Compare two flat parts, and let the drain have the numbers; without elements do nothing.

        ``kept``: what error feedback keeps of the unit.
        """
        lengths = [piece.numel for piece in self._pieces]
        if not any(lengths):
            return
        result, reference = self._real(result.detach()), self._real(reference)
        sums = measure(result, reference, lengths)
        found = {"sums": sums, "first_overflow": first_overflow(result, reference, sums)}
        if finite is not None:
            found["finite"] = finite
        if kept is not None:
            found["residual_square"] = square_sum(kept)
        self._result.time_ns = sink.clock()
        self._result.send(sink.event_pool, found)
        sink.push(self._result)

    def _real(self, flat: torch.Tensor) -> torch.Tensor:
        """Return a part without the padding behind its parameters."""
        if all(piece.numel == piece.padded for piece in self._pieces):
            return flat
        padded = flat.split([piece.padded for piece in self._pieces])
        return torch.cat(
            [part[: piece.numel] for part, piece in zip(padded, self._pieces, strict=True)]
        )


def _pieces(shares: Sequence[Share], numel: int, unit: str) -> Sequence[Share]:
    """Return what a part of ``numel`` elements is made of, as far as its length tells.

    Gradients are of those that are trained.  Otherwise it is one piece, called as the unit.
    """
    trained = [share for share in shares if share.is_trained]
    for candidates in (shares, trained):
        if sum(share.padded for share in candidates) == numel:
            return candidates
    return [Share(unit, numel, numel, is_trained=True)]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy in 32 bits an element or more."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32), copy=True)


def _comes_again(call: BucketCall) -> bool:
    """Return whether its unit had such a call before in this step."""
    return call.slot.unit is not None and call.slot.unit.turn > 0


def _rank() -> str:
    return f"rank {current_rank()}"


def _trouble(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
