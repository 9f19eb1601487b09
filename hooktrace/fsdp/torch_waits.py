"""Where FSDP has the computing stream of a device wait for its collectives.

    wait_for_unshard, ... of a FSDPParamGroup --WatchedWaits--> UnitWaits.before(calls)

torch calls nobody at these waits.  But each is right behind the call of a method of the parameter
group, of its modules' state, or of a list that the groups share, and a function that stands in its
place on that instance is called first.  In torch 2.13 to 2.15 (``_fsdp_param_group.py``) the
computing stream waits

- in ``wait_for_unshard`` for the unit's all-gather, before its parameters are copied out of it;
- in ``post_backward`` for the reduce-scatter whose input was kept longest, once that is taken from
  ``reduce_scatter_states``: at each unit for the one before it, by default;
- in ``_wait_for_post_backward`` for what the unit itself has reduced before, in the same step;
- at the end of ``post_backward``, where ``fully_shard([a, b])`` had a part of its modules called,
  for what has just been reduced, which has then been added to ``reduce_scatter_states``;
- in ``finalize_backward`` for a gather that nobody needed;
- in ``finalize_backward``, from torch 2.15 on in the root state's ``_end_backward_iteration``
  before (``_fsdp_state.py``), for all that was reduced.

What FSDP copies into a gather's buffer, and does after a reduction (divisions, casts, copies to the
host), is waited for there too; it is no collective, and in no number.

Each of torch's private names for that stands here and nowhere else.  With another name, or another
version of torch, nothing is watched, and what is exposed is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from ..staging.calls import BucketCall
from ..staging.devices import has_events, which
from ..staging.units import UnitWaits
from .torch_groups import ParameterGroup

logger = logging.getLogger("hooktrace")

_TORCH_VERSIONS = ("2.13.", "2.14.", "2.15.")

_END = "_end_backward_iteration"
_STATES_END = not str(torch.__version__).startswith(("2.13.", "2.14."))
"""Whether it is in this method of the root's state that all that was reduced is waited for."""

_METHODS = ("wait_for_unshard", "post_backward", "_wait_for_post_backward", "finalize_backward")
_OF_GROUPS = (
    *_METHODS, "comm_ctx", "modules", "_training_state",
    "reduce_scatter_max_input_buffers",  # whose list is made later, with the streams
)  # fmt: skip


def can_watch(groups: Iterable[ParameterGroup], model: str) -> bool:
    """Return whether groups of a model are on a device at whose waits they can be watched.

    Where they are on one, and torch is of another version than is known, that is logged.
    """
    on_device = [group.of_torch for group in groups if has_events(group.of_torch.device)]
    known = str(torch.__version__).startswith(_TORCH_VERSIONS) and all(
        hasattr(group, name) for group in on_device for name in _OF_GROUPS
    )
    if on_device and not known:
        logger.warning(
            "where the computing stream of torch %s waits for FSDP's collectives is not known to "
            "hooktrace, so what is exposed of %s is not known; use torch 2.13, 2.14 or 2.15",
            torch.__version__,
            model,
        )
    return bool(on_device) and known


class Watch:
    """Methods of torch's objects, before whose calls it is told what is waited for."""

    def __init__(self, waits: UnitWaits) -> None:
        self.waits = waits
        self._undos: list[Callable[[], None]] = []

    def undo(self) -> None:
        """Give the objects their own methods back, but for what somebody has put there since."""
        while self._undos:
            self._undos.pop()()

    def tell(self, what: Callable[..., Any], *about: Any) -> Any:
        """Call something that must not fail training; ``None`` where it failed."""
        try:
            return what(*about)
        except Exception as error:
            self.waits.lose(error)
            return None

    def before(self, owner: Any, name: str, tell: Callable[[], None]) -> None:
        """Have ``tell`` called before each call of an object's method."""
        theirs, method = vars(owner).get(name), getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._undos:  # else somebody has kept this method, and calls it still
                self.tell(tell)
            return method(*args, **kwargs)

        def undo() -> None:
            if vars(owner).get(name) is not watched:
                return
            if theirs is None:
                delattr(owner, name)
            else:
                setattr(owner, name, theirs)

        watched._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of FSDP's own
        setattr(owner, name, watched)
        self._undos.append(undo)

    def all_reduced(self, owner: Any, context: str) -> None:
        """Take note that all that was reduced is about to be waited for."""
        of = getattr(owner, context)
        # What reduces over replicas, on another stream, comes after its unit's reduce-scatter.
        streams = [*of._last_post_reduce_events, of.reduce_scatter_stream]
        self.waits.before(streams=[*map(which, streams)])


