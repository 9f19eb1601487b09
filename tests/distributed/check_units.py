"""Hooks of FSDP's collectives: one that is right, and others that are wrong in one way each."""

from __future__ import annotations

import torch
import torch.distributed as dist

from hooktrace.fsdp.hooks import GatherHook, Gathering, Reduction, ScatterHook
from hooktrace.staging.collectives import AllGather, AllToAll
from hooktrace.staging.driver import Steps


class Adds(ScatterHook):
    """Is right, and sends everything; others differ from it in one method."""

    name = "adds"

    def steps(self, reduction: Reduction) -> Steps:
        received = yield AllToAll(reduction.gradients, reduction.group)
        parts = received.view(reduction.group.size(), -1)
        return self.result(parts, reduction)

    def result(self, parts: torch.Tensor, reduction: Reduction) -> torch.Tensor:
        return parts.sum(0) / reduction.divisor


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


class KeepsItsOwn(GatherHook):
    """Sends bfloat16, and does not decode what it has already."""

    name = "keeps its own"

    def steps(self, gathering: Gathering) -> Steps:
        own = gathering.own.clone()
        rows = yield AllGather(own.to(torch.bfloat16), gathering.group)
        whole = gathering.whole.view(gathering.group.size(), -1)
        whole.copy_(rows)
        whole[dist.get_rank()] = own
        return gathering.whole
