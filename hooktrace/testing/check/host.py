"""The process that all ranks are forked from: it has imported torch and the hook, once.

A fork costs some milliseconds where a new process would cost seconds, so every case has fresh
processes, and sees nothing of a broken reducer or half a collective of another one.  The host
itself never trains and has no process group.
"""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch
import torch._dynamo  # DDP does when it is made; once here saves a second in each rank
from torch.distributed.elastic.multiprocessing import Std

from ...records.errors import UsageError
from ...records.units import named_ranks
from ..ranks import RankError, run_ranks
from .rank import Context, run_rank
from .result import CaseResult
from .scenarios import Scenario, chosen

_IMPORT_S = 150.0
_STACKS_S = 2.0  # for ranks to write their stacks after the deadline
_AT_ONCE_S = 0.5  # ranks that raise within that time do so by themselves

_NOT_FINITE = {"nonfinite_result", "overflow", "nan_stays_in_state"}
"""Kinds that explain why results differ, too."""


def serve(directory: Path) -> Iterator[CaseResult | None]:
    """Check the hook that standard input names; yield each case's result, and ``None`` at the end.

    Raises ``UsageError`` for a hook that cannot be loaded, and for a case that there is not.
    """
    spec, keys, ranks, timeout_s = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_asker, args=(directory,), daemon=True).start()
    faulthandler.dump_traceback_later(_IMPORT_S, exit=True)
    context = Context(hook=spec.load(), size=ranks, timeout_s=timeout_s)
    faulthandler.cancel_dump_traceback_later()
    gc.freeze()  # so that a rank's collection at its end looks at its own objects alone
    for case in chosen(keys, context.hook):
        began = time.monotonic()
        result = _run(case, context, directory)
        result.seconds = time.monotonic() - began
        context.loses |= result.loses
        if "hang" in result.kinds:  # others would most likely hang too, to their whole deadline
            result.note = "the cases after this one were not run"
            yield result
            break
        yield result
    yield None


def _end_with_asker(directory: Path) -> None:
    """End this process, its ranks and their files when the asking process has gone."""
    os.read(0, 1)
    shutil.rmtree(directory, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)


def _run(case: Scenario, context: Context, directory: Path) -> CaseResult:
    """Run a case in fresh processes, and return what the ranks found and how they ended."""
    ended: Exception | None = None
    context.result = CaseResult(case=case.key)
    answers = multiprocessing.get_context("fork").SimpleQueue()
    with tempfile.TemporaryDirectory(dir=directory, ignore_cleanup_errors=True) as name:
        logs = Path(name)
        try:
            run_ranks(
                context.size, run_rank, case, context, answers.put, logs=logs, redirects=Std.ALL,
                deadline_s=context.timeout_s + _STACKS_S, start_method="fork",
            )  # fmt: skip
        except (RankError, TimeoutError) as error:
            ended = error
        printed = sorted(logs.rglob("stderr.log"))
        said = {int(file.parent.name): file.read_text(errors="replace") for file in printed}
    found = []
    while not answers.empty():
        found.append(answers.get())
    return judge(context, dict(sorted(found)), ended, said)


def judge(
    context: Context,
    results: Mapping[int, CaseResult],
    ended: Exception | None,
    said: Mapping[int, str],
) -> CaseResult:
    """Return what a case found, by its first cause: all others may fail because of that.

    ``ended``: the launcher's error.  ``said``: what ranks printed, with stacks if they crashed or
    came to the deadline.
    """
    found, whole = list(results.values()), context.result
    if isinstance(ended, RankError) and ended.rank not in results:
        whole.stacks = said.get(ended.rank, "").partition("\nExtension modules:")[0]
        context.find("crash", ended.reason, rank=ended.rank)
        return whole
    if isinstance(ended, TimeoutError):
        whole.stacks = "".join(f"rank {rank}:\n{words}" for rank, words in said.items())
        late = named_ranks(set(range(context.size)) - set(results) or range(context.size))
        context.find("hang", f"not done after {context.timeout_s:g} s on {late}")
        return whole
    first = min(found, key=lambda one: (one.raised_at, not one.problems))
    whole.note, whole.loses = first.note, any(one.loses for one in found)
    alike = [one for one in found if one.raised_at <= first.raised_at + _AT_ONCE_S]
    for problem in first.problems:
        count = sum(problem.kind in one.kinds for one in alike)
        whole.problems.append(replace(problem, rank=None) if count == context.size else problem)
    if ended is None:
        bits = [one.bits for one in found]
        differ = [name for name in bits[0] if any(one[name] != bits[0][name] for one in bits)]
        if differ and whole.kinds.isdisjoint(_NOT_FINITE):
            whole.problems = []
            context.find("replicas_diverge", f"{differ[0]}: the ranks have different results")
    return whole


def main() -> None:
    """Send each result on standard output, then ``None``; or why there is none."""
    # What a module prints when it is imported goes to the log.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        torch.set_num_threads(1)
        try:
            for message in serve(Path(sys.argv[1])):
                pickle.dump(message, answers)
                answers.flush()
        except UsageError as error:
            pickle.dump(error, answers)


if __name__ == "__main__":
    main()