class WatchedWaits(Watch):
    """One parameter group whose waits are told of."""

    def __init__(self, group: ParameterGroup, waits: UnitWaits) -> None:
        super().__init__(waits)
        self._group = group.of_torch
        self._unit = group.unit
        self._goes_on = False
        tellers = (self._unshards, self._reduces, self._reduces_again, self._finalizes)
        for name, tell in zip(_METHODS, tellers, strict=True):
            self.before(self._group, name, tell)

    def undo(self) -> None:
        """Give the group its own methods back, but for what somebody else has put there since."""
        super().undo()
        context = self._group.comm_ctx
        states = getattr(context, "reduce_scatter_states", None)
        if isinstance(states, _Retained) and states.reducing is self:
            context.reduce_scatter_states = list(states)

    def reduced(self) -> BucketCall | None:
        """Return the reduce-scatter that the group has just begun; FSDP may wait for it next."""
        if self._goes_on:
            self._reduces_again()
        return self.waits.last(self._unit, "reduce_scatter")

    def _unshards(self) -> None:
        self.waits.before(self.waits.last(self._unit, "all_gather"))

    def _reduces(self) -> None:
        group = self._group
        # As FSDP itself asks there.
        self._goes_on = len(group.modules) > 1 and group._training_state.name == "FORWARD"
        states = group.comm_ctx.reduce_scatter_states
        if not isinstance(states, _Retained):
            states = group.comm_ctx.reduce_scatter_states = _Retained(states)
        states.reducing = self

    def _reduces_again(self) -> None:
        scattered = self.waits.last(self._unit, "reduce_scatter")
        self.waits.before(scattered, self.waits.last(self._unit, "all_reduce"))

    def _finalizes(self) -> None:
        if not _STATES_END:
            self.all_reduced(self._group, "comm_ctx")
        self._unshards()


def watched_ends(states: Iterable[Any], waits: UnitWaits | None) -> Watch | None:
    """Return what watches the ends of a model's backward passes; ``None`` where groups do so.

    The root's state waits for all that was reduced.
    """
    if waits is None or not _STATES_END:
        return None
    watch = Watch(waits)
    for state in states:
        if hasattr(state, _END):  # else nobody knows what is exposed of the last reductions
            watch.before(state, _END, partial(watch.all_reduced, state, "_comm_ctx"))
    return watch


class _Retained(list[Any]):
    """FSDP's reduce-scatters whose input is kept: it waits for each that it takes from here.

    ``reducing``: the group whose gradients are being reduced.
    """

    def __init__(self, states: Iterable[Any]) -> None:
        super().__init__(states)
        self.reducing: WatchedWaits | None = None
        self._calls: dict[int, tuple[WatchedWaits, BucketCall]] = {}

    def append(self, state: Any) -> None:
        """Add one, and keep which call it is."""
        super().append(state)
        group = self.reducing
        call = None if group is None else group.tell(group.reduced)
        if group is not None and call is not None:
            self._calls[id(state)] = group, call

    def pop(self, index: Any = -1) -> Any:
        """Take one, which is waited for next."""
        state = super().pop(index)
        known = self._calls.pop(id(state), None)
        if known is not None:
            group, call = known
            group.tell(group.waits.before, call)
        return state

    def clear(self) -> None:
        """Take all of them, which were waited for at the end of the backward pass."""
        self._calls.clear()
        super().clear()
