"""The runs that browser tests look at, one folder each in one logdir."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.records import Parameter
from hooktrace.records.codec import RecordEncoder
from hooktrace.testing.synthetic import SyntheticJob, write_job
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from hooktrace.testing.synthetic_shards import ShardedJob, write_sharded_job

from ..analysis.run.files import collective, run_of, steps_of, text_of, write_others, write_ranks
from ..exporters.records_sample import make_anomaly, make_layout

SWEEP = [f"sweep/lr{i:02d}" for i in range(12)]
LATE_OF_MANY = 37
SHARDED = ShardedJob(ranks=4, replicas=2, steps=6, late_ms={3: 4.0})
HARM = "<script>window.top.harm=1</script><img src=x onerror='window.top.harm=1'>"
HARMFUL = "x" + HARM.replace("/", "")
"""A run's name."""

JOBS = {
    "a/late": SyntheticJob(steps=60, late_ms={2: 6.0}, anomaly_rank=1),
    "b": SyntheticJob(steps=30, jitter_ms=3.0),
    # Rank 2 is 12 ms late, so that it is known what must be seen.
    "late": SyntheticJob(ranks=4, steps=12, late_ms={2: 12.0}, jitter_ms=0.0),
    "faster": SyntheticJob(
        ranks=2, steps=8, jitter_ms=0.0, forward_ms=25.0, hook="fp16_compress_hook", wire_share=0.5
    ),
    "many": SyntheticJob(
        ranks=64, steps=12, late_ms={LATE_OF_MANY: 12.0}, bucket_bytes=(1_000_000,) * 6,
        jitter_ms=0.1,
    ),
}  # fmt: skip
HANGS = {
    "lasts": SyntheticHang(step=12, killed=(2,)),
    "went on": SyntheticHang(step=6, went_on_after_s=42),
}


def write_runs(logdir: Path) -> None:
    """Write all of them."""
    for name, job in JOBS.items():
        write_job(job, logdir / name)
    for name in SWEEP:
        write_ranks(logdir / name, {0: text_of(run_of(0), steps_of(2))})
    for name, hang in HANGS.items():
        write_hung_job(SyntheticJob(steps=12), hang, logdir / name)
    write_sharded_job(SHARDED, logdir / "sharded")
    of_no_hook = collective(1000, 9000), collective(15_000, 2000, name="barrier")
    write_others(logdir / "others", *of_no_hook)
    _write_harmful(logdir / HARMFUL)


def _write_harmful(folder: Path) -> None:
    """Markup in each name, a line that is none, a file of rubbish, and one that is no file."""
    steps = [
        (replace(s, model=HARM), tuple(replace(b, model=HARM, exception=HARM) for b in bs))
        for s, bs in steps_of(4)
    ]
    layout = make_layout()
    bucket = replace(layout.buckets[0], parameters=(Parameter(HARM, (1, 2)),))
    encoder = RecordEncoder()
    text = "".join(
        [
            text_of(run_of(0), steps, ended=False),
            encoder.record(replace(layout, model=HARM, buckets=(bucket,))).decode(),
            encoder.record(replace(make_anomaly(2), model=HARM, kind=HARM, message=HARM)).decode(),
            "rubbish\n",
        ]
    )
    write_ranks(folder, {0: text, 1: "\x00\x01 not a trace\n" * 50})
    (folder / "plugins/hooktrace/rank00002.jsonl").mkdir()
