"""A staged hook under the compiled python reducer, which has no buckets and no futures.

    (param.grad, param) --ParameterBucket--> generator --yield--> Operation.functional()
                                                 ^                      |
                                                 +----send(result)------+
                                              returns --> copied into param.grad

The reducer (``torch._dynamo.config.optimize_ddp = "python_reducer"``) calls the hook once for each
parameter while it traces the backward graph.  Collectives are the functional ones, which can be
traced, and the hook becomes part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .driver import Steps, run_answered
from .operations import Operation
from .slots import FlatBucket


class ParameterBucket(FlatBucket):
    """One parameter's gradient in the shape of a ``GradBucket``: the first, and never the last."""

    def __init__(self, gradient: torch.Tensor, parameter: torch.Tensor) -> None:
        super().__init__([parameter], gradient.flatten(), 0, is_last=False)


def run_on_parameter(
    function: Callable[..., Steps], state: Any, gradient: torch.Tensor, parameter: torch.Tensor
) -> torch.Tensor:
    """Run a hook's generator function on one parameter; returns ``gradient``, overwritten.

    Overwritten, since the reducer ignores what a hook returns.
    """
    bucket = ParameterBucket(gradient, parameter)
    result = run_answered(function(state, bucket), _functional)
    gradient.copy_(result.view_as(gradient))
    return gradient


def _functional(operation: Operation) -> torch.Tensor:
    return operation.functional()  # type: ignore[no-any-return]


def several_rounds(hook: str) -> TypeError:
    """Return the error for a multi-round hook."""
    return TypeError(
        f"hook {hook} uses several collectives for a bucket and cannot run "
        "under the compiled python reducer, which has no buckets; use a single-round hook, "
        "or set torch._dynamo.config.optimize_ddp = True"
    )


def refuse_compiled(hook: str, bucket: object) -> None:
    """Raise ``TypeError`` under the compiled python reducer, where no bucket is the last one."""
    if isinstance(bucket, ParameterBucket):
        raise TypeError(
            f"hook {hook} counts steps and cannot run under the compiled python reducer, which "
            "does not say where a step ends; set torch._dynamo.config.optimize_ddp = True"
        )
