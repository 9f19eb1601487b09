"""What is to be looked at on some steps of a model: decided once, when its first bucket comes.

tracer's options, the hook, the bucket --begin--> model.sampling

error  against all ranks' lossless average (ModelProbes)
wire   what a plain hook sends, where torch's process groups do not tell (WireSampler)
other  the job's other collectives, where they tell of a plain hook's (OtherSampler)
debug  every step (DebugChecks)
"""

from __future__ import annotations

import logging
import math
from typing import Any

import torch.distributed as dist

from ..probes.debug_checks import DebugChecks
from ..probes.device_group import trouble_with
from ..probes.model import ModelProbes
from ..probes.other_sampler import OtherSampler
from ..probes.step_sampler import Part, StepSampler
from ..probes.wire_sampler import WireSampler
from ..staging import group_hooks
from ..staging.groups import group_of, only_default_group
from ..staging.hook import StagedHook
from ..staging.slots import BucketSlot
from .tracer import Tracer

logger = logging.getLogger("hooktrace")


class SamplingPlan:
    """Plans for the models of one traced hook.

    ``staged``: the hook, where it is a staged one.  ``name``: of the hook.  ``local``: its results
    differ between ranks by design.  ``group``: the model's process group, where it is known.
    """

    def __init__(self, tracer: Tracer, staged: StagedHook | None, name: str, local: bool) -> None:
        self._tracer = tracer
        self._staged = staged
        self._name = name
        self._local = local
        self.group: dist.ProcessGroup | None = None

    def begin(self, state: Any, slot: BucketSlot, bucket: Any) -> None:
        """Arrange for what is to be looked at on some steps of a new model."""
        every, debug = self._tracer.error_every, self._tracer.debug
        parts: list[Part | None] = []
        # Of the collectives of a hook inside another one torch's groups do not tell whose they are.
        if every and (self._staged.has_plain if self._staged else not group_hooks.available):
            parts.append(WireSampler(every))
        if every and self._staged is None and group_hooks.available:
            parts.append(OtherSampler(every))
        # Numbers come from a device without waiting for it where it has events.
        if slot.device_type == "cpu" or slot.has_events:
            parts.append(self._comparison(state, slot, bucket) if every else None)
            parts.append(DebugChecks() if debug else None)
        elif every or debug:
            self._say(
                f"buckets of %s are not looked at: torch.accelerator knows no events of a "
                f"{slot.device_type} device, without which the numbers could not be read without "
                "waiting for it",
                slot,
            )
        wanted = [part for part in parts if part is not None]
        if wanted:
            slot.model.sampling = StepSampler(wanted)
            slot.model.sample_step = slot.model.sampling.next_step

    def _comparison(self, state: Any, slot: BucketSlot, bucket: Any) -> Part | None:
        """Offer the other ranks to probe a new model, if that is wanted and can be done."""
        tracer = self._tracer
        whole = sum(math.prod(shape) for _, shape in slot.parameters) == slot.numel
        # A complex gradient is two real numbers in its bucket, a sparse one has no flat form.
        if not (slot.is_dense and whole):
            return None
        trouble = None
        try:
            group = self._model_group(state)
            if group is None:
                return None
            if slot.device_type != "cpu":
                trouble = trouble_with(group, slot.device)
            if trouble is None:
                return ModelProbes(group, slot, bucket.parameters(), tracer, local=self._local)
        except Exception as error:  # of torch's store or of a state's attributes
            trouble = f"{type(error).__name__}: {error}"
        self._say(f"compression error of %s is not measured: {trouble}; training goes on", slot)
        return None

    def _say(self, what: str, slot: BucketSlot) -> None:
        """Warn of the first of a hook's models of which something is so, in the place of ``%s``."""
        if self._tracer.models.is_new(f"{self._name}: {what}"):
            logger.warning("%s", what.replace("%s", slot.model.name, 1))

    def _model_group(self, state: Any) -> dist.ProcessGroup | None:
        """Return the group that the model's gradients are averaged over, ``None`` if unknown."""
        if self.group is not None or not dist.is_initialized():
            return self.group
        named = state if state is None else getattr(state, "process_group", state)
        if isinstance(named, dist.ProcessGroup):
            return named
        # Without a group in its state, a hook means the default one, unless it has its own.
        return group_of(None) if self._staged is not None or only_default_group() else None
