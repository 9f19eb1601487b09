"""The end of a run: a table of the buckets, a line for each rank's step, and what to open next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ...records.summary import BucketSummary, ModelSummary
from ...records.units import megabytes, milliseconds
from .options import DemoOptions, sends_opentelemetry
from .train import RankResult

_STAGES = ("compress", "queue", "wire", "decompress")


def print_closing(console: Console, options: DemoOptions, results: list[RankResult]) -> None:
    """Print what the ranks saw; ``results`` is in rank order and not empty."""
    losses = results[0].losses
    tail = losses[-10:]
    console.print(
        f"\nloss {losses[0]:.2f} at the first step, {sum(tail) / len(tail):.2f} over the last "
        f"{len(tail)}, rank 0",
        soft_wrap=True,
    )
    summary = results[0].summary
    if summary is None:
        console.print("every step was warm-up, so there are no timings; pass --steps 10 or more")
    else:
        console.print(_bucket_table(summary))
        console.print()
        for result in results:
            if result.summary is not None:
                console.print(_step_line(result.rank, result.summary), soft_wrap=True)
        console.print(_error_line(summary), soft_wrap=True)
    for line in _troubles(results):
        console.print(line, style="yellow", soft_wrap=True)
    _print_next(console, options)


def _bucket_table(summary: ModelSummary) -> Table:
    table = Table(
        title=f"{summary.hook}, rank 0: medians of {summary.steps} steps",
        caption="sizes in MB; times in ms: from ready to done, its 95th percentile, its stages; "
        "busbw: bus bandwidth (nccl-tests) in MB/s",
        box=None,
        pad_edge=False,
        header_style="bold",
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("bucket", "grad", "sent", "time", "p95", *_STAGES, "busbw"):
        table.add_column(heading, justify="right", no_wrap=True)
    for bucket in summary.buckets:
        table.add_row(*_bucket_row(bucket))
    return table


def _error_line(summary: ModelSummary) -> str:
    probed = [b for b in summary.buckets if b.error_p50 is not None]
    if not probed:
        return "no bucket's error was measured; pass --steps 30 or more"
    worst = max(probed, key=lambda b: b.error_p50 or 0.0)
    probes = sum(b.error_count for b in probed)
    if not worst.error_p50:
        return f"error against a lossless average: 0 in all of {probes} probes"
    return (
        f"error against a lossless average: {min(b.error_p50 or 0.0 for b in probed):.2g} to "
        f"{worst.error_p50:.2g} of the gradient's norm, largest in bucket {worst.bucket} "
        f"({probes} probes)"
    )


def _bucket_row(bucket: BucketSummary) -> list[str]:
    stages = (bucket.stage_p50_ns.get(name, 0) for name in _STAGES)
    busbw = bucket.busbw_p50_bytes_per_second
    return [
        str(bucket.bucket),
        megabytes(bucket.gradient_bytes),
        megabytes(bucket.wire_bytes),
        milliseconds(bucket.duration_p50_ns),
        milliseconds(bucket.duration_p95_ns),
        *(milliseconds(ns) for ns in stages),
        "-" if busbw is None else f"{busbw / 1e6:.0f}",
    ]


def _step_line(rank: int, summary: ModelSummary) -> str:
    share = "" if summary.exposed_share is None else f" ({summary.exposed_share:.1%})"
    overlap = "unknown" if summary.overlap_p50 is None else f"{summary.overlap_p50:.0%}"
    return (
        f"rank {rank}: {milliseconds(summary.period_p50_ns)} ms a step, "
        f"{milliseconds(summary.exposed_p50_ns)} ms of it exposed communication{share}, "
        f"overlap {overlap}"
    )


def _troubles(results: list[RankResult]) -> list[str]:
    lines = []
    for result in results:
        for name in result.failures:
            lines.append(f"rank {result.rank}: the {name} exporter failed; see {result.log_file}")
        for reason, count in result.lost.items():
            lines.append(
                f"rank {result.rank}: {count} record(s) lost ({reason}); see {result.log_file}"
            )
    return lines


def _print_next(console: Console, options: DemoOptions) -> None:
    page, events = str(options.out / "report.html"), str(options.out / "perfetto.json.gz")
    rows = [
        ("Report", shlex.join([_command("hooktrace"), "report", str(options.out), "--html", page])),
        ("TensorBoard", shlex.join([_command("tensorboard"), "--logdir", str(options.out)])),
        (
            "Perfetto",
            shlex.join([_command("hooktrace"), "export", str(options.out), "--out", events]),
        ),
        ("", "and drop that file on https://ui.perfetto.dev"),
        ("Prometheus", _prometheus_hint(options)),
    ]
    if sends_opentelemetry():
        rows.append(("OpenTelemetry", "spans and metrics went where OTEL_EXPORTER_OTLP_* says"))
    console.print("\nLook at it:", style="bold")
    for name, how in rows:
        console.print(f"  {name:<14}{how}", soft_wrap=True)


def _command(name: str) -> str:
    """Return how to call a command from this shell, whose PATH may not have this environment."""
    if shutil.which(name):
        return name
    command = Path(sys.executable).with_name(name)
    return os.path.relpath(command) if command.is_relative_to(Path.cwd()) else str(command)


def _prometheus_hint(options: DemoOptions) -> str:
    if options.hold:
        return "see below"
    if options.port == 0:
        return "served on free ports while it runs; --hold keeps it up"
    return f"http://127.0.0.1:{options.port}/metrics while it runs; --hold keeps it up"
