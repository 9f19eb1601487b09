"""Post-local SGD: average gradients over all ranks at first, later within small subgroups only.

    steps 0 .. start_localSGD_iter - 1   AllReduce over process_group
    all later steps                      AllReduce over subgroup, or no communication at all

From then on the subgroups' parameters go different ways.  The hook does not bring them together: a
model averager after the optimizer's step does, such as
``torch.distributed.algorithms.model_averaging.averagers.PeriodicModelAverager`` with
``warmup_steps`` equal to ``start_localSGD_iter``; see ``examples/local_sgd.py``.

Names and mathematics are those of ``torch.distributed.algorithms.ddp_comm_hooks``'
``post_localSGD_hook``; results are bit-identical.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as theirs

from ..staging.collectives import AllReduce
from ..staging.driver import Steps
from ..staging.groups import group_of, require_member
from ..staging.hook import staged
from ..staging.job import job_store, restart_count
from ..staging.slots import GradBucketLike


@dataclass(eq=False)
class PostLocalSGDState(theirs.PostLocalSGDState):
    """Settings and step count of ``post_localSGD_hook``, for one model.

    ``process_group``: averages the first ``start_localSGD_iter`` steps; ``None`` for the default
    group.  ``subgroup``: the group of this rank that averages from then on; ``None`` for the ranks
    of this machine.  ``post_local_gradient_allreduce``: ``False`` to communicate nothing from then
    on, and then there need be no subgroup.  ``iter``: the steps so far; as in torch, it stops at
    ``start_localSGD_iter``.

    The subgroup of a machine is made by the hook's first call, in the first backward pass.  Making
    groups is a collective, and this is a place that all ranks reach together, before a bucket of
    the model is in flight; a constructor, a registration or an unpickling may happen on one rank
    alone.  The ranks of a machine are as many as ``LOCAL_WORLD_SIZE`` says, which ``torchrun``
    sets; they are consecutive then, and equally many on all machines.  Without it they are the
    ranks whose hosts have the same name, which they tell each other through the job's store.

    Pickling leaves the groups out.  The copy uses the default group until ``process_group`` is set.
    It makes a machine's subgroup again, but one that was given must be set anew
    (``state.subgroup = ...``) before the hook is used.

    It is one of torch's too, for what asks: Lightning then averages the models.

    Raises ``TypeError`` and ``ValueError`` for settings that cannot work, ``ValueError`` for a
    group that this rank is not in.
    """

    process_group: dist.ProcessGroup | None
    subgroup: dist.ProcessGroup | None
    start_localSGD_iter: int  # noqa: N815  # torch's name
    post_local_gradient_allreduce: bool = True
    iter: int = field(default=0, init=False)
    _machine_group: dist.ProcessGroup | None = field(default=None, init=False)
    _lost_subgroup: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        require_member("PostLocalSGDState", "process_group", self.process_group)
        require_member("PostLocalSGDState", "subgroup", self.subgroup)
        start, reduces = self.start_localSGD_iter, self.post_local_gradient_allreduce
        if isinstance(start, bool) or not isinstance(start, int):
            raise TypeError(
                f"PostLocalSGDState: start_localSGD_iter is a number of steps, not {start!r}; "
                "pass an int of at least 0"
            )
        if start < 0:
            raise ValueError(
                f"PostLocalSGDState: start_localSGD_iter is {start}; "
                "pass 0 to start with local SGD at once"
            )
        if not isinstance(reduces, bool):
            raise TypeError(
                f"PostLocalSGDState: post_local_gradient_allreduce is {reduces!r}; "
                "pass True or False"
            )

    def __getstate__(self) -> dict[str, Any]:
        given = self.subgroup is not self._machine_group
        return {
            **{f.name: getattr(self, f.name) for f in fields(self)},
            "process_group": None,
            "subgroup": None,
            "_machine_group": None,
            "_lost_subgroup": given or (self.subgroup is None and self._lost_subgroup),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():  # torch's class has slots
            setattr(self, name, value)

    def state_dict(self) -> dict[str, int]:
        """Return the steps so far, the same on all ranks."""
        return {"iter": self.iter}

    def load_state_dict(self, saved: Mapping[str, int]) -> None:
        """Go on where a state was saved; settings and groups stay this one's."""
        self.iter = saved["iter"]

    def make_subgroup(self) -> None:
        """Make the subgroups of the machines if one is needed: a collective of all ranks.

        Raises ``ValueError`` where the machine's ranks are not known.
        """
        if self.subgroup is None and self.post_local_gradient_allreduce:
            ranks = _machines(_machine_size(self))
            self._machine_group, _ = dist.new_subgroups_by_enumeration(ranks)
            self.subgroup = self._machine_group


def _check_state(state: Any) -> None:
    if not isinstance(state, PostLocalSGDState):
        raise TypeError(
            f"post_localSGD_hook needs a PostLocalSGDState, not a {type(state).__name__}; register "
            "it with PostLocalSGDState(process_group, subgroup, start_localSGD_iter)"
        )
    if state.subgroup is None and state.post_local_gradient_allreduce:
        _machine_size(state)


@staged(local=True, check=_check_state)
def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucketLike) -> Steps:  # noqa: N802  # torch's name
    """Average over all ranks before ``state.start_localSGD_iter``, then over the subgroup."""
    state.make_subgroup()
    if state.iter < state.start_localSGD_iter:
        group = group_of(state)
        if bucket.is_last():
            state.iter += 1
    elif state.post_local_gradient_allreduce:
        group = group_of(state.subgroup)
    else:
        return bucket.buffer()
    return (yield AllReduce(bucket.buffer().div_(group.size()), group))


def _machine_size(state: PostLocalSGDState) -> int | None:
    """Return the number of ranks on each machine as the launcher said it, ``None`` if it did not.

    Raises ``ValueError`` where a machine's ranks cannot be a group.
    """
    fix = "pass PostLocalSGDState the subgroup of this rank (dist.new_subgroups makes them)"
    if state._lost_subgroup:
        raise ValueError(
            "the subgroup of this PostLocalSGDState is a process group, which is not pickled; "
            "set state.subgroup to the group of this rank"
        )
    world, ranks = dist.get_world_size(), group_of(state).size()
    if ranks < world:
        raise ValueError(
            f"PostLocalSGDState cannot make subgroups of machines: all {world} ranks would have to "
            f"take part, and its process_group has {ranks}; {fix}"
        )
    launched = os.environ.get("LOCAL_WORLD_SIZE", "")
    if not launched:
        return None
    if not launched.isdecimal() or int(launched) < 1 or world % int(launched):
        raise ValueError(
            f"PostLocalSGDState does not know the ranks of this machine: LOCAL_WORLD_SIZE is "
            f"{launched!r}, in a job of {world} ranks; {fix}"
        )
    return int(launched)


def _machines(size: int | None) -> list[list[int]]:
    """Return the ranks of each machine: ``size`` consecutive ones, or those of one host name."""
    world = dist.get_world_size()
    if size is not None:
        return [list(range(first, first + size)) for first in range(0, world, size)]
    store = job_store(f"hooktrace/hosts/{restart_count()}")
    store.set(str(dist.get_rank()), socket.gethostname())
    machines: dict[bytes, list[int]] = {}
    for rank in range(world):
        machines.setdefault(store.get(str(rank)), []).append(rank)
    return list(machines.values())
