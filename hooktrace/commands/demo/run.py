"""Starts the demo's ranks, and says how they ended, what they saw and what to open next."""

from __future__ import annotations

import importlib.util
import math
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import typer
from torch.distributed.elastic.multiprocessing import SignalException, Std

from ...exporters import PrometheusExporter
from ...records import Batch, BucketRecord
from ...records.errors import UsageError
from ...records.files import find_records, record_path
from ...records.reader import read_parts
from ...testing.ranks import RankError, run_ranks
from .train import HOOKS, UNIT_HOOKS, DemoOptions, RankResult, sends_opentelemetry, train


def run(options: DemoOptions) -> int:
    """Run the demo and print what it saw; returns the exit code, and leaves no process.

    0: all ranks ended well.  1: a rank failed; standard error says which, why and where its log
    is.  128 + n: signal n ended it.  Raises ``UsageError`` for options that cannot work.
    """
    _check(options)
    shown = HOOKS[options.hook].hook_name if not options.fsdp else options.hook
    if options.fsdp and options.hook not in UNIT_HOOKS:
        shown = "fully_shard"
    typer.echo(
        f"hooktrace demo: {_count(options.ranks, 'rank')}, {shown}, "
        f"{_count(options.steps, 'step')}, files in {options.out}"
    )
    logs = options.out / "logs"
    logs.mkdir(exist_ok=True)
    # Rank 0 has the screen; all else that ranks print goes to their logs.
    redirects = {rank: Std.ALL if rank else Std.ERR for rank in range(options.ranks)}
    try:
        results = run_ranks(
            options.ranks, train, options, deadline_s=math.inf, logs=logs, redirects=redirects
        )
    except RankError as error:
        _complain(f"rank {error.rank} failed: {error.reason}\n  its log and error: {error.logs}")
        if (records := record_path(options.out, error.rank)).exists():
            typer.echo(f"  its records until then: {records}", err=True)
        return 1
    except SignalException as error:
        name = signal.Signals(error.sigval).name
        _complain(f"ended by {name}; what was recorded until then is in {options.out}")
        return 128 + error.sigval
    finally:  # what ranks that were killed could not do
        for path in (options.out / "prometheus").glob("hooktrace-rank*.json"):
            path.unlink(missing_ok=True)
    _print_closing(options, results)
    if options.hold:
        _hold(options)
    return 0


def _check(options: DemoOptions) -> None:
    """Raise ``UsageError`` for the first option that cannot work; makes ``out``."""
    hook, ranks, port, cap = options.hook, options.ranks, options.port, options.bucket_cap_mb
    refusals = {
        f"no hook is called {hook!r}; pass --hook a name that 'hooktrace hooks' lists": (
            not options.fsdp and hook not in HOOKS
        ),
        f"a sharded model takes no hook {hook!r}; pass --hook one of "
        f"{', '.join(sorted(UNIT_HOOKS))}, or none": (
            options.fsdp and hook not in {"allreduce", *UNIT_HOOKS}
        ),
        f"{ranks} ranks cannot train; pass --ranks 1 or more": ranks < 1,
        "over one rank nothing is sharded; pass --fsdp with --ranks 2 or more": (
            options.fsdp and ranks < 2
        ),
        f"{options.steps} steps are no training; pass --steps 1 or more": options.steps < 1,
        f"a bucket cannot hold {cap:g} MB; pass --bucket-cap-mb above 0": not cap > 0,
        f"{ranks} rank(s) from port {port} on leave the range of ports; "
        "pass --port 9464, or --port 0 for free ones": not 0 <= port <= 65536 - ranks,
    }
    for why, is_so in refusals.items():
        if is_so:
            raise UsageError(why)
    for package in ("prometheus_client", "tensorboard"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{package} is not installed here; pip install 'hooktrace[all]'")
    for rank in range(ranks if port else 0):
        try:  # as the exporter does: a port in TIME_WAIT after the last run is free
            socket.create_server(("127.0.0.1", port + rank)).close()
        except OSError as error:
            raise UsageError(
                f"port {port + rank}, for the metrics of rank {rank}, cannot be bound: "
                f"{error.strerror}; pass another --port, or --port 0 for free ones"
            ) from error
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        # Only making a file tells the truth: os.access is blind to read-only mounts and root.
        with tempfile.TemporaryFile(dir=options.out):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write in {options.out}: {error.strerror}; "
            "pass --out a directory that you may write"
        ) from error


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _complain(text: str) -> None:
    typer.echo(f"hooktrace demo: {text}", err=True)


def _print_closing(options: DemoOptions, results: list[RankResult]) -> None:
    """Print what the ranks saw; ``results`` is in rank order and not empty."""
    losses = results[0].losses
    tail = losses[-10:]
    lines = [
        f"\nloss {losses[0]:.2f} at the first step, {sum(tail) / len(tail):.2f} over the last "
        f"{len(tail)}, rank 0"
    ]
    if results[0].summary is None:
        lines.append("every step was warm-up or checked: no timings; pass --steps 10 or more")
    for rank, result in enumerate(results):
        if result.summary is not None:
            # Of rank 0 each bucket too: size, time, stages, and what the hook loses.
            lines.append(f"rank {rank}: {result.summary.headline if rank else result.summary}")
        lines += [f"rank {rank}: the {name} exporter failed" for name in result.failures]
        lines += [f"rank {rank}: {n} record(s) lost ({why})" for why, n in result.lost.items()]
        if result.failures or result.lost:
            lines.append(f"  see the logs in {options.out / 'logs'}")
    lines.append("\nLook at it:")
    lines += [f"  {name:<14}{how}" for name, how in _what_next(options)]
    typer.echo("\n".join(lines))


def _what_next(options: DemoOptions) -> Iterator[tuple[str, str]]:
    """Yield what shows the run, and how."""
    out, hooktrace = str(options.out), _command("hooktrace")
    page, events = str(options.out / "report.html"), str(options.out / "perfetto.json.gz")
    yield "Report", shlex.join([hooktrace, "report", out, "--html", page])
    yield "TensorBoard", shlex.join([_command("tensorboard"), "--logdir", out])
    yield "Perfetto", shlex.join([hooktrace, "export", out, "--out", events])
    yield "", "and drop that file on https://ui.perfetto.dev"
    where = f"http://127.0.0.1:{options.port}/metrics" if options.port else "on free ports"
    yield (
        "Prometheus",
        "see below" if options.hold else f"{where} while it runs; --hold keeps it up",
    )
    if sends_opentelemetry():
        yield "OpenTelemetry", "spans and metrics went where OTEL_EXPORTER_OTLP_* says"


def _command(name: str) -> str:
    """Return how to call a command from this shell, whose PATH may not have this environment."""
    if shutil.which(name):
        return name
    command = Path(sys.executable).with_name(name)
    return os.path.relpath(command) if command.is_relative_to(Path.cwd()) else str(command)


def _hold(options: DemoOptions) -> None:
    """Serve each rank's metrics, read back from its record file, until Ctrl-C or SIGTERM.

    So a scraper that comes late still finds them.
    """
    ended, found = threading.Event(), find_records(options.out)
    files = [found[rank] for rank in range(options.ranks)]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as stack:
        for rank, paths in enumerate(files):
            exporter = PrometheusExporter(
                options.port, local_rank=rank, file_sd=options.out / "prometheus"
            )
            stack.callback(exporter.close)
            exporter.export(_read_batch(paths))
            typer.echo(f"holding the metrics of rank {rank}: {exporter.url}")
        typer.echo("Ctrl-C ends it")
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
        records=(*records.assignments, *records.anomalies),
    )
