"""``hooktrace advise --verify -- torchrun ...`` on real ranks, whatever hook the script has."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from hooktrace.analysis.report.run_files import read_run
from hooktrace.analysis.whatif.answer import Answer
from hooktrace.analysis.whatif.ask import ask, read_source
from hooktrace.analysis.whatif.choice import Choice
from hooktrace.commands.whatif.script import Script, shapes_of
from hooktrace.ranks.job import loopback
from tests.analysis.report.test_command import call as hooktrace
from tests.distributed.test_run import RUN, TORCHRUN, call

pytestmark = pytest.mark.slow

MODEL = "Sequential"
ENDLESS = "1000000"


class Calibrated(NamedTuple):
    """A calibrated run of the script in a folder."""

    folder: Path
    run: Path
    answer: Answer
    shapes: str

    def script(self, how: str, steps: str = ENDLESS) -> Script:
        """Return the command, on two ranks."""
        torchrun = [sys.executable, *TORCHRUN, "--nproc-per-node", "2"]
        return Script([*torchrun, str(self.folder / "train.py"), how, steps], self.shapes)

    def processes(self) -> list[str]:
        """Return the command lines that name the script."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                said = path.read_bytes().decode(errors="replace")
            except OSError:
                continue
            found += [said] if str(self.folder) in said else []
        return found


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    folder = tmp_path_factory.mktemp("verified")
    shutil.copy(Path(__file__).with_name("verify_script.py"), folder / "train.py")
    ranks = [*TORCHRUN, "--nproc-per-node", "2", *RUN, str(folder / "train.py"), "plain", "90"]
    environment = {"HOOKTRACE_CALIBRATE": "1", "HOOKTRACE_RECORD_DIR": str(folder / "run")}
    code, said = call(ranks, folder, **environment)
    assert code == 0, said
    timeline = read_run(folder / "run")
    answer = ask(read_source(timeline, MODEL), [])
    return Calibrated(folder, folder / "run", answer, shapes_of(timeline, MODEL))


@pytest.fixture(autouse=True)
def _here(calibrated: Calibrated, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start jobs as a user does in the script's folder, on loopback; they leave nothing behind."""
    monkeypatch.chdir(calibrated.folder)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", loopback())
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    assert calibrated.processes() == []


def test_the_command_verifies_on_a_script(calibrated: Calibrated) -> None:
    """It is run as often as there is something to run, and ended; its run stays as it was."""
    before = {path: path.read_bytes() for path in calibrated.run.rglob("*.jsonl")}
    command = calibrated.script("plain").command
    shown = hooktrace(
        "advise", calibrated.run, "--json", "--verify", "--verify-steps", 60, "--", *command
    )
    assert shown.exit_code == 0, shown.output
    found = msgspec.json.decode(shown.output)
    assert found["verified_on"].endswith("train.py plain 1000000")
    assert len(found["verified"]) in (1, 2, 3)
    assert found["verified"][0]["hook"] == "allreduce"
    for one in found["verified"]:
        assert one["measured_ms"] > 0
        assert one["measured_steps"] > 40
    assert {path: path.read_bytes() for path in calibrated.run.rglob("*.jsonl")} == before
    assert sorted(os.listdir(calibrated.folder)) == ["run", "train.py"]


@pytest.mark.parametrize(
    ("how", "hook", "traced"), [("own", "powersgd-rank4", "powerSGD_hook"),
                                ("torch", "bf16", "bf16_compress_hook")],
)  # fmt: skip
def test_whatever_hook_the_script_has_another_runs(
    calibrated: Calibrated, tmp_path: Path, how: str, hook: str, traced: str
) -> None:
    """Its own model's only, with the options that were predicted, at work from early on."""
    chosen = Choice(hook, 2.0)
    script = calibrated.script(how, "70")
    timeline = script.run(calibrated.answer, chosen, 1000, tmp_path / "0")
    (layout,) = {
        (one.hook, one.bucket_cap_bytes, dict(one.hook_options).get("matrix_approximation_rank"))
        for track in timeline.tracks for one in track.records.layouts if one.model == MODEL
    }  # fmt: skip
    assert layout == (traced, 2 << 20, 4 if how == "own" else None)
    others = {
        (one.hook, one.bucket_cap_bytes)
        for track in timeline.tracks for one in track.records.layouts if one.model != MODEL
    }  # fmt: skip
    assert others == ({("ddp_allreduce", 3 << 20)} if how == "own" else set())
    assert not [t for track in timeline.tracks for t in track.records.trials]
    assert not list(calibrated.folder.glob("mine/**/*.jsonl"))
