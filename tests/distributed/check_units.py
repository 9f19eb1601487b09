"""Hooks of FSDP's collectives: some that are right, and others that are wrong in one way each."""

from __future__ import annotations

import torch
import torch.distributed as dist

from hooktrace.fsdp import hooks
from hooktrace.fsdp.hooks import GatherHook, Gathering, Reduction, ScatterHook
from hooktrace.staging.collectives import AllGather, AllToAll, ReduceScatter
from hooktrace.staging.driver import Steps

made = hooks.EightBitReduceScatter(channel=64, error_feedback=True)


def maker() -> ScatterHook:
    return hooks.bf16_reduce_scatter()


class Adds(ScatterHook):
    """Is right, and sends everything; others differ from it in one method."""

    name = "adds"

    def steps(self, reduction: Reduction) -> Steps:
        received = yield AllToAll(reduction.gradients, reduction.group)
        parts = received.view(reduction.group.size(), -1)
        return self.result(parts, reduction)

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        return parts.sum(0) / reduction.divisor


class Sums(Adds):
    """Does not divide."""

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        return parts.sum(0)


class Averages(Adds):
    """Averages, whatever is asked for."""

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        return parts.mean(0)


class DropsTheTail(Adds):
    """Leaves out what does not fill a channel of eight."""

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        total = parts.sum(0) / reduction.divisor
        total[len(total) // 8 * 8 :] = 0
        return total


class Feeds(ScatterHook):
    """Sends bfloat16, with error feedback."""

    name = "feeds"

    def __init__(self) -> None:
        self.kept: dict[str, torch.Tensor] = {}

    def steps(self, reduction: Reduction) -> Steps:
        key, gradients = self.key(reduction), reduction.gradients
        lost = self.kept.get(key)
        if lost is not None and lost.shape == gradients.shape:
            gradients = gradients + lost
        sent = (gradients / reduction.divisor).to(torch.bfloat16)
        left = gradients - sent.to(gradients.dtype) * reduction.divisor
        self.kept[key] = left.nan_to_num(0.0, 0.0, 0.0)
        return (yield ReduceScatter(sent, reduction.group))

    def key(self, reduction: Reduction) -> str:
        return reduction.unit

    def residual(self, unit: str) -> torch.Tensor | None:
        return self.kept.get(unit)


class SharesResiduals(Feeds):
    """Keeps one residual for all units."""

    def key(self, reduction: Reduction) -> str:
        return "all"


class GivesTheWhole(Adds):
    """Returns more than a part."""

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        return parts / reduction.divisor


class Gathers(GatherHook):
    """Is right, in bfloat16; others differ from it in one method."""

    name = "gathers"

    def steps(self, gathering: Gathering) -> Steps:
        own = gathering.own.clone()
        rows = yield AllGather(own.to(torch.bfloat16), gathering.group)
        whole = gathering.whole.view(gathering.group.size(), -1)
        self.write(rows, whole, own)
        return gathering.whole

    def write(self, rows: torch.Tensor, whole: torch.Tensor, own: torch.Tensor) -> None:
        whole.copy_(rows)


class KeepsItsOwn(Gathers):
    """Does not decode what it has already."""

    def write(self, rows: torch.Tensor, whole: torch.Tensor, own: torch.Tensor) -> None:
        whole.copy_(rows)
        whole[dist.get_rank()] = own


class LeavesOneOut(Gathers):
    """Does not write the last row."""

    def write(self, rows: torch.Tensor, whole: torch.Tensor, own: torch.Tensor) -> None:
        whole[:-1] = rows[:-1]
