"""``hooktrace tune``: its job is ended whole; step times of hooks in turns, and what they say.

On real jobs: ``distributed/test_tune.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from hooktrace.analysis.document.terminal import show
from hooktrace.commands.tune import job, run
from hooktrace.commands.tune.job import run_job, why_of
from hooktrace.commands.tune.results import (
    Setting,
    Start,
    Tuned,
    against,
    document,
    recorded,
    sentence,
    settings,
)
from hooktrace.commands.tune.run import WIDTH, Tuning, caps_of
from hooktrace.integrations.ending import MEASURED
from hooktrace.integrations.tuning import FEWEST, LEFT_OUT, OWN, TURN, WHERE, Part
from hooktrace.records.errors import UsageError
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from tests.distributed.test_check import processes_of
from tests.exporters import records_sample as sample

LAUNCHER = """
import subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); "
child = subprocess.Popen([sys.executable, "-c", child + "time.sleep(600)", sys.argv[1]],
                         stdout=subprocess.PIPE)
child.stdout.readline()
if sys.argv[2] == "waits":
    time.sleep(600)
"""


@pytest.mark.parametrize(("how", "code"), [("waits", None), ("ends", 0)])
def test_nothing_of_a_job_is_left(
    tmp_path: Path, how: str, code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a child that does not listen, whose launcher is gone."""
    monkeypatch.setattr(job, "GRACE_S", 0.5)
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path), how]
    assert run_job(command, os.environ, tmp_path / "output", 5 if code is None else 60) == code
    assert (tmp_path / "output").read_text() == ""
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_a_job_is_started_ends_it(
    tmp_path: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until there is something to end; handlers are then as they were."""

    def started(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made = popen(*arguments, **options)
        signal.raise_signal(number)
        return made

    popen, before = subprocess.Popen, signal.getsignal(number)
    monkeypatch.setattr(job.subprocess, "Popen", started)
    monkeypatch.setattr(job, "GRACE_S", 0.5)
    command = [sys.executable, "-c", LAUNCHER, str(tmp_path), "waits"]
    with pytest.raises(KeyboardInterrupt):
        run_job(command, os.environ, tmp_path / "output", 60)
    assert signal.getsignal(number) is before
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "it said nothing"),
        ("/bin/python: can't open file 't.py': [Errno 2] No such file\n===\n  traceback : see\n",
         "/bin/python: can't open file 't.py': [Errno 2] No such file"),
        ("usage: t.py\nt.py: error: unrecognized arguments: --lr\n", "t.py: error: unrecognized "
         "arguments: --lr"),
        ("[rank1]: ValueError: no data\n[rank0]: RuntimeError: Connection closed\n"
         "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n===\n",
         "ValueError: no data"),
        ("Error 0.23\nException in step 3 of 4\nbye\n", "bye"),
    ],
)  # fmt: skip
def test_the_line_that_says_why(tmp_path: Path, said: str, why: str) -> None:
    """The first error: a launcher says it all again, and other ranks lose their connections."""
    (tmp_path / "output.txt").write_text(said)
    assert why_of(tmp_path / "output.txt") == why


MS = 1e6


def seen(steps: Mapping[str, float], rounds: int, *, noise: float = 0.0, seed: int = 0) -> Any:
    """Return what a rank writes whose steps take so many ms."""
    random = np.random.default_rng(seed)
    turns = [str(label) for _ in range(rounds) for label in random.permutation([*steps])]
    times: dict[str, list[float]] = {}
    for label in turns:
        taken = MS * steps[label] * (1 + noise * random.standard_normal(TURN - LEFT_OUT))
        times.setdefault(label, []).append(taken.mean())
    return {"times": times, "turns": [OWN, *turns], "peaks": {"a": 9}}


def shown(found: Tuned, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is printed, in one line."""
    show(Console(width=WIDTH), document(found))
    return " ".join(capsys.readouterr().out.split())


def plain(step: float, rounds: int, *, noise: float = 0.0) -> Start:
    """Return what is seen of a job as it is."""
    return seen({OWN: step}, rounds, noise=noise, seed=9)


def test_turns_over_the_job_as_it_is() -> None:
    """Whole rounds only, however the start was slower than the job as it is."""
    steps = {OWN: 12.0, "fp16": 9.0, "bf16": 15.0}
    one = seen(steps, 9)
    for label in ("fp16", "bf16"):  # of a round that was not ended
        one["times"][label].append(7 * MS)
    found, base = one["times"], plain(10.0, 12)["times"][OWN]
    assert base == pytest.approx([10 * MS] * 12)
    for label, ratio in (("fp16", 0.9), ("bf16", 1.5)):
        told = against(found[label], found[OWN], [base])
        assert told == pytest.approx((ratio, ratio, ratio))


def test_intervals_hold_what_is_true_as_often_as_they_say() -> None:
    """Of 100 jobs with noise; drift that all hooks of a round share does not widen them."""
    inside = widths = 0.0
    for seed in range(100):
        one = seen({OWN: 10.0, "fp16": 9.0}, 12, noise=0.1, seed=seed)["times"]
        base = np.array(plain(10.0, 26, noise=0.1)["times"][OWN])
        base *= 10 * MS / base.mean()
        _, low, high = against(one["fp16"], one[OWN], [base.tolist()])
        inside += low <= 0.9 <= high
        widths += (high - low) / 100
    assert inside >= 90
    assert widths < 0.15


def test_settings_are_told_by_turns_and_record_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Medians of what counts and the largest error, of each hook's own steps."""
    monkeypatch.setenv(WHERE, str(tmp_path / "start"))
    steps = [sample.make_step(step) for step in (*range(1, 4), *range(10, 15))]
    steps[:2] = [(replace(x, warmup=True, exposed_ns=999), of_step) for x, of_step in steps[:2]]
    steps[-1] = (replace(steps[-1][0], complete=False, exposed_ns=999), steps[-1][1])
    steps.append(sample.checked(sample.make_step(15)))
    for label, count in (("a", 3), (OWN, 6)):
        part = Part(label, lambda step: "a" if step < 10 else OWN)
        part.export(replace(sample.make_batch(0, steps=0), steps=tuple(steps)))
        part.close()
        ((_, paths),) = find_records(tmp_path / label).items()
        assert len(read_parts(paths).steps) == count
    told = seen({"a": 9.0, OWN: 10.0}, 12) | {"cap": 5.0, "folder": tmp_path}
    a, own = settings([told], [plain(10.0, 12)])
    exposed = sample.make_step(1)[0].exposed_ns
    assert (a.hook, a.cap, a.exposed_ns, a.wire_bytes, a.error) == ("a", 5.0, exposed, 4000, None)
    assert (a.ratio, a.peak_bytes, own.peak_bytes) == (pytest.approx(0.9), 9, None)
    assert (own.hook, own.exposed_ns, own.error) == (OWN, exposed, 0.25)
    assert recorded(tmp_path / "none") == (None, None, None)


def setting(hook: str, ratio: float, spread: float, **more: Any) -> Setting:
    found = (ratio, ratio - spread, ratio + spread)
    return Setting(
        hook, more.pop("cap", 25.0), *found, exposed_ns=1e6, wire_bytes=2e6, starts=2, **more
    )


def tuned(*settings: Setting, drift: float | None = 1.001, own_hook: str | None = None) -> Tuned:
    return Tuned(
        model="Net", own_hook=own_hook, own_cap=25.0, ranks=2, step_ns=10 * MS, drift=drift,
        settings=sorted(settings, key=lambda one: one.ratio), refused={"bf16": "no."},
        notes=[], folder="runs/tune",
    )  # fmt: skip


def test_a_winner_and_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it loses and needs, and what to write."""
    found = tuned(
        setting("powersgd-rank4", 0.8, 0.02, error=2e-4, peak_bytes=3 * 10**9),
        setting(OWN, 1.0, 0.01), setting("allreduce", 0.9, 0.02),
    )  # fmt: skip
    assert sentence(found) == (
        "With powersgd-rank4 at 25 MB steps are 20 % (18 to 22) shorter than those of the job as "
        "it is; relative error 0.0002."
    )
    text = shown(found, capsys)
    assert "8.00 -20.0 % (-22.0 to -18.0) 1.00 2.00 0.0002 3000.00" in text
    assert "It loses a part of the gradients." in text
    assert "Nothing is lost with allreduce at 25 MB: -10.0 % (-12.0 to -8.0)." in text
    assert "bf16 was left out: no." in text
    assert (
        "# averages plainly before start_powerSGD_iter, 1,000 steps by default: "
        "hooktrace.instrument(ddp, hooktrace.hooks.powerSGD_hook, "
        "hooktrace.hooks.PowerSGDState(None, matrix_approximation_rank=4))"
    ) in text
    assert "HOOKTRACE_HOOK=powersgd-rank4 with hooktrace run" in text


def test_a_hook_in_whose_turn_the_job_failed_is_not_named() -> None:
    """However fast it was in an earlier start."""
    found = tuned(setting("bf16", 0.7, 0.02), setting("fp16", 0.9, 0.02), setting(OWN, 1.0, 0.01))
    assert [one.hook for one in found.winners] == ["fp16"]


def test_the_jobs_own_hook_is_no_plain_average(capsys: pytest.CaptureFixture[str]) -> None:
    """It may lose something; without one it is torch's average that is faster in other buckets."""
    settings = setting(OWN, 0.8, 0.02, error=2e-4, cap=5.0), setting(OWN, 1.0, 0.01)
    text = shown(tuned(*settings), capsys)
    assert "With the plain average at 5 MB steps are 20 % (18 to 22) shorter" in text
    assert "ddp = DistributedDataParallel(model, bucket_cap_mb=5)" in text
    assert "HOOKTRACE_BUCKET_CAP_MB=5 with hooktrace run" in text
    assert "It loses a part of the gradients." not in text
    text = shown(tuned(*settings, own_hook="fp16_compress_hook"), capsys)
    assert "With the hook that the job has at 5 MB steps are 20 %" in text
    assert "It loses a part of the gradients." in text


def test_nothing_else_to_try_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """As where all hooks were left out."""
    text = shown(tuned(setting(OWN, 1.0, 0.01), drift=None), capsys)
    assert "There was nothing to try beside the job as it is." in text


@pytest.mark.parametrize(
    ("best", "own", "drift", "noise"),
    [
        (setting("fp16", 0.98, 0.02), 1.0, 1.001, "2.4"),  # the better of two
        (setting("fp16", 0.96, 0.01), 0.95, 1.001, "6.1"),
        (setting("fp16", 0.94, 0.04), 0.97, 1.001, "7.6"),  # no single one explains it
    ],
)
def test_what_is_no_more_than_noise_wins_nothing(
    best: Setting, own: float, drift: float, noise: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the turns, of the job between its two starts, or of its own hook in its own place."""
    found = tuned(best, setting(OWN, own, 0.01), drift=drift)
    assert sentence(found) == (
        f"Nothing beats the job as it is by more than the noise ({noise} %)."
    )
    assert "To use it" not in shown(found, capsys)


MB = 2**20
TOLD = {
    "ranks": 2, "rank": 0, "kind": "DDP", "number": 1, "model": "Net", "sizes": [MB] * 4,
    "hook": None, "cap": 25.0, "refused": {},
}  # fmt: skip
Tell = Callable[[dict[str, Any]], Mapping[str, Any]]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Callable[[Tell], None]:
    """Return what has starts made of a job that ends at once, and tells so of each plan."""

    def by(tell: Tell) -> None:
        def started(_: object, environment: dict[str, str], output: Path, __: float) -> int:
            output.write_text("bye")
            told = TOLD | tell(json.loads(environment[MEASURED]))
            Path(f"{environment[WHERE]}-rank0.json").write_text(json.dumps(told))
            return 0

        monkeypatch.setattr(run, "run_job", started)

    return by


@pytest.mark.parametrize(
    ("told", "asked", "said"),
    [
        ({"turns": 1}, {}, "It made fewer than 5 turns of 8 steps for each hook; pass"),
        ({"why_not": "the job does what cannot be tuned"}, {}, "does what cannot be tuned"),
        (
            {"kind": "fully_shard", "cap": None},
            {"hooks": ("fp16",)},
            "fp16 is no hook for a model under fully_shard; choose",
        ),
        (
            # 10 turns of 8 steps that take 100 ms.
            {"step_ms": 100.0},
            {"seconds": 16, "hooks": ("fp16",)},
            "a step takes 0.1 s, so 5 turns of each hook take 8 s, more than half of what",
        ),
    ],
)
def test_a_job_that_cannot_be_tuned(
    told: dict[str, Any],
    asked: dict[str, Any],
    said: str,
    tmp_path: Path,
    starts: Callable[[Tell], None],
) -> None:
    """It is refused before anything is tried that cannot be told."""
    left = seen({OWN: told.pop("step_ms", 10.0)}, told.pop("turns", 12)) | told
    starts(lambda _: left)
    options = {"hooks": (), "caps": (), "out": tmp_path} | asked
    end_s = time.monotonic() + options.pop("seconds", 1000)
    with pytest.raises(UsageError, match=said):
        Tuning([], end_s, 12, **options).run()


@pytest.mark.parametrize(
    ("second_ms", "says"),
    [
        (10.0, "Nothing beats the job as it is by more than the noise"),
        (8.8, "With the plain average at 1 MB steps are 13 % (12 to 14) shorter"),
        (
            None,
            "With the plain average at 1 MB steps are 14 % (14 to 14) shorter than those of the "
            "job as it is, in one start; starts differ, and no second one was measured.",
        ),
    ],
)
def test_what_is_faster_in_one_start_has_to_be_so_in_a_second(
    second_ms: float | None, says: str, tmp_path: Path, starts: Callable[[Tell], None]
) -> None:
    """Whole starts differ: here the first one with buckets of 1 MB was faster by 14 %."""
    smaller, caps = chain([8.6], repeat(second_ms)), list[float | None]()

    def tell(plan: dict[str, Any]) -> dict[str, Any]:
        caps.append(plan["cap"])
        step_ms = 10.0 if plan["cap"] is None else next(smaller)
        steps = dict.fromkeys([OWN, *plan["hooks"]], step_ms or 1.0)
        return {**seen(steps, 12 if step_ms else 0), "cap": plan["cap"] or 25.0}

    starts(tell)
    asked = {"hooks": ("allreduce",), "caps": (1.0, 25.0), "out": tmp_path}
    tuning = Tuning([], time.monotonic() + 1000, 12, **asked)
    tuning.run()
    assert caps[:4] == [None, None, 1.0, 1.0]
    assert sentence(tuning.tuned()).startswith(says)


def test_the_last_start_makes_its_turns_of_slow_steps_too(
    tmp_path: Path, starts: Callable[[Tell], None]
) -> None:
    """Though the minutes are over: without it nothing is known of what drifts."""
    plans = list[dict[str, Any]]()

    def tell(plan: dict[str, Any]) -> dict[str, Any]:
        plans.append(plan)
        if plan["model"] is not None:
            tuning.end_s = time.monotonic()
        return seen(dict.fromkeys([OWN, *plan["hooks"]], 1000.0), 12)

    starts(tell)
    tuning = Tuning([], time.monotonic() + 1000, 12, ("allreduce",), (), tmp_path)
    tuning.run()
    assert plans[-1]["is_last"]
    assert plans[-1]["limit_s"] > TURN * (FEWEST + 1)


@pytest.mark.parametrize(
    ("sizes", "own", "caps"),
    [
        ([MB] * 30, 25.0, [50.0, 10.0, 5.0, 1.0]),
        ([MB] * 40, 25.0, [50.0, 10.0, 5.0, 1.0]),
        ([4 * MB], 25.0, []),
        ([MB] * 600, 25.0, [100.0, 50.0, 10.0]),  # of 1 MB there would be 600
        ([MB] * 30, None, [50.0, 25.0, 10.0, 5.0, 1.0]),
    ],
)
def test_limits_that_cut_the_gradients_alike_are_tried_once(
    sizes: list[int], own: float | None, caps: list[float]
) -> None:
    """None that makes a step of very many buckets."""
    assert caps_of(sizes, own) == caps
