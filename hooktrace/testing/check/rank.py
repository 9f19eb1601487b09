"""One rank in one case: a process that the host forked, which runs the case and writes a result.

The check's own few collectives go over connections that neither the hook nor torch.distributed
knows of (``PrivateGroup``), so they cannot pair up with the hook's.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import math
import pickle
import random
import re
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
from .oracles import CHOSEN_ASKED, OF_A_STEP, Oracle, finite, verdict
from .result import CaseResult, Problem
from .runs import Run
from .spec import HookSpec, is_sharded
from .stacks import place_of

RESULT = "result.{}"
"""The file of a rank in its case's directory."""

LINGER_S = 1.0
"""A rank that raised stays that long, so that the others do not fail for its lost connections."""

_WRAPPING = re.compile(
    r"^(RuntimeError: Got the following error when running the callback: "
    r"|HookError: |hook '.*?', \w+ [^,]*, stage \w+: )+"
)
"""What torch and hooktrace put before the words of a hook's own exception."""

_NAMES_A_DTYPE = re.compile(r"float16|half|dtype|floating-point|\bFloat\b", re.IGNORECASE)


@dataclass(kw_only=True)
class Context:
    """A hook, the other ranks, and a place for what one rank finds in one case.

    ``fine``: whether earlier cases found that each result is the average, but for what the wire
    explains; ``None`` if that is not known.  ``one_bucket``: many buckets hung or crashed, so go on
    with one, to see what else is wrong.  ``tracers``: of the models that were trained.
    """

    hook: HookSpec
    size: int
    timeout_s: float
    result: CaseResult = field(default_factory=lambda: CaseResult(case=""))
    fine: bool | None = None
    one_bucket: bool = False
    rank: int = 0
    tracers: list[Tracer] = field(default_factory=list)

    def new_state(self) -> Any:
        """Return a new state for a model; raises ``UsageError`` if that fails."""
        return self.hook.new_state(dist.group.WORLD)

    def find(self, kind: str, what: str, remedy: str | None = None) -> None:
        """Put a problem on record; the table of anomalies has the remedy if none is given."""
        if remedy is None:
            remedy = anomaly_kind(kind).said(sharded=is_sharded(self.hook.hook)).remedy
        message = f"{what}; {remedy}" if remedy else what
        problem = Problem(case=self.result.case, kind=kind, message=message, rank=self.rank)
        self.result.problems.append(problem)

    def judge(
        self, runs: Sequence[Run], oracles: Sequence[Oracle], *, of_this_rank: bool = False
    ) -> None:
        """Put on record what the first oracle says that fails; waits for all ranks.

        ``of_this_rank``: others have other steps, and are not compared.
        """
        differ = self.hook.local or isinstance(self.hook.hook, ScatterHook)
        for run in () if of_this_rank or differ else runs:
            run.agrees = self._same_everywhere(torch.stack([step.result for step in run.steps]))
        if self.hook.local:
            oracles = [finite]
        elif self.fine is False:  # it loses more than its bytes say
            oracles = [oracle for oracle in oracles if oracle not in OF_A_STEP]
        flaw = verdict(runs, oracles)
        if flaw is not None:
            self.find(*flaw)
        if oracles is CHOSEN_ASKED:
            if flaw is None or anomaly_kind(flaw.kind).severity == "warn":
                self.result.fine = all(run.is_fine for run in runs)
            if any(run.wire.bits is None for run in runs):
                self.result.note = "what it sends is unknown, so how much it may lose is not judged"

    def _same_everywhere(self, results: torch.Tensor) -> bool:
        """Return whether all ranks have the same bits; waits for all of them."""
        bits = torch.cat([results.nan_to_num(0.0, 0.0, 0.0), results.isfinite().double()])
        own = digest(bits.flatten())
        rows = own.new_empty((self.size, *own.shape))
        self._others.gather(own, rows).wait()
        return all(torch.equal(row, own) for row in rows)

    @cached_property
    def _others(self) -> PrivateGroup:
        timeout = timedelta(seconds=2 * self.timeout_s)
        return PrivateGroup("hooktrace/check", self.rank, self.size, timeout)


def run_rank(run: Callable[[Context], None], context: Context, directory: Path) -> None:
    """Run a case as one rank, and leave its result in the directory.

    At the deadline the stacks of all threads go to standard error, which is a file.
    """
    faulthandler.enable(sys.stderr)
    faulthandler.dump_traceback_later(context.timeout_s, file=sys.stderr)
    # What hooktrace has to say is in the problems; here it would be the hook's last words.
    logging.getLogger("hooktrace").setLevel(logging.CRITICAL)
    context.rank = dist.get_rank()
    torch.manual_seed(context.rank)
    random.seed(context.rank)
    result = _result(run, context)
    partial = directory / f"partial.{context.rank}"
    partial.write_bytes(pickle.dumps(result))
    partial.rename(directory / RESULT.format(context.rank))
    if isinstance(result, UsageError) or result.raised_at < math.inf:
        time.sleep(LINGER_S)
        raise SystemExit(1)
    context.tracers.clear()


def _result(run: Callable[[Context], None], context: Context) -> CaseResult | UsageError:
    try:
        run(context)
    except UsageError as error:
        return error
    except Exception as error:
        context.result.raised_at = time.monotonic()
        traceback.print_exc()
        _find_exception(context, error)
    finally:
        for tracer in context.tracers:
            with contextlib.suppress(Exception):
                tracer.close(2.0)
    return context.result


def _find_exception(context: Context, error: Exception) -> None:
    """Put on record what was raised, by the hook if the tracer or hooktrace's driver says so."""
    told = context.tracers[-1].anomalies() if context.tracers else ()
    is_hooks = isinstance(error, HookError) or any(a.kind == "hook_exception" for a in told)
    kind = "hook_exception" if is_hooks else "exception"
    message = f"{error}" if isinstance(error, HookError) else f"{type(error).__name__}: {error}"
    message = _WRAPPING.sub("", message.strip().partition("\n")[0]).rstrip(": ")
    if place := place_of(error):
        message += f", in {place}"
    if context.result.case in ("float16", "bfloat16") and _NAMES_A_DTYPE.search(message):
        kind = "not_supported"
    elif context.result.case == "nan" and context.fine is not None:
        kind, message = "not_supported", f"NaN is refused: {message}"
    elif "'NoneType'" in message and not (context.hook.make_state or is_sharded(context.hook.hook)):
        message += "; it may need a state: pass --state package.module:make_state"
    context.find(kind, message, remedy="")
