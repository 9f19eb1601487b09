"""The end of a run: what the ranks saw, what to open next, and on demand the metrics once more.

Metrics are served again so that a scraper that comes late still finds them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ...exporters import PrometheusExporter
from ...fsdp.traced_unit import PLAIN
from ...records import STAGES, Batch, BucketRecord
from ...records.files import find_records, record_path
from ...records.reader import read_parts
from ...records.summary import BucketSummary, ModelSummary
from ...records.units import mb_per_second, megabytes, milliseconds
from .options import DemoOptions, sends_opentelemetry
from .train import RankResult

_USUAL_STAGES = {"compress", "queue", "wire", "decompress"}


def print_closing(console: Console, options: DemoOptions, results: list[RankResult]) -> None:
    """Print what the ranks saw; ``results`` is in rank order and not empty."""
    losses = results[0].losses
    tail = losses[-10:]
    console.print(
        f"\nloss {losses[0]:.2f} at the first step, {sum(tail) / len(tail):.2f} over the last "
        f"{len(tail)}, rank 0"
    )
    summary = results[0].summary
    if summary is None:
        why = "every step was warm-up or probed, so there are no timings; pass --steps 10 or more"
        console.print(why)
    else:
        console.print(_bucket_table(summary), soft_wrap=False)
        console.print()
        for result in results:
            if result.summary is not None:
                console.print(_step_line(result.rank, result.summary))
        console.print(_error_line(summary))
    for result in results:
        for name in result.failures:
            trouble = f"the {name} exporter failed"
            console.print(_trouble(result, trouble), style="yellow")
        for reason, count in result.lost.items():
            console.print(_trouble(result, f"{count} record(s) lost ({reason})"), style="yellow")
    console.print("\nLook at it:", style="bold")
    for name, how in _what_next(options):
        console.print(f"  {name:<14}{how}")


def _trouble(result: RankResult, what: str) -> str:
    return f"rank {result.rank}: {what}; see {result.log_file}"


def _bucket_table(summary: ModelSummary) -> Table:
    occurred = {name for bucket in summary.buckets for name in bucket.stage_p50_ns}
    is_sharded = summary.buckets[0].unit is not None
    found = occurred if is_sharded else _USUAL_STAGES | occurred
    stages = [name for name in STAGES if name in found]
    table = Table(
        title=f"{summary.hook}, rank 0: medians of {summary.steps} steps",
        caption="sizes in MB; times in ms: from ready to done, its 95th percentile, its stages; "
        "busbw: bus bandwidth (nccl-tests) in MB/s, over wire, which holds waiting for late ranks",
        box=None,
        padding=(0, 1, 0, 0) if is_sharded or len(stages) > len(_USUAL_STAGES) else (0, 1),
        pad_edge=False,
        header_style="bold",
        title_justify="left",
        caption_justify="left",
    )
    first, justify = ("unit", "left") if is_sharded else ("bucket", "right")
    table.add_column(first, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # a literal
    for heading in ("data" if is_sharded else "grad", "sent", "time", "p95", *stages, "busbw"):
        table.add_column(heading, justify="right", no_wrap=True)
    for bucket in summary.buckets:
        table.add_row(
            _short(bucket),
            megabytes(bucket.gradient_bytes),
            megabytes(bucket.wire_bytes),
            milliseconds(bucket.duration_p50_ns),
            milliseconds(bucket.duration_p95_ns),
            *(milliseconds(bucket.stage_p50_ns.get(name, 0)) for name in stages),
            mb_per_second(bucket.busbw_p50_bytes_per_second),
        )
    return table


def _called(bucket: BucketSummary) -> str:
    return str(bucket.bucket if bucket.unit is None else bucket.unit)


def _short(bucket: BucketSummary) -> str:
    """Return what the table calls it: a line of 80 letters has to hold all of its columns."""
    name = _called(bucket).replace(" (backward)", "").replace("all-gather (forward)", "gather fwd")
    return name.replace("all-gather", "gather bwd")


def _step_line(rank: int, summary: ModelSummary) -> str:
    share = "" if summary.exposed_share is None else f" ({summary.exposed_share:.1%})"
    overlap = "unknown" if summary.overlap_p50 is None else f"{summary.overlap_p50:.0%}"
    return (
        f"rank {rank}: {milliseconds(summary.period_p50_ns)} ms a step, "
        f"{milliseconds(summary.exposed_p50_ns)} ms of it exposed communication{share}, "
        f"overlap {overlap}"
    )


def _error_line(summary: ModelSummary) -> str:
    is_sharded = summary.buckets[0].unit is not None
    kind, plain, of = "bucket", "average", "the gradient's"
    if is_sharded:
        kind, plain, of = "unit", "collective", "its data's"
    errors = {_called(b): b.error_p50 for b in summary.buckets if b.error_p50 is not None}
    if not errors and summary.hook == PLAIN:
        return "no error is measured: the collectives are torch's own, which lose nothing"
    if not errors:
        return f"no {kind}'s error was measured; pass --steps 30 or more"
    probes = sum(b.error_count for b in summary.buckets)
    worst = max(errors, key=errors.__getitem__)
    if not errors[worst]:
        return f"error against a lossless {plain}: 0 in all of {probes} probes"
    return (
        f"error against a lossless {plain}: {min(errors.values()):.2g} to {errors[worst]:.2g} of "
        f"{of} norm, largest in {kind} {worst} ({probes} probes)"
    )


def _what_next(options: DemoOptions) -> Iterator[tuple[str, str]]:
    """Yield what shows the run, and how."""
    out, hooktrace = str(options.out), _command("hooktrace")
    page, events = str(options.out / "report.html"), str(options.out / "perfetto.json.gz")
    yield "Report", shlex.join([hooktrace, "report", out, "--html", page])
    yield "TensorBoard", shlex.join([_command("tensorboard"), "--logdir", out])
    yield "Perfetto", shlex.join([hooktrace, "export", out, "--out", events])
    yield "", "and drop that file on https://ui.perfetto.dev"
    if options.hold:
        yield "Prometheus", "see below"
    else:
        where = f"http://127.0.0.1:{options.port}/metrics" if options.port else "on free ports"
        yield "Prometheus", f"{where} while it runs; --hold keeps it up"
    if sends_opentelemetry():
        yield "OpenTelemetry", "spans and metrics went where OTEL_EXPORTER_OTLP_* says"


def _command(name: str) -> str:
    """Return how to call a command from this shell, whose PATH may not have this environment."""
    if shutil.which(name):
        return name
    command = Path(sys.executable).with_name(name)
    return os.path.relpath(command) if command.is_relative_to(Path.cwd()) else str(command)


def hold(console: Console, options: DemoOptions) -> None:
    """Serve each rank's metrics, read back from its record file, until Ctrl-C or SIGTERM."""
    ended = threading.Event()
    files = find_records(options.out)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as stack:
        for rank in range(options.ranks):
            exporter = PrometheusExporter(
                options.port, local_rank=rank, file_sd=options.out / "prometheus"
            )
            stack.callback(exporter.close)
            exporter.export(_read_batch(files.get(rank, [record_path(options.out, rank)])))
            console.print(f"holding the metrics of rank {rank}: {exporter.url}")
        console.print("Ctrl-C ends it")
        ended.wait()


def _read_batch(paths: list[Path]) -> Batch:
    """Return all records of a rank's record files as one batch.

    Raises ``ValueError`` where no run can be read in them.
    """
    records = read_parts(paths)
    if records.run is None:
        raise ValueError(f"{paths[0]} holds no run; run the demo again")
    buckets: dict[tuple[str, int], list[BucketRecord]] = defaultdict(list)
    for bucket in records.buckets:
        buckets[bucket.model, bucket.step].append(bucket)
    return Batch(
        run=records.run,
        steps=tuple((step, tuple(buckets[step.model, step.step])) for step in records.steps),
        records=(*records.layouts, *records.anomalies),
    )
