"""One rank in one case: a process that the host forked, which runs the case and writes a result.

    enter process group --> case.run(context) --> RankResult, written and renamed --> exit

Everything that a rank leaves unfinished ends with its process.  It ends itself when its parent
could not, some seconds after its deadline.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import re
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from ...records.anomalies import anomaly_kind
from ...records.errors import UsageError
from .cases import Case
from .context import Context, Known
from .judge import is_consequence
from .results import RankResult
from .spec import Job, Loaded
from .stacks import place_of

RESULT, STACKS, OUTPUT = "result.{}", "stacks.{}", "output.{}"
"""Files of a rank in its case's directory."""

_LAST_RESORT_S = 10.0
_WRAPPING = re.compile(r"RuntimeError: Got the following error when running the callback: ")
_NAMES_A_DTYPE = re.compile(r"float16|half|dtype|floating-point|\bFloat\b", re.IGNORECASE)


def run_rank(
    case: Case, loaded: Loaded, known: Known, *, job: Job, rank: int, directory: Path
) -> None:
    """Run a case as one rank; never returns, and never raises."""
    code = 1
    try:
        _take_files(directory, rank, job.timeout_s)
        _join_group(directory, rank, job)
        context = Context(
            case=case.name, loaded=loaded, rank=rank, size=job.ranks, timeout_s=job.timeout_s,
            known=known,
        )  # fmt: skip
        result = _run(case, context)
        partial = directory / f"partial.{rank}"
        partial.write_bytes(pickle.dumps(result))
        partial.rename(directory / RESULT.format(rank))
        code = 0
        if isinstance(result, RankResult) and result.raised_at is None:
            # A rank that left now would close its connections to those that still work.
            with contextlib.suppress(Exception):
                context.all_agree(True)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _take_files(directory: Path, rank: int, timeout_s: float) -> None:
    """Send what is printed, and stacks when they are asked for, to files."""
    output = os.open(directory / OUTPUT.format(rank), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    stacks = (directory / STACKS.format(rank)).open("w")
    faulthandler.enable(stacks, all_threads=True)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    faulthandler.dump_traceback_later(timeout_s + _LAST_RESORT_S, file=stacks, exit=True)


def _join_group(directory: Path, rank: int, job: Job) -> None:
    # As torchrun sets them for ranks of one machine.
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job.ranks)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(job.ranks)}
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/store",
        rank=rank,
        world_size=job.ranks,
        timeout=timedelta(seconds=2 * job.timeout_s),
    )
    torch.manual_seed(rank)


def _run(case: Case, context: Context) -> RankResult | UsageError:
    result = context.result
    try:
        case.run(context)
    except UsageError as error:
        return error
    except Exception as error:
        result.raised_at = time.monotonic()
        result.consequence = is_consequence(str(error))
        traceback.print_exc()
        _find_exception(context, error)
    finally:
        for tracer in context.tracers:
            with contextlib.suppress(Exception):
                tracer.close(2.0)
    return result


def _find_exception(context: Context, error: Exception) -> None:
    """Put what a hook raised on record, in the tracer's words where it has any."""
    kind, message = "exception", f"{type(error).__name__}: {error}"
    if context.tracers:
        context.find_anomalies(ignore=["hook_exception"])
        for anomaly in context.tracers[-1].anomalies():
            if anomaly.kind == "hook_exception":
                kind, message = anomaly.kind, anomaly.message
                break
    message = _tidy(message)
    place = place_of(error)
    if place:
        message += f", in {place}"
    if context.case in ("float16", "bfloat16") and _NAMES_A_DTYPE.search(message):
        context.find("not_supported", message)
    elif context.case.startswith("NaN") and context.known.error is not None:
        context.find("hook_exception", f"NaN is refused: {message}", remedy="", only_warns=True)
    else:
        if "'NoneType'" in message and context.loaded.make_state is None:
            message += "; it may need a state: pass --state package.module:make_state"
        context.find(kind, message, remedy="")


def _tidy(message: str) -> str:
    """Return the message without what torch and the tracer put around it."""
    message = message.strip().partition("\n")[0]
    message = message.partition(f"; {anomaly_kind('hook_exception').remedy}")[0]
    return _WRAPPING.sub("", message).rstrip(": ")
