"""torch's hooks that step a ``ZeroRedundancyOptimizer`` while gradients are communicated.

They are torch's own, so that a script that changes its import finds all of torch's hooks.  To a
tracer the hook that each returns is a plain one: trace what it returns.
"""

from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import (
    hook_with_zero_step,
    hook_with_zero_step_interleaved,
)

__all__ = ["hook_with_zero_step", "hook_with_zero_step_interleaved"]
