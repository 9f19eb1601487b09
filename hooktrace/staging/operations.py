"""What a staged hook yields: an operation, as a value that the driver issues.

Each operation knows its payload, so wire bytes are measured and nothing has to be declared.
``start()`` issues it asynchronously and returns a future; ``result(future)`` gives the tensor that
the hook gets back from its ``yield``; ``echo()`` answers it without sending.  ``HookCall`` is a
whole opaque hook as one operation, inside another hook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as dist

from .calls import Collective
from .groups import GroupInfo, group_info, group_of
from .hook_checks import no_future

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter

_new = tuple.__new__
"""Makes a named tuple in half the time of its own constructor."""


class FailureStages(NamedTuple):
    """The stage that a hook failed in: when it issued an operation, waited for it, or went on."""

    issuing: str
    waiting: str
    after: str


class Operation:
    """A collective over ``group`` with a contiguous ``tensor`` as this rank's payload.

    ``group``: a process group, or ``None`` for the default one.
    """

    __slots__ = ("group", "tensor")

    kind: ClassVar[str] = ""
    failure_stages: ClassVar[FailureStages] = FailureStages("wire", "wire", "decompress")

    def __init__(self, tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
        self.tensor = tensor
        self.group: dist.ProcessGroup = group_of(None) if group is None else group

    def start(self) -> Future:
        """Issue the collective; the future completes when its result is there."""
        raise NotImplementedError

    def result(self, future: Future) -> Any:
        """Return the collective's result, here in the payload; raises what the backend raised."""
        future.value()
        return self.tensor

    def echo(self) -> Any:
        """Return what ``result`` would, if every rank had given this rank's payload; sends nothing.

        Raises ``TypeError`` where this rank alone cannot know that.
        """
        raise TypeError(f"what a {self.kind or 'collective'} gives cannot be told without sending")

    @property
    def info(self) -> GroupInfo:
        """Facts about the group on the payload's device."""
        tensor = self.tensor  # whose `device.type` is many times slower than `is_cpu`
        return group_info(self.group, "cpu" if tensor.is_cpu else tensor.device.type)

    def describe(self) -> Collective | None:
        """Return what is known of the collective; ``None`` where nothing is.

        Called for each bucket, on the thread that completed the collective.
        """
        tensor = self.tensor
        try:
            nbytes = tensor.nbytes
        except RuntimeError:  # sparse: by now it is the sum, and no longer what this rank sent
            return None
        return _new(Collective, (self.kind, nbytes, tensor.dtype, self.info))

    def __repr__(self) -> str:
        shape = tuple(self.tensor.shape)
        return f"{type(self).__name__}({shape}, {self.tensor.dtype}, {self.group.size()} ranks)"


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

    def describe(self) -> None:
        """Return ``None``: nothing is known of the hook's collectives."""

    def __repr__(self) -> str:
        return f"hook {getattr(self._hook, '__qualname__', repr(self._hook))}"
