"""What a staged hook yields: a collective as a value, an operation, that the driver issues.

``start()`` issues it asynchronously and returns a future; ``result(future)`` gives what the hook
gets back from its ``yield``.  Sizes follow nccl-tests: an all-gather's payload is one rank's share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from .calls import Collective, new_tuple
from .groups import GroupInfo, group_info, group_of
from .hook_checks import no_future

Future = Any  # torch.futures.Future or torch._C.Future: `then` returns the latter


class Operation:
    """A collective over ``group`` with a contiguous ``tensor`` as this rank's payload.

    ``group``: a process group, or ``None`` for the default one.
    """

    __slots__ = ("group", "tensor")

    kind: ClassVar[str] = ""

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

    @property
    def info(self) -> GroupInfo:
        """Facts about the group on the payload's device."""
        tensor = self.tensor  # whose `device.type` is many times slower than `is_cpu`
        return group_info(self.group, "cpu" if tensor.is_cpu else tensor.device.type)

    def describe(self) -> Collective | None:
        """Return what is known of the collective; ``None`` where nothing is."""
        tensor = self.tensor
        try:
            nbytes = tensor.nbytes
        except RuntimeError:  # sparse: by now it is the sum, and no longer what this rank sent
            return None
        return new_tuple(Collective, (self.kind, nbytes, tensor.dtype, self.info))


class HookCall(Operation):
    """A whole plain hook as one operation: its collectives are its own affair and not seen."""

    __slots__ = ("_call",)

    kind = "hook"

    def __init__(self, call: Callable[[], Future]) -> None:
        self._call = call

    def start(self) -> Future:
        """Call the hook.  Raises ``TypeError`` when it does not return a future."""
        future = self._call()
        if not isinstance(future, torch._C.Future):
            raise no_future(future)
        return future

    def result(self, future: Future) -> torch.Tensor:
        """Return the hook's result."""
        return future.value()  # type: ignore[no-any-return]

    def describe(self) -> None:
        """Return ``None``: nothing is known of the hook's collectives."""


# torch 2.13 renamed these two and warns of the old names, the only ones that older versions have.
all_gather_flat: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_flat: Any = (
    getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
)

_SUM = dist.ReduceOp.SUM
_SUM_OPTIONS: Any = dist.AllreduceOptions()
_SUM_OPTIONS.reduceOp = _SUM
_SUM_OPTIONS.asyncOp = True


class AllReduce(Operation):
    """Reduce ``tensor`` over all ranks, in place; the hook gets the same tensor back.

    ``op``: the reduction, the sum by default.
    """

    __slots__ = ("op",)

    kind = "all_reduce"

    def __init__(
        self, tensor: torch.Tensor, group: dist.ProcessGroup | None = None, op: Any = _SUM
    ) -> None:
        self.tensor = tensor
        self.group = group_of(None) if group is None else group
        self.op = op

    def start(self) -> Future:
        """Issue the all-reduce."""
        if self.op is not _SUM or self.tensor.is_complex():
            work = dist.all_reduce(self.tensor, op=self.op, group=self.group, async_op=True)
            return work.get_future()
        # What `dist.all_reduce` comes down to, without its checks: a third of the cost of a call.
        return self.group.allreduce([self.tensor], _SUM_OPTIONS).get_future()


class _IntoOutput(Operation):
    """A collective whose result is not in its payload."""

    __slots__ = ("_output",)

    _output: Any

    def result(self, future: Future) -> Any:
        """Return the output."""
        future.value()
        return self._output


class AllGather(_IntoOutput):
    """Gather equal ``tensor`` s of all ranks; the hook gets a tensor of shape (ranks, *shape).

    With ``into``, a list of contiguous tensors of ``tensor``'s shape, one for each rank, it gets
    these instead: faster on a CPU above 32 MB, which are mapped afresh for each new tensor.
    """

    __slots__ = ("into",)

    kind = "all_gather"

    def __init__(
        self,
        tensor: torch.Tensor,
        group: dist.ProcessGroup | None = None,
        *,
        into: list[torch.Tensor] | None = None,
    ) -> None:
        super().__init__(tensor, group)
        self.into = into

    def start(self) -> Future:
        """Issue the all-gather into a new tensor, or into the list."""
        tensor, group = self.tensor, self.group
        if self.into is not None:
            self._output = self.into
            return dist.all_gather(self.into, tensor, group=group, async_op=True).get_future()
        self._output = tensor.new_empty((group.size(), *tensor.shape))
        flat, payload = self._output.flatten(), tensor.flatten()
        return all_gather_flat(flat, payload, group=group, async_op=True).get_future()


