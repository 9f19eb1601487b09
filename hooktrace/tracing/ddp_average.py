"""What DDP does without a hook, as a hook: the same average, bit for bit.

    gradient --copied into its bucket--> times 1/n --+
    gradient that is its bucket's memory already, or sparse --> divided by n --+--> sum over ranks

From three ranks on the two round differently.  n is the number of ranks, under
``join(divide_by_initial_world_size=False)`` of those that have data left.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join

from ..staging.collectives import AllReduce
from ..staging.driver import Steps
from ..staging.groups import group_of
from ..staging.hook import staged
from ..staging.slots import GradBucketLike

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


class DDPAverage:
    """The state of ``ddp_allreduce``: by what one model's gradients are divided, and how.

    A copy is of no model, and averages over the default group.
    """

    def __init__(self, ddp: DistributedDataParallel | None = None) -> None:
        self._ddp = (lambda: None) if ddp is None else weakref.ref(ddp)
        self._addresses: dict[int, int] | None = None
        """By ``id`` of a parameter where its gradient lay when DDP took it, if that is looked at:
        after that all of them are views of buckets."""
        self._ranks_left: Any = None
        """Those with data, where not all have: torch's work that tells, or what it has told."""
        if ddp is not None:
            _averages[ddp] = weakref.ref(self)
            _hear_of_joins()
            self._watch_gradients(ddp, ddp.process_group.size())

    def __reduce__(self) -> tuple[type[DDPAverage], tuple[()]]:
        return DDPAverage, ()

    @property
    def process_group(self) -> dist.ProcessGroup | None:
        """The model's group; ``None``, the default one, without a model."""
        ddp = self._ddp()
        return None if ddp is None else ddp.process_group

    def joined(self, work: Any) -> None:
        """Take note of what tells how many ranks still have data; DDP keeps it until the next."""
        ddp: Any = self._ddp()
        self._ranks_left = None if ddp._divide_by_initial_world_size else work
        if self._ranks_left is not None:
            self._watch_gradients(ddp, 3)  # any number of ranks may be left

    def divided(self, bucket: GradBucketLike, size: int) -> torch.Tensor:
        """Return the bucket's memory, its gradients divided in place; ``size``: of the group."""
        if self._ranks_left is not None and not isinstance(self._ranks_left, int):
            self._ranks_left = int(self._ranks_left.get_future().wait()[0].item())
        buffer, ranks = bucket.buffer(), self._ranks_left or size
        if ranks == 1:
            return buffer
        if buffer.layout is not torch.strided:
            return buffer.div_(ranks)
        if self._addresses is None:
            return buffer.mul_(1.0 / ranks)
        for gradient, parameter in zip(bucket.gradients(), bucket.parameters(), strict=True):
            # Its own memory, where it was its view of the bucket already.
            if self._addresses.get(id(parameter)) == gradient.data_ptr():
                gradient.div_(ranks)
            else:
                gradient.mul_(1.0 / ranks)
        if bucket.is_last():
            self._addresses.clear()
        return buffer

    def _watch_gradients(self, ddp: DistributedDataParallel, ranks: int) -> None:
        """Find out which gradients are not copied, where dividing differs from multiplying."""
        is_power_of_two = ranks & (ranks - 1) == 0
        if is_power_of_two or not ddp.gradient_as_bucket_view or self._addresses is not None:
            return
        self._addresses = {}
        note = functools.partial(_note, weakref.ref(ddp), self._addresses)
        for parameter in ddp.module.parameters():  # which one comes first is not known before
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(note)
                # Parameters outlive the model's DDP, and get another one's hooks then.
                weakref.finalize(self, handle.remove).atexit = False


def _note(
    model: weakref.ref[DistributedDataParallel], addresses: dict[int, int], parameter: torch.Tensor
) -> None:
    ddp = model()
    if ddp is None or not ddp.require_forward_param_sync:  # under no_sync()
        return
    if not addresses:  # before DDP takes those that this pass does not use
        for other in ddp.module.parameters():
            _see(addresses, other)
    _see(addresses, parameter)


def _see(addresses: dict[int, int], parameter: torch.Tensor) -> None:
    gradient = parameter.grad
    if gradient is not None and gradient.layout is torch.strided:
        addresses[id(parameter)] = gradient.data_ptr()


@staged(check=group_of)
def ddp_allreduce(state: DDPAverage, bucket: GradBucketLike) -> Steps:
    """Average the gradients as DDP does without a hook."""
    group = group_of(state)
    return (yield AllReduce(state.divided(bucket, group.size()), group))


_averages: weakref.WeakKeyDictionary[Any, weakref.ref[DDPAverage]] = weakref.WeakKeyDictionary()
"""By model, whose reducer holds its average, unless another hook has taken the place."""


def _hear_of_joins() -> None:
    """Have each model's average told how many ranks are left when DDP asks; once a process."""
    ask: Any = Join.notify_join_context
    if getattr(ask, "tells_hooktrace", False):
        return

    @functools.wraps(ask)
    def notify_join_context(joinable: Any) -> Any:
        work = ask(joinable)
        average = None if work is None else _averages.get(joinable, lambda: None)()
        if average is not None:
            average.joined(work)
        return work

    # Whoever wraps this one with functools.wraps takes it along.
    notify_join_context.tells_hooktrace = True  # type: ignore[attr-defined]
    Join.notify_join_context = staticmethod(notify_join_context)  # type: ignore[method-assign]
