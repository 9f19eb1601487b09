"""One rank in one case: a process that the host forked, which runs the case and answers.

Where a hook's code stood is read from a traceback, or from faulthandler's dump of all threads.
"""

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
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ...fsdp.hooks import ScatterHook
from ...records.anomalies import anomaly_kind
from ...records.errors import HookError
from ...staging.backward import ENGINE
from ...tracing.tracer import Tracer
from .oracles import OF_LOSSY, ORACLES, finite, verdict
from .result import CaseResult, Problem
from .runs import Run
from .spec import HookSpec, is_sharded

_LINGER_S = 1.0
"""A rank that raised stays that long, so that the others do not fail for its lost connections."""

_WRAPPING = re.compile(
    r"^(RuntimeError: Got the following error when running the callback: "
    r"|HookError: |hook '.*?', \w+ [^,]*, stage \w+: )+"
)
"""What torch and hooktrace put before the words of a hook's own exception."""

_NAMES_A_DTYPE = re.compile(r"float16|half|dtype|floating-point|\bFloat\b", re.IGNORECASE)

_PACKAGE = Path(__file__).resolve().parents[2]
_DUMP = re.compile(r"^(?=Timeout \(|Fatal Python error|Current thread 0x|Thread 0x)", re.MULTILINE)
_FRAME = re.compile(r'^ *File "(.*)", line (\d+),? in (.*)$', re.MULTILINE)
_PLUMBING = re.compile(
    r"/lib/python3[.\d]*/(?!(site|dist)-packages/)"
    r"|/torch/(?!distributed/algorithms/(ddp_comm_hooks|model_averaging)/)"
    rf"|^{re.escape(str(_PACKAGE))}/(?!hooks/)"
    r"|^<(frozen|string)"
)
"""Files of frames that are not of a hook."""


@dataclass(kw_only=True)
class Context:
    """A hook, and a place for what one rank finds in one case.

    ``loses``: an earlier case found that results are not the average, but for what the wire
    explains; ``works``: one found that they are right, or lose no more than that.
    ``tracers``: of the models that were trained.
    """

    hook: HookSpec
    size: int
    timeout_s: float
    result: CaseResult = field(default_factory=lambda: CaseResult(case=""))
    loses: bool = False
    works: bool = False
    rank: int = 0
    tracers: list[Tracer] = field(default_factory=list)

    def new_state(self) -> Any:
        """Return a new state for a model."""
        return self.hook.new_state(dist.group.WORLD)

    def find(self, kind: str, what: str, fix: str | None = None, rank: int | None = -1) -> None:
        """Put a problem on record, the first one of a kind, of this rank if none is given.

        ``rank``: ``None`` for all.  The table of anomalies has the fix if none is given.
        """
        if kind in self.result.kinds:
            return
        if fix is None:
            fix = anomaly_kind(kind).said(sharded=is_sharded(self.hook.hook)).fix
        message = f"{what}; {fix}" if fix else what
        rank = self.rank if rank == -1 else rank
        problem = Problem(case=self.result.case, kind=kind, message=message, rank=rank)
        self.result.problems.append(problem)

    def judge(self, runs: Sequence[Run], *, of_this_rank: bool = False) -> None:
        """Put on record what the first oracle says that fails.

        ``of_this_rank``: others have other steps, and are not compared.
        """
        if not (of_this_rank or self.hook.local or isinstance(self.hook.hook, ScatterHook)):
            for run in runs:
                results = torch.stack([step.result for step in run.steps])
                seen = results.where(results.isfinite(), math.nan).numpy().tobytes()
                self.result.bits[run.name] = hashlib.blake2b(seen).hexdigest()
        oracles = OF_LOSSY if self.loses else ORACLES
        flaw = verdict(runs, (finite,) if self.hook.local else oracles)
        if flaw is not None:
            self.find(*flaw)
        if self.result.case == "arithmetic":
            is_right = flaw is None or anomaly_kind(flaw.kind).severity == "warn"
            self.result.loses = is_right and not all(run.is_fine for run in runs)
            if any(run.wire.bits is None for run in runs):
                self.result.note = "no sends were seen, so how much it may lose is not judged"


def run_rank(
    run: Callable[[Context], None],
    context: Context,
    answer: Callable[[tuple[int, CaseResult]], None],
) -> None:
    """Run a case as one rank, and answer with its number and what it found.

    At the deadline the stacks of all threads go to standard error, which is a file.
    """
    faulthandler.enable(sys.stderr)
    faulthandler.dump_traceback_later(context.timeout_s, file=sys.stderr)
    # What hooktrace has to say is in the problems; here it would be the hook's last words.
    logging.getLogger("hooktrace").setLevel(logging.CRITICAL)
    context.rank = dist.get_rank()
    torch.manual_seed(context.rank)
    random.seed(context.rank)
    try:
        run(context)
    except Exception as error:
        context.result.raised_at = time.monotonic()
        traceback.print_exc()
        _find_exception(context, error)
    for tracer in context.tracers:
        with contextlib.suppress(Exception):
            tracer.close(2.0)
    answer((context.rank, context.result))
    if context.result.raised_at < math.inf:
        time.sleep(_LINGER_S)
        raise SystemExit(1)
    context.tracers.clear()


def _find_exception(context: Context, error: Exception) -> None:
    """Put on record what was raised, by the hook if the tracer or hooktrace's driver says so."""
    told = context.tracers[-1].anomalies() if context.tracers else ()
    is_hooks = isinstance(error, HookError) or any(a.kind == "hook_exception" for a in told)
    kind = "hook_exception" if is_hooks else "exception"
    message = f"{error}" if isinstance(error, HookError) else f"{type(error).__name__}: {error}"
    message = _WRAPPING.sub("", message.strip().partition("\n")[0]).rstrip(": ")
    own = places(traceback.format_exc())
    message = ", in ".join([message, *own[-1:]])
    case = context.result.case
    if case in ("float16", "bfloat16") and _NAMES_A_DTYPE.search(message):
        kind = "not_supported"
    elif case == "nan" and context.works:
        kind, message = "not_supported", f"NaN is refused: {message}"
    elif "'NoneType'" in message and not (context.hook.make_state or is_sharded(context.hook.hook)):
        message += "; it may need a state: pass --state package.module:make_state"
    context.find(kind, message, fix="")


def split(output: str) -> tuple[str, str]:
    """Return what a rank printed, and the dump of its stacks after that."""
    words, *dump = _DUMP.split(output, 1)
    # A fatal error's stacks are followed by a list of extension modules.
    return words, "".join(dump).partition("\nExtension modules:")[0].strip()


def places(stacks: str) -> list[str]:
    """Return the places in hooks, as ``function (file:line)``, that a traceback or a dump lists."""
    return [
        f"{function} ({file.rpartition('/')[2]}:{line})"
        for file, line, function in _FRAME.findall(stacks)
        if not _PLUMBING.search(file)
    ]


def where(dump: str) -> str:
    """Return in a few words where a rank's threads stand, by its dump."""
    if not dump:
        return "no stacks"
    waits = "in backward(), which waits for the hook's future"
    nowhere = waits if ENGINE in dump else "no code of the hook runs"
    threads = [places(stack)[:1] for stack in _DUMP.split(dump)]
    return ", ".join(dict.fromkeys(f"in {place}" for own in threads for place in own)) or nowhere
