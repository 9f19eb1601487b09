"""What the calls of an opaque hook sent in a sampled step, or why that is not known.

    ring --WireSample--> SentLookUp.add              before its step is complete
    a step's calls --of_step--> FlightRecorder, attribute --> Attribution

That it is not known is logged once for a hook and a reason, and stands in each step's record.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ..capture.calls import BucketCall
from ..probes.wire import (
    Attribution,
    CallWindow,
    FlightRecorder,
    UnknownError,
    WireSample,
    attribute,
)
from ..records.last_used import Bounded
from .stage_times import launched

logger = logging.getLogger("hooktrace")

_KEPT = 4096
"""Samples whose steps have not come, of which more are of steps that were lost; and reasons."""

_UNLISTED = (
    "torch's Flight Recorder lists no collective of the hook; it does not list sends and receives "
    "on gloo, so they cannot be told from a hook that sends nothing"
)


class SentLookUp:
    """Looks the calls of sampled steps up in torch's Flight Recorder."""

    def __init__(self) -> None:
        self._recorder = FlightRecorder()
        self._samples: Bounded[tuple[str, int], WireSample] = Bounded(_KEPT)
        self._told: Bounded[tuple[str, str], None] = Bounded(_KEPT)

    def add(self, sample: WireSample) -> None:
        """Take note that a step is to be looked up."""
        self._samples[sample.model, sample.step] = sample

    def of_step(self, calls: Sequence[BucketCall]) -> Attribution:
        """Return what each call of a step sent, and all of them, where it is known."""
        slot, step = calls[0].slot, calls[0].step
        sample = self._samples.pop((slot.model.name, step), None)
        nothing = Attribution([None] * len(calls), None)
        if sample is None or all(call.staged for call in calls):
            return nothing
        try:
            found = self._look_up(calls, sample)
        except UnknownError as error:
            found = nothing._replace(why=str(error))
        if found.why is not None:
            self._tell(slot.model.hook, slot.model.name, step, found.why)
        return found

    def _look_up(self, calls: Sequence[BucketCall], sample: WireSample) -> Attribution:
        windows = [CallWindow(call.ready, launched(call), call.done) for call in calls]
        to_wall = sample.wall_ns - sample.host_ns
        begin, end = min(w.ready for w in windows), max(w.done for w in windows)
        device = calls[0].slot.device_type
        issued = self._recorder.issued(begin + to_wall, end + to_wall, device)
        found = attribute(issued, windows, sample)
        if found.of_step == () and device == "cpu":
            raise UnknownError(_UNLISTED)
        return found

    def _tell(self, hook: str, model: str, step: int, why: str) -> None:
        if (hook, why) not in self._told:  # not by model: a job may make many
            self._told[hook, why] = None
            logger.warning(
                "what hook %r of %s sends is not known in step %d: %s; further steps say so in "
                "their records",
                *(hook, model, step, why),
            )
