"""Which hooks others cannot stand in for, while they take turns."""

from __future__ import annotations

from torch.distributed.algorithms.ddp_comm_hooks import optimizer_overlap_hooks

from hooktrace.hooks import OptimizerHookState, allreduce_hook, hook_then_optimizer
from hooktrace.integrations.tuning.hooks import does_more


class Subtract:
    """The simplest functional optimizer."""

    def step_param(self, param: object, grad: object) -> None:
        """Do nothing."""


def test_a_hook_thatdoes_more_than_average_is_known() -> None:
    """Its optimizer would not run in the turns of the others."""
    state = OptimizerHookState(Subtract())
    assert does_more(hook_then_optimizer(allreduce_hook, state))
    assert does_more(optimizer_overlap_hooks._hook_then_optimizer)
    assert not does_more(allreduce_hook)
