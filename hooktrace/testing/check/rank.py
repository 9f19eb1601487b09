"""One rank in one case: a process that the host forked, which runs the case and writes a result.

    enter process group --> Scenario(Context) --> RankResult, written and renamed --> exit

A scenario has there the hook, the other ranks, and a place for what it finds.  The check's own few
collectives go over connections that neither the hook nor torch.distributed knows of
(``PrivateGroup``), so they cannot pair up with the hook's.

Everything that a rank leaves unfinished ends with its process.  It ends itself when its parent
could not, some seconds after its deadline.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import math
import os
import pickle
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ...fsdp.hooks import ScatterHook
from ...probes.compare import digest
from ...ranks.private_group import PrivateGroup
from ...records.anomalies import anomaly_kind
from ...records.errors import HookError, UsageError
from ...tracing.tracer import Tracer
from .judge import Problem, RankResult, is_consequence
from .oracles import FINITE, OF_LARGE, ORACLES, Oracle, verdict
from .runs import Run
from .spec import HookSpec
from .stacks import place_of
from .wire_format import NOT_KNOWN

RESULT, STACKS, OUTPUT = "result.{}", "stacks.{}", "output.{}"
"""Files of a rank in its case's directory."""

_LAST_RESORT_S = 10.0
_WRAPPING = re.compile(r"RuntimeError: Got the following error when running the callback: ")
_NAMES_A_DTYPE = re.compile(r"float16|half|dtype|floating-point|\bFloat\b", re.IGNORECASE)


@dataclass(kw_only=True)
class Context:
    """One case on one rank.

    ``fine``: whether earlier cases found that each result is the average, but for what the wire
    explains; ``None`` where that is not known.  ``one_bucket``: many buckets hung or crashed, so go
    on with one, to see what else is wrong.  ``tracers``: of the models that it has trained.
    """

    case: str
    loaded: HookSpec
    rank: int
    size: int
    timeout_s: float
    fine: bool | None = None
    one_bucket: bool = False
    result: RankResult = field(default_factory=RankResult)
    tracers: list[Tracer] = field(default_factory=list)

    def new_state(self) -> Any:
        """Return a new state for a model; raises ``UsageError`` where that fails."""
        return self.loaded.new_state(dist.group.WORLD)

    @property
    def results_differ(self) -> bool:
        """Whether the ranks' results differ by design."""
        return self.loaded.local or isinstance(self.loaded.hook, ScatterHook)

    def find(self, kind: str, what: str, *, remedy: str | None = None) -> None:
        """Put a problem of this rank on record.

        ``kind``: of ``records.anomalies``, which says the remedy where it is not given.
        """
        remedy = anomaly_kind(kind).remedy if remedy is None else remedy
        message = f"{what}; {remedy}" if remedy else what
        self.result.problems.append(
            Problem(case=self.case, kind=kind, message=message, rank=self.rank)
        )

    def find_anomalies(self, ignore: Sequence[str] = ()) -> None:
        """Put on record what the last model's tracer saw, except kinds to ignore."""
        for anomaly in self.tracers[-1].anomalies():
            if anomaly.kind not in {"stall", *ignore}:  # a stall is the machine's affair
                self.find(anomaly.kind, anomaly.message, remedy="")

    def judge(
        self, runs: Sequence[Run], oracles: Sequence[Oracle], *, of_this_rank: bool = False
    ) -> None:
        """Put on record what the first oracle says that fails; waits for all ranks.

        ``of_this_rank``: others have other steps, and are not compared.
        """
        for run in () if of_this_rank or self.results_differ else runs:
            results = torch.stack([step.result for step in run.steps])
            bits = torch.cat([results.nan_to_num(0.0, 0.0, 0.0), results.isfinite().double()])
            run.agrees = self.same_everywhere(bits)
        if self.loaded.local:
            oracles = FINITE[-1:]
        elif self.fine is False and oracles is not OF_LARGE:
            oracles = FINITE
        flaw = verdict(runs, oracles)
        if flaw is not None:
            self.find(flaw.kind, flaw.what, remedy=flaw.remedy)
        if oracles is ORACLES:
            if flaw is None or anomaly_kind(flaw.kind).severity == "warn":
                self.result.fine = all(run.is_fine for run in runs)
            if any(run.wire is NOT_KNOWN for run in runs):
                self.result.note = "what it sends is unknown, so how much it may lose is not judged"

    def all_agree(self, flag: bool) -> bool:
        """Return whether all ranks say yes; waits for all of them."""
        return self._others.latest(0 if flag else 1) == 0

    def same_everywhere(self, tensor: torch.Tensor) -> bool:
        """Return whether all ranks have the same bits, but for chance; waits for all of them."""
        own = digest(tensor.flatten())
        rows = own.new_empty((self.size, *own.shape))
        self._others.gather(own, rows).wait()
        return all(torch.equal(row, own) for row in rows)

    @cached_property
    def _others(self) -> PrivateGroup:
        timeout = timedelta(seconds=2 * self.timeout_s)
        return PrivateGroup("hooktrace/check", self.rank, self.size, timeout)


