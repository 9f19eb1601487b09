"""A made-up run as TensorBoard's own tabs have it, without record files."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from hooktrace.exporters.tensorboard import TensorBoardExporter
from hooktrace.records import Batch
from hooktrace.testing.synthetic import SyntheticJob, simulate

BUCKETS = 4
HALF = SyntheticJob(
    ranks=2, steps=2 * BUCKETS, hook="fp16_compress_hook", wire_share=0.5, error=0.01,
    error_every=1, bucket_bytes=(1_000_000,) * BUCKETS,
)  # fmt: skip
"""Each bucket is probed twice."""


def write_scalars(logdir: Path, job: SyntheticJob) -> None:
    """Write what the exporter of rank 0 would."""
    steps = tuple(step.completed(0) for step in simulate(job))
    layout = replace(job.layout(), bucket_cap_bytes=8 << 20)
    exporter = TensorBoardExporter(logdir)
    exporter.export(Batch(run=job.run(0), steps=steps, records=(layout,)))
    exporter.close()
