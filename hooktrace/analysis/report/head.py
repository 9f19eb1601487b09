"""The head of a report: which run, which model, and which of its steps.

Run --run_source--> RunSource; this and ModelSource --*_lines--> names and texts
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from ...records.units import mb, ms, percent, size
from ..run import OtherTraffic, Run, other_traffic
from ..run.source import ModelSource

_MOST_HOSTS = 8

_WHY = {
    "warmup": "before DDP rebuilt its buckets",
    "join_dummy": "join() dummy steps",
    "incomplete": "not complete",
    "rebuild": "of earlier buckets",
    "checked": "sampled by hooktrace",
    "hang": "that hold a hang",
}
_OF_UNITS = _WHY | {"warmup": "of the first two, while a run warms up"}


class RunSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``path``: as it was given.  ``begun``: of the first process, UTC, ISO 8601.

    ``others``: what is communicated by no traced model.  ``others_unknown``: why that is not known;
    both are ``None`` of torch before 2.14, where it cannot be.
    """

    path: str | None
    begun: str | None
    hosts: tuple[str, ...]
    others: OtherTraffic | None = None
    others_unknown: str | None = None


def run_source(run: Run, path: str | None) -> RunSource:
    """Return what the files of all ranks say of the run."""
    runs = [track.records.run for track in run.tracks if track.records.run is not None]
    begun = min((info.wall_anchor_ns for info in runs), default=None)
    moment = None if begun is None else datetime.fromtimestamp(begun // 10**9, UTC)
    version = run.info.torch_version.split(".")[:2] if run.info is not None else []
    can_be_seen = [int(part) for part in version if part.isdecimal()] >= [2, 14]
    others = other_traffic(run)
    return RunSource(
        path=path,
        begun=None if moment is None else moment.isoformat(sep=" "),
        hosts=tuple(dict.fromkeys(info.host for info in runs)),
        others=others,
        others_unknown=_NOT_SEEN if others is None and can_be_seen else None,
    )


_NOT_SEEN = (
    "no step was watched (error_every) of a model without a hook or with a plain one; of other "
    "models hooktrace does not see the process groups"
)


def run_lines(source: RunSource) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what is known of a run."""
    yield "begun", f"{source.begun.removesuffix('+00:00')} UTC" if source.begun else "unknown"
    if source.path is not None:
        yield "files", source.path
    hosts, more = source.hosts[:_MOST_HOSTS], len(source.hosts) - _MOST_HOSTS
    yield "hosts", ", ".join(hosts) + (f" and {more} more" if more > 0 else "") or "unknown"
    if source.others is not None:
        yield "other collectives", _of_others(source.others)
    elif source.others_unknown is not None:
        yield "other collectives", f"not known: {source.others_unknown}"


def _of_others(others: OtherTraffic) -> str:
    """Return how much of the communication is of no traced model, in one sentence."""
    groups = others.unseen_groups
    unseen = f"; not seen: {groups} other process group{'s' * (groups != 1)}" if groups else ""
    steps = "1 step was" if others.steps == 1 else f"{others.steps:,} steps were"
    watched = f" ({steps} watched, each until the next one's first bucket{unseen})"
    if not others.count:
        return f"none{watched}"
    text = f"{others.count:,.1f}".removesuffix(".0") + " a watched step"
    if others.share is not None and others.wire_bytes is not None:
        sent, share = size(round(others.wire_bytes)), percent(others.share)
        text += f": {sent}, {share} of what they and traced models send"
    else:
        text += "; their share of the payload is not known"
    if others.in_flight_ns is not None:
        text += f", in flight for {ms(others.in_flight_ns)}; longest: {others.longest}"
    return f"{text}{watched}"


def model_lines(source: ModelSource) -> Iterator[tuple[str, str]]:
    """Yield names and texts of what is known of a model."""
    options, given = ", ".join(f"{name}={value}" for name, value in source.hook_options), ""
    total: int | None = source.gradient_bytes
    if source.is_sharded:
        yield "sharded", "by fully_shard (FSDP2): units take the place of buckets"
        total, given = source.reduced_bytes, " that a rank gives to reduce-scatters"
    if options or not source.is_sharded:
        yield "hook's options", options or "none recorded"
    if not source.is_sharded:
        # Files of an older hooktrace do not have it either.
        unknown = "not recorded; it is where instrument() registers the hook"
        cap = source.bucket_cap_bytes
        yield "bucket_cap_mb", unknown if cap is None else f"{cap / 2**20:.4g}"
    if source.parameters is not None:
        count = f"{source.parameters:,} with {source.elements:,} elements"
        yield "parameters", f"{count}, {mb(total)} of gradients{given}"
    yield "steps", _of_steps(source)


def _of_steps(source: ModelSource) -> str:
    text = f"{source.steps:,} of {source.seen:,} are included"
    if source.detailed < source.steps:
        text += f", {source.detailed:,} with their {'units' if source.is_sharded else 'buckets'}"
    if source.bucket_steps < source.detailed:
        text += f", of which {source.bucket_steps:,}, kept by their number, stand for all"
    if source.thin is not None:
        text += f"; {source.thin}"
    words = _OF_UNITS if source.is_sharded else _WHY
    why = [f"{count:,} {words[flag]}" for flag, count in source.left_out.items()]
    return text + (f"; left out: {', '.join(why)}" if why else "")
