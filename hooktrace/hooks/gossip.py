"""GossipGraD (Daily et al., arXiv 1803.05880): average gradients with one partner in each step.

    step t, p ranks:   position --send--> position + 2^(t mod ceil(log2 p))   (modulo p)
                       each rank: g = (g_own + g_partner) / 2
    every ceil(log2 p) steps: positions drawn anew, from a seed that all ranks share

A rank sends its gradients once and receives once, however many ranks there are.  Distances double
(a dissemination topology), so after ceil(log2 p) steps of one round each rank has, through others,
been reached by every other one; new positions make new direct partners.  Any number of ranks works.

The ranks' parameters differ from the first step on (with one or two ranks they never do).  The mean
over all ranks of what the hook returns is the mean of all gradients, so the replicas' mean moves as
with an all-reduce, up to the differences between them.  Each replica follows it because it takes
half of its gradient from elsewhere, and from elsewhere in every step.  But only gradients are
exchanged: nothing pulls parameters together that have drifted apart.  Therefore

- average the parameters now and then, and at the end, for instance with
  ``torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager``;
- what rank 0 evaluates or saves is one replica of several, unless parameters were just averaged.

What DDP itself does is untouched: parameters start equal, and buffers (BatchNorm's statistics) are
those of rank 0 in each forward pass, unless ``broadcast_buffers=False``.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch.distributed as dist

from ..staging.collectives import AllToAll
from ..staging.driver import Steps
from ..staging.groups import group_of, require_member
from ..staging.hook import staged
from ..staging.slots import GradBucketLike


def round_length(size: int) -> int:
    """Return the steps until each of ``size`` ranks was reached by every other: ceil(log2 size)."""
    return (size - 1).bit_length()


def partners(
    rank: int, size: int, step: int, *, rotate: bool = True, seed: int = 0
) -> tuple[int, int]:
    """Return (send_to, receive_from) of one rank in one step; (0, 0) for a single rank.

    ``rank`` is in [0, size).  With ``rotate``, positions are drawn anew for each round but the
    first, in which they are the ranks.  All ranks that agree on the arguments agree on who sends to
    whom, and no rank is its own partner where there are two.
    """
    if size == 1:
        return 0, 0
    turn, power = divmod(step, round_length(size))
    order = _positions(size, turn if rotate else 0, seed)
    position, distance = order.index(rank), 1 << power
    return order[(position + distance) % size], order[(position - distance) % size]


@functools.lru_cache(maxsize=16)
def _positions(size: int, turn: int, seed: int) -> tuple[int, ...]:
    """Return the rank at each position in one round."""
    order = list(range(size))
    if turn:
        # A generator of its own: the program's random numbers stay as they are.
        random.Random(f"{seed}/{turn}").shuffle(order)
    return tuple(order)


@dataclass(eq=False)
class GossipGradState:
    """Settings and step count of ``gossip_grad_hook``, for one model.

    ``process_group``: the ranks that gossip, ``None`` for the default group.  ``rotate``: draw new
    positions after each round; without it a rank meets ceil(log2 p) others only, again and again.
    ``random_seed``: of these draws, the same on all ranks.  ``step``: the backward passes that
    communicated so far, the same on all ranks.

    Pickling keeps step and seed, so that a resumed run goes on with the same partners, and leaves
    the group out: the copy uses the default group until ``process_group`` is set.

    Raises ``TypeError`` for settings of a wrong type, ``ValueError`` for a group that this rank is
    not in.
    """

    process_group: dist.ProcessGroup | None = None
    _: KW_ONLY
    rotate: bool = True
    random_seed: int = 0
    step: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        require_member("GossipGradState", "process_group", self.process_group)
        if not isinstance(self.rotate, bool):
            raise TypeError(f"GossipGradState: rotate is {self.rotate!r}; pass True or False")
        if isinstance(self.random_seed, bool) or not isinstance(self.random_seed, int):
            raise TypeError(
                f"GossipGradState: random_seed is {self.random_seed!r}; "
                "pass an int, the same on all ranks"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "process_group": None}

    def state_dict(self) -> dict[str, int]:
        """Return the steps so far, the same on all ranks."""
        return {"step": self.step}

    def load_state_dict(self, saved: Mapping[str, int]) -> None:
        """Go on where a state was saved; settings and group stay this one's."""
        self.step = saved["step"]

    def partner(self) -> tuple[int, int]:
        """Return (send_to, receive_from) in the current step, as ranks of the process group."""
        group = group_of(self)
        return partners(
            group.rank(), group.size(), self.step, rotate=self.rotate, seed=self.random_seed
        )


def _check_state(state: Any) -> None:
    if not isinstance(state, GossipGradState):
        raise TypeError(
            f"gossip_grad_hook needs a GossipGradState, not a {type(state).__name__}; "
            "register it with GossipGradState()"
        )


@staged(floating=True, local=True, check=_check_state)
def gossip_grad_hook(state: GossipGradState, bucket: GradBucketLike) -> Steps:
    """Average the gradients with those of one partner; see the module's docstring.

    The halves are taken before they are sent, so that fp16 gradients do not overflow in the sum.
    """
    group, buffer = group_of(state), bucket.buffer()
    send_to, receive_from = state.partner()
    if bucket.is_last():
        state.step += 1
    size, numel = group.size(), buffer.numel()
    if size == 1:
        return buffer
    sent, received = [0] * size, [0] * size
    sent[send_to] = received[receive_from] = numel
    half = yield AllToAll(buffer.mul_(0.5), group, input_splits=sent, output_splits=received)
    return buffer.add_(half)
