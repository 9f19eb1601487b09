"""The demo and the examples as a user runs them: whole processes, under a deadline."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from hooktrace.records.reader import read_parts

from ..exporters.processes import get, until
from ..versions import KEEPS_SHARDS
from .harness import REPOSITORY, environment
from .programs import TORCHRUN, finished

pytestmark = pytest.mark.slow
needs_shards = pytest.mark.skipif(
    not KEEPS_SHARDS, reason="this torch keeps FSDP's groups elsewhere"
)

STEPS = 24
DEADLINE_S = 300


class Job(NamedTuple):
    """A running demo: its process group, its files, its output."""

    process: subprocess.Popen[bytes]
    out: Path
    log: Path

    def printed(self) -> str:
        return self.log.read_text()

    def wait_for(self, ready: Callable[[], bool]) -> None:
        until(lambda: ready() or self.process.poll() is not None, bool, self.log, DEADLINE_S)
        assert self.process.poll() is None, f"the demo ended early:\n{self.printed()}"

    def targets(self) -> list[str]:
        """Return the metrics addresses that Prometheus would discover now, in rank order."""
        found = []
        for file in sorted((self.out / "prometheus").glob("hooktrace-rank*.json")):
            with suppress(FileNotFoundError):  # the job, and with it the file, ends just now
                found.append(json.loads(file.read_text())[0]["targets"][0])
        return found

    def end(self, number: signal.Signals | None = None) -> int:
        """Send a signal, if any, and return the exit code; no process of the job may be left."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(DEADLINE_S)
        until(self.alive, lambda alive: not alive, self.log)
        return code

    def alive(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@contextmanager
def demo(out: Path, *arguments: str) -> Iterator[Job]:
    log = out.with_name("output.txt")
    command = [sys.executable, "-m", "hooktrace", "demo", "--out", str(out), "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *arguments],
            stdout=output, stderr=subprocess.STDOUT, env=environment(), start_new_session=True,
        )  # fmt: skip
    try:
        yield Job(process, out, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def steps_served(target: str) -> float:
    """Return the steps that a rank's metrics tell of, 0 before they tell of any."""
    text = get(f"http://{target}/metrics")
    found = re.search(r"^hooktrace_steps_total\{.*\} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


NUMBER = r"([\d.,]+)"
BUCKET = re.compile(
    rf"^  (\w+ .+?): {NUMBER} MB, {NUMBER} on the wire, {NUMBER} ms: (.*?)(?:; error ([\d.e-]+))?"
    r"(?:; in \d+ of the steps)?$",
    re.MULTILINE,
)
"""A line of the summary: what it is of, data, sent, time, stages, error."""


def stages(text: str) -> dict[str, float]:
    """Return the ms of each stage: ``compress 0.18, wire 9.94``."""
    pairs = (one.split() for one in text.partition(";")[0].split(", "))
    return {name: float(ms.replace(",", "")) for name, ms in pairs}


def test_demo_trains_serves_and_reports(tmp_path: Path) -> None:
    """Two ranks train, serve metrics meanwhile, and leave tables and files."""
    arguments = ["--hook", "bf16", "--steps", str(STEPS), "--bucket-cap-mb", "4"]
    with demo(tmp_path / "run", *arguments) as job:
        job.wait_for(lambda: len(job.targets()) == 2)
        job.wait_for(lambda: [0 < steps_served(t) <= STEPS for t in job.targets()] == [True, True])
        assert job.end() == 0
        printed = job.printed()
        assert job.targets() == []
    assert "Warning" not in printed
    first, last = map(float, re.findall(r"loss (\S+) at the first step, (\S+) over", printed)[0])
    assert last < first
    rows = BUCKET.findall(printed)
    assert [row[0] for row in rows] == [f"bucket {i}" for i in range(len(rows))]
    assert 3 <= len(rows) <= 12
    for _, gradient, wire, duration, spent, error in rows:
        assert float(gradient) == pytest.approx(2 * float(wire), abs=0.02)
        assert {"compress", "wire", "decompress"} <= stages(spent).keys()
        assert float(duration) >= max(stages(spent).values())
        assert 0 < float(error) < 0.01  # bfloat16 rounds to 8 bits
    headline = (
        r"^rank \d: char_transformer: bf16_compress_hook, medians of \d+ steps of .* exposed$"
    )
    assert len(re.findall(headline, printed, re.M)) == 2
    (command,) = re.findall(r"^  Report +\S*hooktrace (report .*)$", printed, re.M)
    report = subprocess.check_output(
        [sys.executable, "-m", "hooktrace", *shlex.split(command)],
        env=environment(), text=True, timeout=DEADLINE_S,
    )  # fmt: skip
    assert re.search(r"bf16_compress_hook, \d+ steps on 2 ranks", report)
    page = (tmp_path / "run/report.html").read_text()
    assert page.count("<svg") == 2  # a typical step and a slow one
    for rank in range(2):
        trace = read_parts([tmp_path / f"run/plugins/hooktrace/rank{rank:05d}.jsonl"])
        assert (len(trace.steps), trace.closed, trace.skipped) == (STEPS, True, [])
        assert list((tmp_path / f"run/rank{rank}").glob("events.out.tfevents.*"))


@needs_shards
@pytest.mark.long
def test_demo_of_a_sharded_model(tmp_path: Path) -> None:
    """Units take the place of buckets in the table."""
    arguments = ["--fsdp", "--hook", "bf16_reduce_scatter", "--steps", str(STEPS)]
    with demo(tmp_path / "run", *arguments) as job:
        assert job.end() == 0
        printed = job.printed()
    assert printed.startswith(f"hooktrace demo: 2 ranks, bf16_reduce_scatter, {STEPS} steps")
    assert "Warning" not in printed
    rows = {row[0]: row[1:] for row in BUCKET.findall(printed)}
    for name in ["<root>", *(f"layers.{i}" for i in range(6))]:
        for kind, ratio in (("all-gather (forward)", 1), ("reduce-scatter (backward)", 2)):
            data, sent, *_, error = rows[f"unit {name} {kind}"]
            assert float(data) == pytest.approx(ratio * float(sent), abs=0.02)
            assert not error or (ratio == 2 and 0 < float(error) < 0.01)


def test_interrupted_demo_says_so_and_leaves_nothing_running(tmp_path: Path) -> None:
    """Ctrl-C in the middle ends all ranks without a traceback; the record file can be read."""
    with demo(tmp_path / "run", "--ranks", "1", "--steps", "100000") as job:
        job.wait_for(lambda: bool(job.targets()))
        os.killpg(job.process.pid, signal.SIGINT)
        assert job.end() == 130
        assert "hooktrace demo: ended by SIGINT; what was recorded" in job.printed()
        assert "Traceback" not in job.printed()
        assert job.targets() == []
    assert read_parts([tmp_path / "run/plugins/hooktrace/rank00000.jsonl"]).run is not None


@pytest.mark.long
def test_failed_rank_is_named_with_its_reason(tmp_path: Path) -> None:
    """A rank that raises ends the job with exit code 1, its error in one line, and its log."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/plugins").touch()  # the record file's directory cannot be made
    with demo(tmp_path / "run", "--ranks", "1") as job:
        assert job.end() == 1
        failed = r"^hooktrace demo: rank 0 failed: NotADirectoryError: .*cannot write in"
        assert re.search(failed, job.printed(), re.MULTILINE)
        (log,) = re.findall(r"its log and error: (.*)", job.printed())
        assert "Traceback" not in job.printed()
    assert Path(log, "error.json").exists()


T = r"[\d.]+"


def printed_by(example: str, folder: Path, *options: str, ranks: int = 2) -> str:
    """Return what an example prints; it ends well and says nothing else."""
    script = str(REPOSITORY / "examples" / example)
    command = [*TORCHRUN, "--nproc-per-node", str(ranks), script, *options]
    code, printed, errors = finished(command, folder, HOOKTRACE_RECORD_DIR=str(folder))
    assert (code, errors) == (0, ""), errors
    return printed


@pytest.mark.long
def test_the_smallest_one_prints_its_summary(tmp_path: Path) -> None:
    """A line for the model, then one a bucket; of 50 steps the first one does not count."""
    model, *buckets = printed_by("minimal.py", tmp_path).splitlines()
    of = rf"model0: fp16_compress_hook, medians of 49 steps of {T} ms, {T} ms \({T} %\) exposed"
    assert re.fullmatch(of, model)
    assert len(buckets) == 2
    for index, line in enumerate(buckets):
        stages = rf"{T} ms: compress {T}, (queue {T}, )?wire {T}, decompress {T}"
        assert re.fullmatch(rf"  bucket {index}: 4.20 MB, 2.10 on the wire, {stages}", line), line


@needs_shards
@pytest.mark.long
def test_a_sharded_one_prints_a_line_a_unit(tmp_path: Path) -> None:
    """A layer is gathered in forward and in backward; of gradients a quarter is sent."""
    head, *units = printed_by("fsdp.py", tmp_path, "--eight-bit").splitlines()
    assert re.match(r"model0: eight_bit_reduce_scatter\(.*\), medians of 2[78] steps ", head)
    (reduced,) = [u for u in units if u.startswith("  unit layers.2 reduce-scatter (backward): ")]
    assert "0.79 MB, 0.20 on the wire, " in reduced
    assert len(units) == 2 + 3 * 4
    files = sorted(tmp_path.rglob("*.jsonl"))
    assert [file.name for file in files] == ["rank00000.jsonl", "rank00001.jsonl"]
    for file in files:
        found = read_parts([file])
        assert found.closed
        assert [step.step for step in found.steps] == list(range(30))
        assert all(step.sharded and step.complete for step in found.steps)


@pytest.mark.long
def test_that_of_local_sgd_averages_to_equal_replicas(tmp_path: Path) -> None:
    """Its own averaging, on four ranks."""
    printed = printed_by("local_sgd.py", tmp_path, ranks=4)
    assert re.search(r"model0: post_localSGD_hook, medians of 50 steps", printed)
    apart = r"^replicas apart by (\S+) before the last averaging, (\S+) after"
    (found,) = re.findall(apart, printed, re.M)
    assert float(found[0]) > 0
    assert float(found[1]) == 0
