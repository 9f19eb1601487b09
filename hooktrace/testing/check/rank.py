"""One rank in one case: a process that the host forked, which runs the case and answers."""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import logging
import math
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import torch
import torch.distributed as dist

from ...fsdp.hooks import ScatterHook
from ...ranks.hang.evidence import is_users
from ...records.anomalies import anomaly_kind
from ...records.errors import HookError
from ...tracing.tracer import Tracer
from .oracles import OF_LOSSY, ORACLES, finite, verdict
from .result import CaseResult, Problem
from .runs import Run
from .spec import HookSpec, is_sharded

_LINGER_S = 1.0  # of a rank that raised, so that others do not fail for its lost connections

_NAMES_A_DTYPE = re.compile(r"float16|half|dtype|floating-point|\bFloat\b", re.IGNORECASE)


@dataclass(kw_only=True)
class Context:
    """A hook, and a place for what one rank finds in one case.

    ``loses``: the case of chosen gradients found that a result is not the average, but for what the
    wire explains.  ``rank``: this process's; ``None`` in the host.
    """

    hook: HookSpec
    size: int
    timeout_s: float
    result: CaseResult = field(default_factory=lambda: CaseResult(case=""))
    loses: bool = False
    rank: int | None = None

    @cached_property
    def tracer(self) -> Tracer:
        """The tracer of all models that this rank trains; nobody asks it over a channel."""
        return Tracer(run_id="check", error_every=0, channel=False)

    def find(self, kind: str, what: str, fix: str | None = None, rank: int | None = None) -> None:
        """Put a problem on record, of this rank and with its kind's fix if none is given."""
        if fix is None:
            fix = anomaly_kind(kind).said(sharded=is_sharded(self.hook.hook)).fix
        message = f"{what}; {fix}" if fix else what
        rank = self.rank if rank is None else rank
        problem = Problem(case=self.result.case, kind=kind, message=message, rank=rank)
        self.result.problems.append(problem)

    def judge(self, runs: Sequence[Run]) -> None:
        """Put on record what the first oracle says that fails, and what ranks have in common."""
        if not (self.hook.local or isinstance(self.hook.hook, ScatterHook)):
            for run in runs:
                results = torch.stack([step.result for step in run.steps])
                seen = results.where(results.isfinite(), math.nan).numpy().tobytes()
                self.result.bits[run.name] = hashlib.blake2b(seen).hexdigest()
        oracles = OF_LOSSY if self.loses else ORACLES
        flaw = verdict(runs, (finite,) if self.hook.local else oracles)
        if flaw is not None:
            self.find(*flaw)


def run_rank(
    run: Callable[[Context], None],
    context: Context,
    answer: Callable[[tuple[int, CaseResult]], None],
) -> None:
    """Run a case as one rank, and answer with its number and what it found.

    At the deadline it writes where its threads are to standard error, which is a file.
    """
    faulthandler.enable(sys.stderr)
    # What hooktrace has to say is in the problems; here it would be the hook's last words.
    logging.getLogger("hooktrace").setLevel(logging.CRITICAL)
    context.rank = rank = dist.get_rank()
    torch.manual_seed(rank)
    random.seed(rank)
    faulthandler.dump_traceback_later(context.timeout_s, file=sys.stderr)
    try:
        run(context)
    except Exception as error:
        context.result.raised_at = time.monotonic()
        traceback.print_exc()
        _find_exception(context, error)
    with contextlib.suppress(Exception):
        context.tracer.close(2.0)
    faulthandler.cancel_dump_traceback_later()
    answer((rank, context.result))
    if context.result.raised_at < math.inf:
        time.sleep(_LINGER_S)
        raise SystemExit(1)


def _find_exception(context: Context, error: Exception) -> None:
    """Put on record what was raised, by the hook if the tracer or hooktrace's driver says so."""
    told = "hook_exception" in {anomaly.kind for anomaly in context.tracer.anomalies()}
    kind = "hook_exception" if told or isinstance(error, HookError) else "exception"
    message = f"{type(error).__name__}: {error}".partition("\n")[0]
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    for frame in [frame for frame in frames if is_users(frame.filename)][-1:]:
        message += f", in {frame.name} ({Path(frame.filename).name}:{frame.lineno})"
    case = context.result.case
    if case in ("float16", "bfloat16") and _NAMES_A_DTYPE.search(message):
        kind = "not_supported"
    elif case == "nan":
        kind, message = "not_supported", f"with a NaN it raises {message}"
    elif "'NoneType'" in message and not (context.hook.make_state or is_sharded(context.hook.hook)):
        message += "; it may need a state: pass --state package.module:make_state"
    context.find(kind, message, fix="")
