"""What is said when a process ends: a summary on rank 0, or why there is nothing to see.

    first model --model_seen--> folder of the run --the process ends--> _summarize
    none        --the process ends that was started first--> _complain

Both go to standard error.  What that process has started says nothing of its own: a loader's
worker, a tool, ranks.  Where one of them has recorded a model, its files tell so.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tracing.tracer import Tracer

DEFAULT_DIR = "_HOOKTRACE_DEFAULT_DIR"
"""Of the environment: where record files go when no exporter is asked for."""
MEASURED = "_HOOKTRACE_TUNE"
"""Of the environment of a job that ``hooktrace tune`` has started: what is asked of it."""
_FIRST = "_HOOKTRACE_FIRST"
"""Of the environment: the process that the user or a launcher started."""
_NOTHING = "nothing was recorded: no model has communicated while it was traced"
_NO_MODEL = (
    "no model under DistributedDataParallel or fully_shard was traced, so there is nothing to show",
    "frameworks wrap a model where there are several processes: start them as with torchrun "
    "--nproc-per-node 2; hooks that they are given have no effect without it",
)


class _Ending:
    """Of this process: ``pid``, since a fork inherits it; what it saw; what it is to say."""

    pid = 0
    tracer: Tracer | None = None
    rank = 0
    failed = False


_here = _Ending()


def watch() -> None:
    """Say at the end of this process what there is to say."""
    if "RANK" in os.environ:  # a launcher's child, or a child of such a one
        watch_first()
    atexit.register(_complain)


def watch_first() -> None:
    """Take this process for the one that was started first, if none was before."""
    os.environ.setdefault(_FIRST, str(os.getpid()))


def failed() -> None:
    """Say nothing about models: the script ended before its end."""
    _here.failed = True


def model_seen() -> None:
    """Take note of a model, of the first one more than of others; not in a job that is tuned."""
    if (_here.tracer is not None and _here.pid == os.getpid()) or MEASURED in os.environ:
        return
    from multiprocessing.util import Finalize

    from ..staging.job import current_rank
    from ..tracing.tracer import default_tracer

    choose_folder()
    _here.tracer, _here.rank, _here.pid = default_tracer(), current_rank(), os.getpid()
    # multiprocessing ends its children without atexit, but calls these, as it does at any exit.
    Finalize(None, _summarize, exitpriority=100)


def choose_folder() -> None:
    """Choose where records go, where nothing says that: before the default tracer is made."""
    directory = os.environ.get(DEFAULT_DIR)
    if not directory or "HOOKTRACE_RECORD_DIR" in os.environ:
        return
    from ..staging.job import first_word, job_store

    with suppress(Exception):  # of the store: this rank's files then go where it would put all
        parent, name = os.path.split(directory)  # of this host, which may have it elsewhere
        directory = os.path.join(parent, first_word(job_store(), "hooktrace/record_dir", name))
    os.environ["HOOKTRACE_RECORD_DIR"] = directory


def _summarize() -> None:
    tracer = _here.tracer
    if tracer is None or _here.pid != os.getpid():
        return
    tracer.close()
    if _here.rank == 0:
        _say(*_summary(tracer))
    # A gloo group that is let go of later than here may abort the process, as without hooktrace;
    # models go in circles, and their hooks with them.
    gc.collect()


def _summary(tracer: Any) -> list[str]:
    models = tracer.summary()
    lines = [model.headline for model in models]
    if not lines:
        lines = ["too few steps were traced for medians" if tracer.steps() else _NOTHING]
    if any(model.hook == "ddp_allreduce" for model in models):
        lines.append("ddp_allreduce is DDP's own average: no hook was registered there")
    anomalies = Counter(anomaly.kind for anomaly in tracer.anomalies())
    if anomalies:
        found = ", ".join(f"{kind} ({count})" for kind, count in anomalies.items())
        lines.append(f"anomalies on rank 0: {found}")
    directory = os.environ.get("HOOKTRACE_RECORD_DIR", "")
    if _has_records(directory):
        lines.append(f"to open it: hooktrace report {directory}")
    return lines


def _has_records(directory: str) -> bool:
    with suppress(OSError):
        names = os.listdir(os.path.join(directory, "plugins", "hooktrace"))
        return any(name.endswith(".jsonl") for name in names)
    return False


def _complain() -> None:
    is_over = not _here.failed and not hasattr(sys, "last_type")  # nothing was raised
    is_first = os.environ.get(_FIRST) == str(os.getpid())
    if is_over and is_first and _is_asked() and _here.tracer is None and not _are_recorded():
        _say(*_NO_MODEL)


def _is_asked() -> bool:
    """Return whether this process answers for the job: one rank, or who started all of it."""
    rank = os.environ.get("RANK")
    return rank is None or (rank == "0" and "torch" in sys.modules)


def _are_recorded() -> bool:
    """Return whether processes that this one has started have recorded models, or may have."""
    folder = os.environ.get("HOOKTRACE_RECORD_DIR") or os.environ.get(DEFAULT_DIR)
    # Ranks agree on one folder's name: of the launchers of several hosts on one launcher's.
    of_several = any("nnodes" in word.lower() for word in (*sys.argv, *os.environ))
    return _had_children() if folder is None or of_several else _has_records(folder)


def _had_children() -> bool:
    """Return whether processes that this one started have worked and ended."""
    times = os.times()
    return times.children_user + times.children_system > 0


def _say(*lines: str) -> None:
    with suppress(OSError, ValueError):  # standard error is closed
        sys.stderr.write("".join(f"hooktrace: {line}\n" for line in lines))
        sys.stderr.flush()
