"""Hooks that are waited for where they are called, as FSDP's collectives are.

    run_synchronously(generator, call) --advance--> Operation --start, wait--> result --> generator

The same driver and the same stages as DDP's hooks; what differs is that nobody gets a future: the
thread (or, on a device, its current stream) waits for each collective.
"""

from __future__ import annotations

from typing import Any

import torch

from ..capture.calls import BucketCall
from .driver import HELD, Ended, HookRun, Steps


class _WaitingRun(HookRun):
    """A call whose operations are waited for one by one; its result is as long as ``expected``."""

    __slots__ = (*HELD, "_call", "_expected")

    def __init__(self, call: BucketCall | None, expected: int) -> None:
        self._call = call
        self._expected = expected

    @property
    def call(self) -> BucketCall | None:
        """What takes the stamps."""
        return self._call

    def end(self, result: Any) -> torch.Tensor:
        """Return the result, checked."""
        if not isinstance(result, torch.Tensor) or result.numel() != self._expected:
            got = f"{tuple(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
            wrong = TypeError(
                f"the hook returned {got}; return a tensor of {self._expected} elements"
            )
            self.fail(self.own_stage, wrong)
        return result


def run_synchronously(  # noqa: PLR0917  # as the driver's
    name: str, generator: Steps, state: Any, place: Any, call: BucketCall | None, expected: int
) -> torch.Tensor:
    """Run a hook to its end and return its result, a tensor of ``expected`` elements.

    ``state``: the generator's first argument.  ``place``: what the hook is called for; its
    ``index()`` names it in errors.  ``call``: takes the stamps, but for the last one, which is the
    caller's.  Raises ``HookError`` for what the hook or a collective raised.
    """
    run = _WaitingRun(call, expected)
    run.begin(name, generator, state, place)
    step = run.advance(None)
    while not isinstance(step, Ended):
        issued = run.issue(step)
        issued.wait()
        step = run.advance(run.arrive(issued))
    return step.result
