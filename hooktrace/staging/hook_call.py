"""A whole opaque hook as one operation, inside another hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .operation import Future, Operation
from .result_check import no_future


class HookCall(Operation):
    """A whole opaque hook as one operation: its collectives are its own affair and not seen."""

    __slots__ = ("_bucket", "_hook", "_state")

    kind = "hook"

    def __init__(self, hook: Callable[..., Future], state: Any, bucket: Any) -> None:
        self._hook = hook
        self._state = state
        self._bucket = bucket

    def start(self) -> Future:
        """Call the hook.  Raises ``TypeError`` when it does not return a future."""
        future = self._hook(self._state, self._bucket)
        if not isinstance(future, torch._C.Future):
            raise no_future(future)
        return future

    def result(self, future: Future) -> torch.Tensor:
        """Return the hook's result."""
        value: torch.Tensor = future.value()
        return value

    def functional(self) -> torch.Tensor:
        """Raise: a hook that returns a future cannot run synchronously."""
        raise TypeError(
            f"{self!r} is opaque and cannot run inside another hook under the compiled python "
            "reducer; use a staged hook, or set torch._dynamo.config.optimize_ddp = True"
        )

    def describe(self) -> None:
        """Return ``None``: nothing is known of the hook's collectives."""

    def __repr__(self) -> str:
        return f"hook {getattr(self._hook, '__qualname__', repr(self._hook))}"
