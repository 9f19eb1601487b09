"""What the run itself is: settled steps, layout, hook and hosts of a model; or why it cannot serve.

Timeline, model --own_run--> OwnRun, which calibration.py and fit_network.py read
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ...records import BucketLayout, LayoutRecord, RunInfo
from ...records.errors import UsageError
from ..report.settled import settled_steps
from ..report.step_arrays import StepArrays
from ..timeline import Timeline
from .hook_rules import Parameters, Rule, Sent, known_as, label_of, rule_of
from .work import Parameter


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A run of several ranks on CPUs whose hook's bytes are known.

    ``hook``: its name on the command line; ``options``: of its state.  ``per_host``: ranks of a
    host, 1 where there is one host, whose ranks the network joins one by one.
    """

    arrays: StepArrays
    layout: LayoutRecord
    run: RunInfo
    hook: str
    options: Mapping[str, Any]
    rule: Rule
    per_host: int
    ranks_of_a_host: int

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.run.world_size

    @property
    def label(self) -> str:
        """The hook's name with its options."""
        return label_of(self.hook, self.options)

    @property
    def sent(self) -> dict[int, list[Sent]]:
        """What each bucket's rounds send."""
        return {
            bucket.bucket: self.rule.sends(parameters_in(bucket), self.options)
            for bucket in self.layout.buckets
        }


def own_run(timeline: Timeline, model: str) -> OwnRun:
    """Return what the run is; raises ``UsageError`` for one that cannot serve, with a remedy."""
    run = timeline.run
    if run is None or run.world_size < 2:
        raise UsageError(
            "the run has one rank, so nothing was communicated; record a run of two or more"
        )
    if model not in timeline.models:
        raise UsageError(f"no model {model!r} is in the run; pass {' or '.join(timeline.models)}")
    arrays = settled_steps(timeline, model)
    if arrays is None or not len(arrays.buckets):
        raise UsageError(
            f"no step of model {model!r} counts (all are warm-up, probed or incomplete); "
            "train for more steps"
        )
    if arrays.is_sharded:
        raise UsageError(
            f"model {model!r} is sharded by fully_shard (FSDP2), and what-if does not take units "
            "yet; hooktrace report says which units and collectives cost time"
        )
    if arrays.is_on_device:
        raise UsageError(
            "the run's gradients are on a device, whose streams are not modelled yet; record the "
            "run on CPUs"
        )
    layout = _layout(timeline, arrays)
    known = known_as(arrays.hook, dict(layout.hook_options))
    if known is None:
        raise UsageError(
            f"what hook {arrays.hook!r} sends for other buckets is not known; record the run with "
            "a hook of `hooktrace hooks`"
        )
    if "hook" in arrays.stages:
        raise UsageError(
            f"hook {arrays.hook!r} is opaque: its stages are not in the files; record the run with "
            "the hook of that name in hooktrace.hooks"
        )
    rule = rule_of(known[0])
    assert rule is not None
    of_hosts = Counter(t.records.run.host for t in timeline.tracks if t.records.run is not None)
    most = max(of_hosts.values())
    return OwnRun(
        arrays, layout, run, *known, rule, per_host=most if len(of_hosts) > 1 else 1,
        ranks_of_a_host=most,
    )  # fmt: skip


def parameters_in(bucket: BucketLayout) -> Parameters:
    """Return the parameters of a bucket, in its order."""
    item = bucket.gradient_bytes // bucket.numel if bucket.numel else 4
    return tuple(
        Parameter(name, shape, bucket.dtype, item * prod(shape))
        for name, shape in bucket.parameters
    )


def layouts_of(timeline: Timeline, model: str) -> dict[int, LayoutRecord]:
    """Return a model's layouts by generation: they are the same on all ranks."""
    found: dict[int, LayoutRecord] = {}
    for track in timeline.tracks:
        for one in track.records.layouts:
            if one.model == model:
                found.setdefault(one.generation, one)
    return found


def _layout(timeline: Timeline, arrays: StepArrays) -> LayoutRecord:
    found = layouts_of(timeline, arrays.model).get(arrays.generation)
    if found is None:
        raise UsageError(
            f"the files do not say which parameters the buckets of model {arrays.model!r} hold; "
            "record the run again"
        )
    return found