class AllToAll(_IntoOutput):
    """Send part j of ``tensor`` to rank j; the hook gets the parts from all ranks, concatenated.

    Parts have equal rows, or ``input_splits`` for and ``output_splits`` from each rank.
    """

    __slots__ = ("input_splits", "output_splits")

    kind = "all_to_all"

    def __init__(
        self,
        tensor: torch.Tensor,
        group: dist.ProcessGroup | None = None,
        *,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
    ) -> None:
        super().__init__(tensor, group)
        self.output_splits = None if output_splits is None else list(output_splits)
        self.input_splits = None if input_splits is None else list(input_splits)

    def describe(self) -> Collective | None:
        """Return what is known; the kind is ``send_recv`` where all goes to one other rank.

        Parts of several sizes are an ``all_to_allv``, which has no bus bandwidth.
        """
        known = super().describe()
        if known is None or self.input_splits is None:
            return known
        receivers = [rank for rank, rows in enumerate(self.input_splits) if rows]
        alone = len(receivers) == 1 and receivers[0] != self.group.rank()
        return known._replace(kind="send_recv" if alone else "all_to_allv")

    def start(self) -> Future:
        """Issue the all-to-all into a new tensor."""
        rows = self.tensor.shape[0] if self.output_splits is None else sum(self.output_splits)
        self._output = self.tensor.new_empty((rows, *self.tensor.shape[1:]))
        work = dist.all_to_all_single(
            self._output,
            self.tensor,
            self.output_splits,
            self.input_splits,
            group=self.group,
            async_op=True,
        )
        return work.get_future()


class ReduceScatter(_IntoOutput):
    """Sum ``tensor`` over all ranks and give rank i the i-th of equal parts (first dimension).

    gloo's reduce-scatter has no future: there an all-to-all exchanges the parts, which are added in
    rank order.
    """

    __slots__ = ("_parts",)

    kind = "reduce_scatter"

    def start(self) -> Future:
        """Issue the reduce-scatter.

        Raises ``ValueError`` when the first dimension does not divide by the number of ranks.
        """
        ranks, rows = self.group.size(), self.tensor.shape[0]
        if rows % ranks:
            raise ValueError(
                f"ReduceScatter cannot cut {rows} rows into {ranks} equal parts; pad the tensor"
            )
        if self.info.backend == "gloo":
            self._parts: AllToAll | None = AllToAll(self.tensor, self.group)
            return self._parts.start()
        self._parts = None
        self._output = self.tensor.new_empty((rows // ranks, *self.tensor.shape[1:]))
        work = reduce_scatter_flat(self._output, self.tensor, group=self.group, async_op=True)
        return work.get_future()

    def result(self, future: Future) -> Any:
        """Return this rank's part of the sum."""
        if self._parts is not None:
            received = self._parts.result(future)
            return received.view(self.group.size(), -1, *self.tensor.shape[1:]).sum(0)
        return super().result(future)


class Broadcast(Operation):
    """Copy ``tensor`` of global rank ``source``, one of the group, to all ranks, in place."""

    __slots__ = ("source",)

    kind = "broadcast"

    def __init__(
        self, tensor: torch.Tensor, source: int, group: dist.ProcessGroup | None = None
    ) -> None:
        super().__init__(tensor, group)
        self.source = dist.get_group_rank(self.group, source)  # whatever group it is issued on

    def start(self) -> Future:
        """Issue the broadcast."""
        # `dist.broadcast` looks the source up among registered groups; rounds have one that is not.
        options: Any = dist.BroadcastOptions()
        options.rootRank = self.source
        options.asyncOp = True
        tensor = torch.view_as_real(self.tensor) if self.tensor.is_complex() else self.tensor
        return self.group.broadcast([tensor], options).get_future()
