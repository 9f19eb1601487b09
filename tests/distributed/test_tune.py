"""``hooktrace tune`` on real jobs: started by torch's launcher, ended, and told what was seen."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from hooktrace.analysis.run import load
from hooktrace.analysis.run.dense import settled_steps
from hooktrace.integrations.tuning import LEFT_OUT
from hooktrace.records.files import find_records
from tests.distributed.harness import environment
from tests.distributed.programs import TORCHRUN
from tests.distributed.test_check import processes_of
from tests.ranks.channel.jobs import wait_for
from tests.versions import HOOKS_GROUPS

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPT = Path(__file__).with_name("tune_script.py")
DEADLINE_S = 600
TURN = 8
SMALL = ("--width", "24", "--layers", "2")


def command(folder: Path, *options: str) -> list[str]:
    """Return what starts the script by torch's launcher."""
    return [sys.executable, *TORCHRUN, "--nproc-per-node", "2", str(SCRIPT), str(folder), *options]


def tuning(folder: Path, job: Sequence[str], *options: str) -> subprocess.Popen[str]:
    wanted = ("--hooks", "fp16,powersgd", "--caps", "0.5", "--steps", "40", "--minutes", "4")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "hooktrace", "tune", *wanted, "--json", str(folder / "t.json")),
            *("--out", str(folder / "out"), *options, "--", *job),
        ],
        env=environment(GLOO_SOCKET_IFNAME="lo"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Ran(NamedTuple):
    """How a tuning ended, what it printed, and what each rank of each start says of itself."""

    code: int
    out: str
    err: str
    ranks: list[dict[str, Any]]
    told: dict[str, Any]


def ended(folder: Path, process: subprocess.Popen[str]) -> Ran:
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.terminate()  # which ends its job too
        process.wait(60)
    ranks = [json.loads(path.read_text()) for path in folder.glob("[0-9]*.json")]
    path = folder / "t.json"
    return Ran(
        process.returncode, out, err, ranks, json.loads(path.read_text()) if path.exists() else {}
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """A tuning that came to its end, of a job whose own hook is registered late."""
    folder = tmp_path_factory.mktemp("tune")
    job = command(folder, "--own-hook", "fp16", "--register-at", "20")
    ran = ended(folder, tuning(folder, job, "--hooks", "allreduce,powersgd"))
    assert ran.told.get("ranks") == 2, ran.err
    return folder, ran


def test_each_setting_is_measured(whole: tuple[Path, Ran]) -> None:
    """Both hooks and the job's own, at its limit and at another one: bytes, errors, times."""
    _, ran = whole
    assert ran.code == 0, ran.err
    settings = {(one["hook"], one["cap"]): one for one in ran.told["settings"]}
    labels = ("as-it-is", "allreduce", "powersgd")
    assert set(settings) == {(label, cap) for label in labels for cap in (25.0, 0.5)}
    plain, own = settings["allreduce", 25.0], settings["as-it-is", 25.0]
    # What a plain hook sends is known from torch 2.14 on.
    assert own["wire_bytes"] == (plain["wire_bytes"] // 2 if HOOKS_GROUPS else None)
    for cap in (25.0, 0.5):
        errors = [settings[label, cap]["error"] for label in labels]
        assert errors[1] == 0
        assert 1e-5 < errors[0] < errors[2]
        assert settings["powersgd", cap]["wire_bytes"] < 0.1 * plain["wire_bytes"]
    assert all(
        one["exposed_ns"] > 0 and one["low"] <= one["ratio"] <= one["high"]
        for one in settings.values()
    )
    assert ran.told["own_hook"] == "fp16_compress_hook"
    assert ran.told["says"] in " ".join(ran.out.split())
    assert ran.told["best"] in (None, *settings.values())


def test_all_ranks_end_with_the_same_step(whole: tuple[Path, Ran]) -> None:
    """By an exit that lets the script write what it has to, and nothing else beside it.

    Its learning rate's schedule ran on untouched.  Report and compare read what each part left.
    """
    folder, ran = whole
    starts, rest = divmod(len(ran.ranks), 2)
    assert 4 <= starts <= 6  # what is fastest has one or two more
    assert rest == 0
    steps = Counter(one["steps"] for one in ran.ranks)
    assert all(count % 2 == 0 for count in steps.values())
    for one in ran.ranks:
        assert one["lr"] == pytest.approx(0.01 * 0.1 ** (one["steps"] // 50), rel=0.01)
    written = {path.name for path in folder.iterdir() if not path.stem.isdigit()}
    assert written == {"checkpoint.pt", "out", "t.json"}
    assert torch.load(folder / "checkpoint.pt").keys() >= {"0.weight", "0.bias"}
    assert_whole_turns(folder / "out" / "start2" / "powersgd")
    for start in ("start1", "start2"):
        assert places_of_probes(folder / "out" / start) <= set(range(LEFT_OUT))


def assert_whole_turns(part: Path) -> None:
    """All turns of one hook are there, its warm-up among them, of both ranks."""
    tracks = load(find_records(part)).tracks
    assert [track.rank for track in tracks] == [0, 1]
    assert all(len(track.steps) % TURN == 0 for track in tracks)
    assert len(tracks[0].steps) >= 8 * TURN


def places_of_probes(start: Path) -> set[int]:
    """Return in which steps of its turns rank 0 of a start was checked, by its record files.

    Where they count a check's collective would make the job's own hook look slower.
    """
    seen = json.loads(next(start.glob("*-rank00000.json")).read_text())
    steps = list[tuple[int, bool]]()
    for label in set(seen["turns"]):
        own = load(find_records(start / label)).tracks[0].steps
        steps += zip(own.first_ready.tolist(), own.having("checked").tolist(), strict=True)
    # The last turn ends with the job; before the first one the script may have made steps.
    after = enumerate(sorted(steps)[len(steps) % TURN :])
    return {place % TURN for place, (_, is_checked) in after if is_checked}


def test_ctrl_c_ends_the_job_and_says_what_is_known(tmp_path: Path) -> None:
    """In the second start with hooks: the first one is told, and nothing runs on."""
    # What is started in the background may ignore the signal, and so do its children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = tuning(tmp_path, command(tmp_path, *SMALL), "--caps", "0.002")
    signal.signal(signal.SIGINT, before)
    third = tmp_path / "out" / "start2"
    assert wait_for(lambda: third.exists() or process.poll() is not None, DEADLINE_S)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    ran = ended(tmp_path, process)
    assert ran.code == 1, ran.err
    assert "interrupted: this is what was known by then" in ran.out
    assert {one["cap"] for one in ran.told["settings"]} == {25.0}
    assert processes_of(tmp_path) == []


def test_a_sharded_model_has_its_reduce_scatters_tuned(tmp_path: Path) -> None:
    """FSDP2's own, and hooks in its place; no limit of bucket sizes.  Each unit is a root."""
    job = command(tmp_path, "--kind", "fsdp2", "--no-root")
    hooks = "bf16_reduce_scatter,EightBitReduceScatter-feedback"
    ran = ended(tmp_path, tuning(tmp_path, job, "--hooks", hooks))
    assert ran.code == 0, ran.err
    assert ran.told["notes"] == ["--caps had no effect: a sharded model has no bucket_cap_mb."]
    settings = {one["hook"]: one for one in ran.told["settings"]}
    assert set(settings) == {"as-it-is", *hooks.split(",")}
    assert {one["cap"] for one in settings.values()} == {None}
    assert (ran.told["model"], ran.told["own_hook"]) == ("Sequential", None)
    own, half, byte = (settings[label] for label in ("as-it-is", *hooks.split(",")))
    # A step gathers half of the parameters once, as roots keep them, and scatters all gradients.
    assert half["wire_bytes"] == own["wire_bytes"] * 2 / 3
    assert byte["wire_bytes"] == pytest.approx(own["wire_bytes"] / 2, rel=0.03)
    assert own["error"] is None
    assert 0.001 < half["error"] < byte["error"] < 0.02
    assert all(one["exposed_ns"] > 0 for one in settings.values())
    steps = Counter(one["steps"] for one in ran.ranks)
    assert all(count % 2 == 0 for count in steps.values())
    assert places_of_probes(tmp_path / "out" / "start1") <= set(range(LEFT_OUT))
    assert_whole_turns(tmp_path / "out" / "start1" / hooks.partition(",")[0])
    own_part = load(find_records(tmp_path / "out" / "start1" / "as-it-is"))
    steps = settled_steps(own_part, "Sequential")
    assert steps is not None
    assert steps.hook == "hooks in turns"  # and not the name of one that did not run


REFUSED = {
    "--kind none": "the job trains, and no model of it is under DDP, or under fully_shard",
    # Or a rank that is out of data and one that asks whose turn it is wait for each other.
    "--join": "the job trains within DDP.join(), where ranks need not make the same steps",
}


@pytest.mark.parametrize("options", REFUSED)
def test_a_job_that_cannot_be_tuned_is_refused_soon(options: str, tmp_path: Path) -> None:
    """And not when its minutes are over."""
    began = time.monotonic()
    ran = ended(tmp_path, tuning(tmp_path, command(tmp_path, *options.split())))
    assert ran.code == 2
    assert REFUSED[options] in ran.err
    assert time.monotonic() - began < 200  # of 240
    assert options != "--join" or max(one["steps"] for one in ran.ranks) == 0


def test_a_hook_that_fails_leaves_the_list(tmp_path: Path) -> None:
    """With what the failing rank said, and not with what the others lost by that.

    The script itself raises after enough turns: what was known is told, and why.
    """
    job = command(tmp_path, "--no-half-on", "1", "--raise-at", "150", *SMALL)
    ran = ended(tmp_path, tuning(tmp_path, job, "--caps", "25"))
    assert ran.code == 0, ran.err
    assert ran.told["own_hook"] is None
    said = " ".join(ran.out.split())
    assert "Start 2 ended with exit code 1: ValueError: no data at step 150." in said
    ((name, why),) = ran.told["refused"].items()
    assert name == "fp16"
    assert why.startswith("the job failed in its turn. Start 1 ended with exit code 1: ")
    assert "no half precision here" in why
    assert {one["hook"] for one in ran.told["settings"]} == {"as-it-is", "powersgd"}
