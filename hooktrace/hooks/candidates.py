"""The hooks that a calibration tries on a job's gradients, each with the options that it has there.

catalogue, more options --candidates()--> Candidate: label, hook, state --probes/trial.py--> costs

``noop``, ``post-local-sgd`` and ``gossip`` are not tried: they do not average over all ranks, so a
step that they make shorter is no replacement for the job's own step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..records import Options
from .catalogue import DDPCommHookType, HookEntry, Kind, catalogue

if TYPE_CHECKING:
    import torch

    from ..staging.driver import Steps
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

    def load(self) -> None:
        """Import the hook's module, and its state's with it, which takes up to 0.1 s."""
        _ = self.hook

    @property
    def options(self) -> Options:
        """What it differs by from the hook's own defaults, for records."""
        return tuple(
            {**self.entry.state_options, **self.state_options, **self.hook_options}.items()
        )

    def make_state(self, process_group: Any = None, **options: Any) -> Any:
        """Return what to register the hook with, for a group (``None``: the default one)."""
        return self.entry.make_state(process_group, **{**self.state_options, **options})

    def working_state(self, process_group: Any) -> Any:
        """Return a state of which the next call is normal work: no longer plain averages."""
        state = self.make_state(process_group)
        if self.entry.state_name == "PowerSGDState":
            state.iter = state.start_powerSGD_iter
        return state

    def fits(self, dtype: torch.dtype) -> bool:
        """Return whether the hook takes gradients of a dtype."""
        return dtype.is_floating_point or not self.hook.floating

    def steps(self, state: Any, bucket: Any) -> Steps:
        """Return the hook's generator for a bucket."""
        return self.hook.steps(state, bucket)


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
