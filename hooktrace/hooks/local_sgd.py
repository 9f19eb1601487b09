"""Post-local SGD: average over all ranks at first, later within subgroups (arXiv 1808.07217).

    step < start: all-reduce over process_group      step >= start: over subgroup, or nothing

From then on the subgroups' parameters drift apart, and something has to average the parameters
after the optimizer's step: torch's ``PeriodicModelAverager``, as ``examples/local_sgd.py`` shows.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from ..collectives import AllReduce
from ..driver import Steps, staged
from ..groups import group_of
from ..layout import GradBucketLike

__all__ = ["PostLocalSGDState", "post_localSGD_hook"]


class PostLocalSGDState:
    """Settings and step count of ``post_localSGD_hook``, for one model.

    ``process_group``: all ranks, ``None`` for the default group.  ``subgroup``: the ranks to
    average with later, ``None`` for those of this machine.  ``start_localSGD_iter``: the step from
    which on ``subgroup`` is used.  ``post_local_gradient_allreduce``: whether to average then at
    all.  ``iter`` counts steps up to the start, as torch's does.

    The default subgroups are made here, which all ranks must do together; where there is no process
    group yet, in the first step that needs them.  Pickling leaves both groups out: the copy uses
    the default ones until ``process_group`` and ``subgroup`` are set.

    Raises ``TypeError`` for what is no process group, ``ValueError`` for a negative start.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None,
        subgroup: dist.ProcessGroup | None,
        start_localSGD_iter: int,  # noqa: N803  # torch's name
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        for name, group in (("process_group", process_group), ("subgroup", subgroup)):
            if group is not None and not isinstance(group, dist.ProcessGroup):
                raise TypeError(
                    f"PostLocalSGDState: {name} is a {type(group).__name__}; pass a process group "
                    "that this rank belongs to, or None"
                )
        if start_localSGD_iter < 0:
            raise ValueError(
                f"PostLocalSGDState: start_localSGD_iter={start_localSGD_iter} cannot work; "
                "pass 0 or more"
            )
        self.process_group = process_group
        self.subgroup = subgroup
        self.start_localSGD_iter = start_localSGD_iter
        self.post_local_gradient_allreduce = post_local_gradient_allreduce
        self.iter = 0
        if post_local_gradient_allreduce and dist.is_initialized():
            self.local_group()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"process_group": None, "subgroup": None}

    @property
    def is_local(self) -> bool:
        """Whether this step's gradients stay within the subgroup."""
        return self.iter >= self.start_localSGD_iter

    def local_group(self) -> dist.ProcessGroup:
        """Return the subgroup; makes the default ones, one a machine, where none was given."""
        if self.subgroup is None:
            self.subgroup, _ = dist.new_subgroups(group_size=_ranks_of_this_machine())
        return self.subgroup

    def maybe_increase_iter(self, bucket: GradBucketLike) -> None:
        """Count the step at its last bucket."""
        if bucket.is_last():
            self.iter += 1


def _check(state: Any) -> None:
    if not isinstance(state, PostLocalSGDState):
        raise TypeError(
            f"the state of post_localSGD_hook is a {type(state).__name__}; "
            "register it with a hooktrace.hooks.PostLocalSGDState"
        )


@staged(check=_check)
def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucketLike) -> Steps:  # noqa: N802
    """Average the gradients over all ranks at first, over ``state.subgroup`` later.

    ``state``: a ``PostLocalSGDState``.
    """
    _check(state)
    buffer = bucket.buffer()
    if not state.is_local:
        group = group_of(state)
        state.maybe_increase_iter(bucket)
    elif state.post_local_gradient_allreduce:
        group = state.local_group()
    else:
        return buffer
    return (yield AllReduce(buffer.div_(group.size()), group))


def _ranks_of_this_machine() -> int:
    """Return how many ranks run here: what the launcher says, else the number of CUDA devices."""
    size = int(os.environ.get("LOCAL_WORLD_SIZE", torch.cuda.device_count()))
    if size < 1 or dist.get_world_size() % size:
        raise ValueError(
            f"PostLocalSGDState cannot tell which of {dist.get_world_size()} ranks share a "
            f"machine (LOCAL_WORLD_SIZE or the number of CUDA devices says {size}); pass subgroup, "
            "such as torch.distributed.new_subgroups(group_size=...)[0]"
        )
    return size
