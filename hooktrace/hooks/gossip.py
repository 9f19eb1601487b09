"""GossipGraD: each rank averages its gradients with one partner's (Daily et al., arXiv 1803.05880).

    step t: positions --(send 2^(t mod L) places on, receive from as many places back)--> partner
            gradients = (own + partner's) / 2

With p ranks and L = ceil(log2 p), what one rank knows has reached every rank after L steps; then
the ranks are dealt new positions, so that over time everybody meets everybody.  A step costs one
message of the bucket's size for any number of ranks.

The gradients, and with them the parameters, differ from rank to rank after the first step.  They
stay close, not equal: every gradient is mixed into all others within L steps, and nothing is lost
on the way, since the mean over all ranks of the averages is the mean of the gradients.  Average the
parameters now and then and at the end (torch's ``PeriodicModelAverager`` does); until then what
rank 0 saves or evaluates is one of p replicas.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from ..collectives import AllToAll
from ..driver import Steps, staged
from ..groups import group_of
from ..layout import GradBucketLike

__all__ = ["GossipGradState", "gossip_grad_hook", "partners"]


def partners(rank: int, size: int, step: int, seed: int = 0) -> tuple[int, int]:
    """Return the group ranks (to send to, to receive from) of ``rank`` in a step.

    A dissemination topology over ``size`` ranks, any number.  All ranks that pass the same
    ``size``, ``step`` and ``seed`` agree.
    """
    if size == 1:
        return rank, rank
    rounds = (size - 1).bit_length()
    generator = torch.Generator().manual_seed(seed + step // rounds)
    order: list[int] = torch.randperm(size, generator=generator).tolist()
    place, distance = order.index(rank), 1 << step % rounds
    return order[(place + distance) % size], order[(place - distance) % size]


class GossipGradState:
    """The step count and the seed of ``gossip_grad_hook``, for one model.

    ``process_group``: the ranks that take part, ``None`` for the default group.
    ``random_seed``: deals the positions; the same on all ranks.  ``iter`` counts steps.  Pickling
    leaves the process group out: the copy uses the default group until ``process_group`` is set,
    and goes on with the same partners.
    """

    def __init__(
        self, process_group: dist.ProcessGroup | None = None, random_seed: int = 0
    ) -> None:
        if process_group is not None and not isinstance(process_group, dist.ProcessGroup):
            raise TypeError(
                f"GossipGradState: process_group is a {type(process_group).__name__}; "
                "pass a process group, or None for the default one"
            )
        self.process_group = process_group
        self.random_seed = random_seed
        self.iter = 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"process_group": None}


def _check(state: Any) -> None:
    if not isinstance(state, GossipGradState):
        raise TypeError(
            f"the state of gossip_grad_hook is a {type(state).__name__}; "
            "register it with a hooktrace.hooks.GossipGradState"
        )


@staged(floating=True, check=_check)
def gossip_grad_hook(state: GossipGradState, bucket: GradBucketLike) -> Steps:
    """Average the gradients with one partner's; see the module for what that means.

    ``state``: a ``GossipGradState``.  All buckets of a backward pass have the same partners.
    """
    _check(state)
    group, buffer = group_of(state), bucket.buffer()
    size, numel = group.size(), buffer.numel()
    to, source = partners(group.rank(), size, state.iter, state.random_seed)
    if bucket.is_last():
        state.iter += 1
    if size == 1 or numel == 0:
        return buffer
    sent = [numel if rank == to else 0 for rank in range(size)]
    received = [numel if rank == source else 0 for rank in range(size)]
    other = yield AllToAll(buffer, group, output_splits=received, input_splits=sent)
    return buffer.add_(other).div_(2)