def run_rank(run: Callable[[Context], None], context: Context, directory: Path) -> None:
    """Run a case as one rank; never returns, and never raises."""
    code = 1
    try:
        _take_files(context, directory)
        _join_group(context, directory)
        result = _result(run, context)
        partial = directory / f"partial.{context.rank}"
        partial.write_bytes(pickle.dumps(result))
        partial.rename(directory / RESULT.format(context.rank))
        code = 0
        if isinstance(result, RankResult) and result.raised_at == math.inf:
            # A rank that left now would close its connections to those that still work.
            with contextlib.suppress(Exception):
                context.all_agree(True)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _take_files(context: Context, directory: Path) -> None:
    """Send what is printed, and stacks when they are asked for, to files."""
    output = os.open(directory / OUTPUT.format(context.rank), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # What hooktrace has to say is in the problems; here it would be the hook's last words.
    logging.getLogger("hooktrace").setLevel(logging.CRITICAL)
    stacks = (directory / STACKS.format(context.rank)).open("w")
    faulthandler.enable(stacks, all_threads=True)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
    faulthandler.dump_traceback_later(context.timeout_s + _LAST_RESORT_S, file=stacks, exit=True)


def _join_group(context: Context, directory: Path) -> None:
    rank, size = str(context.rank), str(context.size)
    # As torchrun sets them for ranks of one machine.
    os.environ |= {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size}
    dist.init_process_group(
        "gloo",
        init_method=f"file://{directory}/store",
        rank=context.rank,
        world_size=context.size,
        timeout=timedelta(seconds=2 * context.timeout_s),
    )
    torch.manual_seed(context.rank)


def _result(run: Callable[[Context], None], context: Context) -> RankResult | UsageError:
    result = context.result
    try:
        run(context)
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
    if context.loaded.is_sharded and isinstance(error, HookError):
        kind, message = "hook_exception", f"{error}"
    elif context.tracers:
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
    elif context.case.startswith("NaN") and context.fine is not None:
        context.find("not_supported", f"NaN is refused: {message}", remedy="")
    else:
        stateless = context.loaded.make_state is None and not context.loaded.is_sharded
        if "'NoneType'" in message and stateless:
            message += "; it may need a state: pass --state package.module:make_state"
        context.find(kind, message, remedy="")


def _tidy(message: str) -> str:
    """Return the message without what torch and the tracer put around it."""
    message = message.strip().partition("\n")[0]
    for sharded in (False, True):
        remedy = anomaly_kind("hook_exception").said(sharded=sharded).remedy
        message = message.partition(f"; {remedy}")[0]
    return _WRAPPING.sub("", message).rstrip(": ")
