"""The hooks that average over all ranks, each with the options that are worth a try.

catalogue, more options --candidates()--> Candidate: label, hook, state

``noop``, ``post-local-sgd`` and ``gossip`` are none: they do not average over all ranks, so a
step that they make shorter is no replacement for the job's own step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .catalogue import DDPCommHookType, HookEntry, Kind, catalogue

if TYPE_CHECKING:
    from ..staging.hook import StagedHook


@dataclass(frozen=True)
class Candidate:
    """A standard hook with options.

    ``label``: the entry's name, and what differs from it.  ``hook_options``: for ``bind``;
    ``state_options``: for the state's class, beside the entry's.
    """

    label: str
    entry: HookEntry
    hook_options: Mapping[str, Any] = field(default_factory=dict)
    state_options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def hook(self) -> StagedHook:
        """The hook; the first use imports torch."""
        hook = self.entry.hook
        return hook.bind(**self.hook_options) if self.hook_options else hook

    def make_state(self, process_group: Any = None, **options: Any) -> Any:
        """Return what to register the hook with, for a group (``None``: the default one)."""
        return self.entry.make_state(process_group, **{**self.state_options, **options})


_WORK: Mapping[Kind, int] = {"lossless": 0, "cast": 1, "quantised": 2, "low-rank": 3}


def candidates() -> tuple[Candidate, ...]:
    """Return all hooks that average, with their usual options; those that do least come first."""
    entries = sorted((e for e in catalogue() if e.kind != "local"), key=lambda e: _WORK[e.kind])
    plain = [Candidate(entry.name, entry) for entry in entries]
    channels = DDPCommHookType.QUANTIZE_PER_CHANNEL.value
    power_sgd = DDPCommHookType.POWER_SGD.value
    more = {
        channels.name: Candidate(
            f"{channels.name}-128", channels, hook_options={"bucket_size": 128}
        ),
        DDPCommHookType.POWER_SGD_RANK2.value.name: Candidate(
            f"{power_sgd.name}-rank4", power_sgd, state_options={"matrix_approximation_rank": 4}
        ),
    }
    return tuple(
        found for one in plain for found in (one, more.get(one.label)) if found is not None
    )
