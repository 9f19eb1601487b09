"""Where FSDP has the computing stream of a device wait for its collectives.

    wait_for_unshard, ... of a FSDPParamGroup --WatchedWaits--> UnitWaits.before(calls)

torch calls nobody at these waits.  But each is right behind the call of a method of the parameter
group, or of a list that the groups share, and a function that stands in its place on that instance
is called first.  In torch 2.13 and 2.14 (``_fsdp_param_group.py``) the computing stream waits

- in ``wait_for_unshard`` for the unit's all-gather, before its parameters are copied out of it;
- in ``post_backward`` for the reduce-scatter whose input was kept longest, once that is taken from
  ``reduce_scatter_states``: at each unit for the one before it, by default;
- in ``_wait_for_post_backward`` for what the unit itself has reduced before, in the same step;
- at the end of ``post_backward``, where ``fully_shard([a, b])`` had a part of its modules called,
  for what has just been reduced, which has then been added to ``reduce_scatter_states``;
- in ``finalize_backward`` for all that was reduced, and for a gather that nobody needed.

What FSDP copies into a gather's buffer, and does after a reduction (divisions, casts, copies to the
host), is waited for there too; it is no collective, and in no number.

Each of torch's private names for that stands here and nowhere else.  With another name, or another
version of torch, nothing is watched, and what is exposed is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..staging.devices import DeviceCall, has_events, which
from ..staging.unit_waits import UnitWaits
from .torch_groups import ParameterGroup

logger = logging.getLogger("hooktrace")

_KNOWN_VERSIONS = ("2.13.", "2.14.")
"""Of torch.  2.15 has the same names, and waits at other places."""

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
    known = str(torch.__version__).startswith(_KNOWN_VERSIONS) and all(
        hasattr(group, name) for group in on_device for name in _OF_GROUPS
    )
    if on_device and not known:
        logger.warning(
            "where the computing stream of torch %s waits for FSDP's collectives is not known to "
            "hooktrace, so what is exposed of %s is not known; use torch 2.13 or 2.14",
            torch.__version__,
            model,
        )
    return bool(on_device) and known


def watched(group: ParameterGroup, waits: UnitWaits | None) -> WatchedWaits | None:
    """Return what watches a group's waits; ``None`` where there are none, or nobody asks."""
    on_device = waits is not None and has_events(group.of_torch.device)
    return WatchedWaits(group, waits) if on_device and waits is not None else None


class WatchedWaits:
    """One parameter group whose waits are told of, until ``undo``."""

    def __init__(self, group: ParameterGroup, waits: UnitWaits) -> None:
        self._group = group.of_torch
        self._unit = group.unit
        self._waits = waits
        self._goes_on = False
        self._undos: list[Callable[[], None]] = []
        tellers = (self._unshards, self._reduces, self._reduces_again, self._finalizes)
        for name, tell in zip(_METHODS, tellers, strict=True):
            self._watch(name, tell)

    def undo(self) -> None:
        """Give the group its own methods back, but for what somebody else has put there since."""
        undos, self._undos = self._undos, []
        for undo in undos:
            undo()
        context = self._group.comm_ctx
        states = getattr(context, "reduce_scatter_states", None)
        if isinstance(states, _Retained) and states.reducing is self:
            context.reduce_scatter_states = list(states)

    def reduced(self) -> DeviceCall | None:
        """Return the reduce-scatter that the group has just begun; FSDP may wait for it next."""
        scattered = self._waits.last(self._unit, "reduce_scatter")
        if self._goes_on:
            self._waits.before(scattered, self._waits.last(self._unit, "all_reduce"))
        return scattered

    def tell(self, what: Callable[..., Any], *about: Any) -> Any:
        """Call something that must not fail training; ``None`` where it failed."""
        try:
            return what(*about)
        except Exception as error:
            self._waits.lose(error)
            return None

    def waits_for(self, call: DeviceCall) -> None:
        """Take note that FSDP is about to wait for a call."""
        self.tell(self._waits.before, call)

    def _watch(self, name: str, tell: Callable[[], None]) -> None:
        group, theirs = self._group, vars(self._group).get(name)
        method = getattr(group, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._undos:  # else somebody has kept this method, and calls it still
                self.tell(tell)
            return method(*args, **kwargs)

        def undo() -> None:
            if vars(group).get(name) is not watched:
                return
            if theirs is None:
                delattr(group, name)
            else:
                setattr(group, name, theirs)

        watched.watch = self  # type: ignore[attr-defined]
        watched._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of FSDP's own
        setattr(group, name, watched)
        self._undos.append(undo)

    def _unshards(self) -> None:
        self._waits.before(self._waits.last(self._unit, "all_gather"))

    def _reduces(self) -> None:
        group = self._group
        # As FSDP itself asks there.
        self._goes_on = len(group.modules) > 1 and group._training_state.name == "FORWARD"
        states = group.comm_ctx.reduce_scatter_states
        if not isinstance(states, _Retained):
            states = group.comm_ctx.reduce_scatter_states = _Retained(states)
        states.reducing = self

    def _reduces_again(self) -> None:
        scattered = self._waits.last(self._unit, "reduce_scatter")
        self._waits.before(scattered, self._waits.last(self._unit, "all_reduce"))

    def _finalizes(self) -> None:
        context = self._group.comm_ctx
        # What reduces over replicas, on another stream, comes after its unit's reduce-scatter.
        streams = [*context._last_post_reduce_events, context.reduce_scatter_stream]
        gathered = self._waits.last(self._unit, "all_gather")
        self._waits.before(gathered, streams=[*map(which, streams)])


def unwatch(group: ParameterGroup) -> None:
    """Give a group its own methods back, whoever watches it."""
    for name in _METHODS:
        watch = getattr(vars(group.of_torch).get(name), "watch", None)
        if isinstance(watch, WatchedWaits):
            watch.undo()


class _Retained(list[Any]):
    """FSDP's reduce-scatters whose input is kept: it waits for each that it takes from here.

    ``reducing``: the group whose gradients are being reduced.
    """

    def __init__(self, states: Iterable[Any]) -> None:
        super().__init__(states)
        self.reducing: WatchedWaits | None = None
        self._calls: dict[int, tuple[WatchedWaits, DeviceCall]] = {}

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
            group.waits_for(call)
        return state

    def clear(self) -> None:
        """Take all of them, which were waited for before, or are after ``finalize_backward``."""
        self._calls.clear()
        super().clear()
