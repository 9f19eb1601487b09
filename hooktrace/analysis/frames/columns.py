"""The columns of a run's tables: one declaration each, which tables and docs follow.

``dtype`` is pandas's name; ``table.py`` knows what others call it.  ``Int64`` has NA where a
value is not known and ``float64`` NaN; ``int64`` and ``bool`` are always known.  Names say the
unit.
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column: its name, its pandas dtype, and what it holds."""

    name: str
    dtype: str
    what: str


WALL = "datetime64[ns, UTC]"

_WHOSE = (
    Column("model", "category", "name of the model"),
    Column("hook", "category", "name of its communication hook"),
    Column("rank", "int64", "rank that recorded the row"),
    Column("step", "int64", "number of the step"),
    Column("generation", "int64", "DDP's bucket layout; 0 is the one before the first step's end"),
)
_BYTES = (
    Column(
        "gradient_bytes",
        "Int64",
        "bytes of gradients; of a unit what the rank gave to its collective, of a gather "
        "parameters",
    ),
    Column("wire_bytes", "Int64", "bytes that the rank sent"),
    Column("bus_bytes", "Int64", "those bytes times the bus factor of nccl-tests"),
)
_KINDS = (
    Column("warmup", "bool", "of a first step, before buckets are as they stay"),
    Column("shadow", "bool", "for a rank that has run out of data (join)"),
    Column("probed", "bool", "hooktrace looked at it, so its times are not training's own"),
)
_UNSURE = Column(
    "clock_uncertainty_ns", "Int64", "by how much the host's times may be off beside another rank's"
)
_SPLIT = (
    Column("wait_ns", "Int64", "part of the wire time until the last rank had begun"),
    Column("transfer_ns", "Int64", "rest of the wire time"),
)

STEPS = (
    *_WHOSE,
    Column("time", WALL, "wall-clock time of first_ready_ns"),
    Column("first_ready_ns", "Int64", "when the first bucket's gradients were there"),
    Column(
        "last_ready_ns", "Int64", "when the last bucket's were; on a device: its hook was called"
    ),
    Column("done_ns", "Int64", "when all results were there; on a device: had been enqueued"),
    _UNSURE,
    Column("period_ns", "Int64", "from the step's first bucket to the next step's"),
    Column(
        "exposed_ns",
        "Int64",
        "communication after the last gradient, not hidden by backward; of a sharded model what "
        "training waited for all units",
    ),
    Column("busy_ns", "Int64", "time with at least one bucket under way"),
    Column("wire_busy_ns", "Int64", "time with at least one collective on the wire"),
    *_BYTES,
    Column("bucket_count", "int64", "buckets of the step"),
    *_KINDS,
    Column("sharded", "bool", "whether the model is under FSDP2: units have the rows of buckets"),
    Column("complete", "bool", "whether all its buckets ended"),
    Column("counts", "bool", "whether its times enter the report's statistics"),
    Column(
        "stands_for_all",
        "bool",
        "whether its buckets enter them too: the file has them whatever they took, not for being "
        "slow",
    ),
)

BUCKETS = (
    *_WHOSE,
    Column("bucket", "int64", "index in its generation, in the order of the gradients"),
    Column("is_last", "bool", "whether its gradients come last"),
    Column("unit", "string", "of a sharded model the unit that is communicated; NA of a bucket"),
    Column("collective", "string", "what is done with the unit: all_gather, reduce_scatter, ..."),
    Column("phase", "string", "forward or backward; of a unit"),
    Column("turn", "Int64", "the how-manieth such call of the step, from 0; of a unit"),
    Column("exposed_ns", "Int64", "how long training waited for the unit's collective"),
    Column("dtype", "category", "torch's name of the gradients' type"),
    Column("time", WALL, "wall-clock time of called_ns"),
    Column("called_ns", "Int64", "when DDP called the hook, on the host"),
    Column("launched_ns", "Int64", "when the hook returned its future, on the host"),
    Column(
        "ready_ns",
        "Int64",
        "when the gradients were there; on a device, by its own clock from where the host called "
        "the step's first hook",
    ),
    Column("done_ns", "Int64", "when the result was there, by the clock of ready_ns"),
    _UNSURE,
    Column("duration_ns", "Int64", "done_ns less ready_ns"),
    *_SPLIT,
    *_BYTES,
    Column("error_relative_l2", "float64", "error of the result, |x - r| / |r|, where probed"),
    Column("error_cosine", "float64", "cosine of the result and the lossless average"),
    Column("exception", "string", "what the hook raised; NA where it did not"),
    *_KINDS,
)

STAGES = (
    *_WHOSE,
    Column("bucket", "int64", "index of its bucket"),
    Column("stage", "category", "turn, compress, queue, wire, decompress, ..."),
    Column("time", WALL, "wall-clock time of start_ns"),
    Column("start_ns", "Int64", "when it began"),
    Column("end_ns", "Int64", "when it ended"),
    _UNSURE,
    Column("duration_ns", "Int64", "end_ns less start_ns"),
    Column("derived", "bool", "worked out by the model of the backend's queue, not stamped"),
)

WAITS = (
    *_WHOSE,
    Column("bucket", "int64", "index of its bucket"),
    Column("time", WALL, "wall-clock time of start_ns"),
    Column("start_ns", "Int64", "when the rank began the collective"),
    Column("end_ns", "Int64", "when it had ended"),
    _UNSURE,
    Column("duration_ns", "Int64", "end_ns less start_ns: the wire time"),
    *_SPLIT,
    Column("waited_for", "Int64", "the last rank, where the clocks tell"),
)

RANKS = (
    Column("rank", "int64", "rank that has a file"),
    Column("host", "string", "name of its machine"),
    Column("pid", "Int64", "its process there"),
    Column("local_rank", "Int64", "which of the job's processes it is there"),
    Column("torch_version", "string", "of its torch"),
    Column("backend", "string", "of its process group"),
    Column("clock_known", "bool", "whether its clock was measured against rank 0's"),
    Column("steps", "int64", "steps that its files have, of all models"),
    Column("counts", "int64", "those of them whose times enter the report's statistics"),
    Column("closed", "bool", "whether its file was ended in order"),
    Column("unread", "int64", "lines of its files that could not be read"),
)

MODELS = (
    Column("model", "string", "its name"),
    Column("hook", "string", "name of its communication hook"),
    Column("sharded", "bool", "whether it is under FSDP2"),
    Column("ranks", "int64", "ranks that have steps of it"),
    Column("generations", "int64", "bucket layouts that it had"),
    Column("steps", "int64", "steps that any rank has"),
    Column("counts", "int64", "those of them that enter the report's statistics on any rank"),
    Column("waits_unknown", "string", "why nothing is known of its waits; NA where it is"),
)

TABLES = {
    "steps": STEPS,
    "buckets": BUCKETS,
    "stages": STAGES,
    "waits": WAITS,
    "ranks": RANKS,
    "models": MODELS,
}
"""By the name of the attribute of ``Run``."""
