"""Faults that the tests must catch: ``python -m tests.faults [WORD ...]``, once a release.

Each is something that users would be told wrong, or that would harm their training.  ``WORD``: only
faults with it in their sentence or path.  Exits with 1 if one was missed, or is out of date.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 600
_NONE_CHOSEN = 5
"""pytest's exit code."""


class Fault(NamedTuple):
    """What is wrong; in which file of the package which text becomes which; the tests to ask."""

    what: str
    path: str
    old: str
    new: str
    tests: str


FAULTS = (
    # Results of hooks.
    Fault("allreduce sums, and does not average", "hooks/default.py",
          "(yield AllReduce(bucket.buffer().div_(group.size()), group))",
          "(yield AllReduce(bucket.buffer(), group))", "distributed/test_hooks.py"),
    Fault("fp16 and bf16 send all 32 bits", "hooks/default.py",
          "payload = buffer.to(dtype).div_(group.size())",
          "payload = buffer.div(group.size())", "distributed/test_hooks.py"),
    Fault("PowerSGD keeps no residual", "hooks/powersgd.py",
          "        residual.sub_(buffer)\n    state.forget_factors(bucket.index())",
          "        residual.zero_()\n    state.forget_factors(bucket.index())",
          "distributed/test_powersgd.py"),
    Fault("quantised values are cut off, not rounded", "hooks/quantization.py",
          ".round_().add_(zero)", ".trunc_().add_(zero)", "distributed/test_hooks.py"),
    # What is measured.
    Fault("exposed time ends with the first bucket", "tracing/call_records.py",
          "max(ends), max(done or", "max(ends), min(done or",
          "tracing/test_call_records.py tracing/test_assembler.py"),
    Fault("a sharded model's waits are not exposed time", "fsdp/comms.py",
          "call.exposed + over - began if known", "call.exposed if known",
          "distributed/test_fsdp.py"),
    Fault("bus bandwidth counts an all-reduce once", "records/intervals.py",
          "lambda n: 2 * (n - 1) / n", "lambda n: (n - 1) / n", "records/test_intervals.py"),
    Fault("errors are relative to the result", "probes/compare.py",
          "math.sqrt(dd / rr)", "math.sqrt(dd / xx)", "probes/test_compare.py"),
    Fault("every step is checked", "probes/schedule.py",
          "ordinal < 0 or ordinal % self.every else", "ordinal < 0 else",
          "probes/test_schedule.py"),
    Fault("a sum is called an average of averages", "probes/factors.py",
          '"not_averaged": divisor, "averaged_twice": 1 / divisor',
          '"averaged_twice": divisor, "not_averaged": 1 / divisor', "probes/test_factors.py"),
    Fault("a bucket is looked at again before DDP has read it", "probes/debug_checks.py",
          "queue(lambda: queue(compare))", "queue(compare)", "distributed/test_debug.py"),
    Fault("losses are not counted", "tracing/drain.py",
          "self._counts[reason] += count", "self._counts[reason] += 0", "tracing/test_drain.py"),
    Fault("new turns of a model that is tuned take old answers", "integrations/tuning.py",
          "{next(_questions)}", "{len(turns)}", "integrations/test_tuning.py"),
    Fault("hooks that a script registers are not traced", "integrations/models.py",
          "            dispatcher.take(reducer, hook, state, True)",
          "            original(reducer, state, hook)", "distributed/test_integrations.py"),
    # What exporters and files say.
    Fault("a counter is what the last batch had", "exporters/aggregates.py",
          "totals.get(own, 0.0) + value", "value",
          "exporters/test_observations.py exporters/test_prometheus.py"),
    Fault("a value at a histogram's bound counts above it", "exporters/aggregates.py",
          "bisect_left(bounds, value)", "sum(bound <= value for bound in bounds)",
          "exporters/test_observations.py exporters/test_prometheus.py"),
    Fault("half a block stays in a file on a full disk", "exporters/append_file.py",
          "            self._cut_back(self._fd)\n", "", "exporters/test_append_file.py"),
    Fault("a run's files grow without a limit", "exporters/record_parts.py",
          "self._limit = max_bytes // PARTS - _RESERVE", "self._limit = 1 << 60",
          "exporters/test_record_parts.py exporters/test_record_file.py"),
    Fault("slow steps are not kept in detail", "exporters/retention.py",
          'why = why or "slow"', "pass", "exporters/test_retention.py"),
    Fault("names become markup in TensorBoard", "exporters/tensorboard_tables.py",
          'return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", text)', "return text",
          "exporters/test_tensorboard.py"),
    # Ranks that are late, hang, or are no ranks.
    Fault("a rank that was stopped is told to have died", "ranks/hang/diagnosis.py",
          '"stopped": ("stopped",', '"stopped": ("died",',
          "ranks/hang distributed/test_hangs.py"),
    Fault("any token lets in", "ranks/channel/handshake.py",
          "return _proof(token, b\"listens\", nonces) if is_right else None",
          "return _proof(token, b\"listens\", nonces)",
          "ranks/channel/test_connection.py ranks/channel/test_channel.py"),
    Fault("replicas that differ pass the check", "testing/check/host.py",
          "if differ and whole.kinds", "if not differ and whole.kinds",
          "testing/test_check.py distributed/test_check.py"),
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Try the faults, and write a line of each."""
    chosen = [one for one in FAULTS if all(word in f"{one.what} {one.path}" for word in words)]
    asked = {test: None for one in chosen for test in one.tests.split()}
    if tried(Fault("no fault at all", "__init__.py", "", "", " ".join(asked))) != "missed":
        return 1
    results = [tried(one) for one in chosen]
    sys.stdout.write(f"{results.count('caught')} of {len(chosen)} caught\n")
    return int(set(results) != {"caught"})


def tried(fault: Fault) -> str:
    """Return whether the tests of a fault catch it, and write that."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hooktrace-fault-") as name:
        here = Path(name)
        for path in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
            (here / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, here / path)
        path = here / "hooktrace" / fault.path
        text = path.read_text()
        said = "out of date: the text is not in the file once"
        if not fault.old or text.count(fault.old) == 1:
            path.write_text(text.replace(fault.old, fault.new) if fault.old else text)
            said = _said(here, fault.tests.split())
    seconds = time.monotonic() - began
    sys.stdout.write(f"{said}: {fault.what} ({fault.path}, {seconds:.0f} s)\n")
    sys.stdout.flush()
    return said


def _said(here: Path, tests: Sequence[str]) -> str:
    asked = os.environ | {"PYTHONPATH": str(here), "PYTHONDONTWRITEBYTECODE": "1"}
    paths = [f"tests/{test}" for test in tests]
    told = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *paths]
    for marks in (["-m", "not long"], []):  # all, where all are long
        try:
            ran = subprocess.run(
                [*told, *marks], cwd=here, env=asked, timeout=DEADLINE_S * len(paths), check=False,
                capture_output=True, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "caught"
        if ran.returncode != _NONE_CHOSEN:
            break
    if ran.returncode not in (0, 1):
        return f"not tried: {ran.stdout[-500:]}{ran.stderr[-500:]}"
    return "caught" if ran.returncode else "missed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
