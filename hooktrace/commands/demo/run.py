"""Starts the demo's ranks, and says how they ended, what they saw and what to open next."""

from __future__ import annotations

import importlib.util
import math
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import typer
from torch.distributed.elastic.multiprocessing import SignalException, Std

from ...records.errors import UsageError
from ...records.files import record_path
from ...testing.ranks import RankError, run_ranks
from .train import HOOKS, UNIT_HOOKS, DemoOptions, RankResult, sends_opentelemetry, train


def run(options: DemoOptions) -> int:
    """Run the demo and print what it saw; returns the exit code, and leaves no process.

    0: all ranks ended well.  1: a rank failed; standard error says which, why and where its log
    is; or none could be run.  128 + n: signal n ended it.  Raises ``UsageError`` for options that
    cannot work.
    """
    shown = _shown(options)
    typer.echo(
        f"hooktrace demo: {_count(options.ranks, 'rank')}, {shown}, "
        f"{_count(options.steps, 'step')}, files in {options.out}"
    )
    logs = options.out / "logs"
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot write in {options.out}: {error.strerror}; "
            "pass --out a directory that you may write"
        ) from error
    # Rank 0 has the screen; all else that ranks print goes to their logs.
    redirects = {rank: Std.ALL if rank else Std.ERR for rank in range(options.ranks)}
    try:
        results = run_ranks(
            options.ranks, train, options, deadline_s=math.inf, logs=logs, redirects=redirects
        )
    except RankError as error:
        told = f"rank {error.rank} failed: {error.reason}\n  its log and error: {error.logs}"
        typer.echo(f"hooktrace demo: {told}", err=True)
        if (records := record_path(options.out, error.rank)).exists():
            typer.echo(f"  its records until then: {records}", err=True)
        return 1
    except SignalException as error:
        name = signal.Signals(error.sigval).name
        told = f"ended by {name}; what was recorded until then is in {options.out}"
        typer.echo(f"hooktrace demo: {told}", err=True)
        return 128 + error.sigval
    except OSError as error:
        told = f"the ranks could not be run: {error}; if it names a file, pass another --out"
        typer.echo(f"hooktrace demo: {told}", err=True)
        return 1
    finally:  # what ranks that were killed could not do
        for path in (options.out / "prometheus").glob("hooktrace-rank*.json"):
            with suppress(OSError):
                path.unlink()
    _print_closing(options, results)
    return 0


def _shown(options: DemoOptions) -> str:
    """Return what the hook is called; raises ``UsageError`` for the first option that cannot be."""
    names = {name: one.hook_name for name, one in HOOKS.items()}
    if options.fsdp:
        names = {"allreduce": "fully_shard"} | {name: name for name in UNIT_HOOKS}
    if options.hook not in names:
        kind = "a sharded model has" if options.fsdp else "there is"
        raise UsageError(f"{kind} no hook {options.hook!r}; pass --hook one of {', '.join(names)}")
    if options.fsdp and options.ranks < 2:
        raise UsageError("over one rank nothing is sharded; pass --fsdp with --ranks 2 or more")
    if not 0 < options.bucket_cap_mb < math.inf:
        raise UsageError(
            f"a bucket cannot hold {options.bucket_cap_mb:g} MB; pass --bucket-cap-mb above 0"
        )
    if options.port + options.ranks > 65536:
        raise UsageError(
            f"from port {options.port} on there is none for each of {options.ranks} ranks; pass "
            "--port 9464, or --port 0 for free ones"
        )
    for package in ("prometheus_client", "tensorboard"):
        if importlib.util.find_spec(package) is None:
            raise UsageError(f"{package} is not installed here; pip install 'hooktrace[all]'")
    return names[options.hook]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
    if sends_opentelemetry():
        yield "OpenTelemetry", "spans and metrics went where OTEL_EXPORTER_OTLP_* says"


def _command(name: str) -> str:
    """Return how to call a command from this shell, whose PATH may not have this environment."""
    if shutil.which(name):
        return name
    command = Path(sys.executable).with_name(name)
    return os.path.relpath(command) if command.is_relative_to(Path.cwd()) else str(command)
