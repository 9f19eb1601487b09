"""What a unit's hook loses, on sampled steps: a lossless collective beside the hook's.

    whole gradients --clone--> reference --all ranks are here--> reduce-scatter, FSDP's group and op
         +--> hook --> this rank's part --compare-------------------------+
    own parameters --clone--> compared with what the hook has decoded of them: nothing is sent

                         all --> ProbeResult, of this rank's part --> ring

A reference takes the memory of a unit's gradients in 32 bits an element or more.  The time that a
probe takes is stamped: the call is ``checked``, and its step counts in no timings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..probes.compare import compared, finite_parts, wide_copy
from ..probes.device_group import trouble_with
from ..probes.plan import ProbePlan, Ranks
from ..probes.probe_result import ProbeResult
from ..staging.calls import BucketCall
from ..staging.collectives import reduce_scatter_flat
from ..staging.groups import collectives_issued
from ..staging.job import current_rank
from ..staging.ring import Loss
from .hooks import Gathering, Reduction, ScatterHook
from .torch_groups import ParameterGroup, Share


class UnitProbe:
    """The probes of one unit of ``count``, the how-manieth of the model ``number`` says."""

    def __init__(self, plan: ProbePlan, number: int, count: int, unit: ParameterGroup) -> None:
        self.plan = plan
        self.number = number
        self._count = count
        self._unit = unit

    def of_scatter(
        self, hook: ScatterHook, call: BucketCall | None, asked: Reduction, op: Any
    ) -> Reference | OwnPart | None:
        """Return what looks at a reduce-scatter, if it is its turn; raises nothing.

        ``call``: ``None`` where this rank records none.
        """
        group = asked.group
        if not self._is_due(call):
            return None
        if call is None:
            why = "recorded no call of a step that others probe; trace the same steps on all ranks"
            self.refuse(group, why)
            return None
        try:
            trouble = trouble_with(group, asked.gradients.device)
            if trouble is not None:
                raise RuntimeError(trouble)
            look = Reference(self, call, hook, asked, op)
        except Exception as error:  # the probe's trouble must not become training's
            self.refuse(group, _trouble(error))
            return None
        call.stamp("entered")
        return look

    def of_gather(self, call: BucketCall | None, asked: Gathering) -> Reference | OwnPart | None:
        """Return what looks at an all-gather, if it is its turn; raises nothing."""
        if call is None or not self._is_due(call):
            return None
        try:
            look = OwnPart(self, call, asked)
        except Exception as error:
            self.plan.end(_trouble(error))
            return None
        call.stamp("entered")
        return look

    def _is_due(self, call: BucketCall | None) -> bool:
        """Return whether it is the unit's turn: of several such calls in a step the first."""
        again = call is not None and call.slot.unit is not None and call.slot.unit.repeat > 0
        return not again and self.plan.takes(self.plan.model.step, self.number, self._count)

    def refuse(self, group: dist.ProcessGroup, why: str) -> None:
        """Have nobody issue the unit's reference, to which this rank does not come now."""
        told = f"rank {current_rank()}: {why}"
        self.plan.refuse(self.plan.model.step, self.number, Ranks.of(group), told)

    def pieces(self, part: torch.Tensor) -> Sequence[Share]:
        """Return what this rank's part of the unit is made of, as far as its length tells.

        Gradients are of those that are trained.  Otherwise it is one piece, called as the unit.
        """
        shares, numel = self._unit.shares, len(part)
        for candidates in (shares, [share for share in shares if share.is_trained]):
            if sum(share.padded for share in candidates) == numel:
                return candidates
        return [Share(self._unit.unit.name, numel, numel, is_trained=True)]


class _PartLook:
    """Looks at this rank's part of a unit, without the padding in it; all memory is taken first."""

    def __init__(
        self, probe: UnitProbe, call: BucketCall, group: dist.ProcessGroup, part: torch.Tensor
    ) -> None:
        self._plan = probe.plan
        self._pieces = probe.pieces(part)
        self._checked = ProbeResult(
            slot=call.slot,
            step=call.step,
            rank=group.rank(),
            ranks=tuple(dist.get_process_group_ranks(group)),
            local=False,
            ready=call.ready,
            parts=tuple((piece.name, piece.numel) for piece in self._pieces),
        )

    def _send(
        self,
        result: torch.Tensor,
        reference: torch.Tensor,
        kept: torch.Tensor | None = None,
        **found: torch.Tensor,
    ) -> None:
        """Compare two flat parts, and let the drain have the numbers; without elements do nothing.

        ``kept``: what error feedback keeps of the unit.  ``found``: other fields of the result.
        """
        lengths = [piece.numel for piece in self._pieces]
        if any(lengths):
            result, reference = self._unpadded(result.detach()), self._unpadded(reference)
            found |= compared(result, reference, lengths, kept)
            self._checked.push(self._plan.sink, **found)

    def _unpadded(self, flat: torch.Tensor) -> torch.Tensor:
        """Return a part without the padding behind its parameters."""
        if all(piece.numel == piece.padded for piece in self._pieces):
            return flat
        padded = flat.split([piece.padded for piece in self._pieces])
        parts = zip(padded, self._pieces, strict=True)
        return torch.cat([part[: piece.numel] for part, piece in parts])

    def _fail(self, error: Exception) -> None:
        self._plan.sink.push(Loss("check_failed", _trouble(error)))


class Reference(_PartLook):
    """A reduce-scatter beside the hook's, of a copy of the gradients."""

    def __init__(
        self, probe: UnitProbe, call: BucketCall, hook: ScatterHook, asked: Reduction, op: Any
    ) -> None:
        super().__init__(probe, call, asked.group, asked.part)
        self._probe, self._hook, self._asked, self._op = probe, hook, asked, op
        self._gradients = wide_copy(asked.gradients)
        self._part = self._gradients.new_empty(asked.part.shape)
        rows = asked.gradients.view(asked.group.size(), -1)
        self._finite = finite_parts(rows, [piece.padded for piece in self._pieces])

    def compare(self, result: torch.Tensor) -> None:
        """Issue the reference if all ranks do, and compare the flat result that FSDP gets with it.

        Raises as ``all_are_here``.
        """
        group, plan = self._asked.group, self._plan
        issued = str(collectives_issued(group, result.device))
        if plan.all_are_here(plan.model.step, self._probe.number, Ranks.of(group), issued):
            try:
                reduce_scatter_flat(self._part, self._gradients, op=self._op, group=group)
                kept = self._asked.memory.get(id(self._hook))
                self._send(result, self._part, kept, finite=self._finite)
            except Exception as error:
                self._fail(error)

    def abandon(self) -> None:
        """Issue no reference: the hook raised."""
        self._probe.refuse(self._asked.group, "the hook raised")


class OwnPart(_PartLook):
    """This rank's parameters before an all-gather, beside what the hook has made of them."""

    def __init__(self, probe: UnitProbe, call: BucketCall, asked: Gathering) -> None:
        super().__init__(probe, call, asked.group, asked.own)
        self._place, self._ranks = asked.group.rank(), asked.group.size()
        self._own = wide_copy(asked.own)

    def compare(self, result: torch.Tensor) -> None:
        """Compare the part of the flat result that is this rank's."""
        try:
            self._send(result.view(self._ranks, -1)[self._place], self._own)
        except Exception as error:
            self._fail(error)

    def abandon(self) -> None:
        """Do nothing: no other rank waits."""


def _trouble(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
