"""Real launchers: ``hooktrace run`` keeps what a script does; a job that is started again."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from hooktrace.records.files import record_path
from hooktrace.records.reader import read_parts
from tests.distributed.programs import TORCHRUN, call
from tests.integrations.rows import Framework, shows

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).with_name("auto_script.py"))
RESTARTED = str(Path(__file__).with_name("restart_script.py"))
RUN = ["-m", "hooktrace", "run"]
ANY = Framework("any", "`torchrun ... -m hooktrace run train.py`", "torch")


def lines_of_hooktrace(said: str) -> list[str]:
    return [line for line in said.splitlines() if line.startswith("hooktrace: ")]


def expect_summary(said: str, folder: Path) -> None:
    """A few lines, of rank 0 alone, and files of both ranks in the folder that the last names."""
    first, second, last = lines_of_hooktrace(said)
    assert "Sequential: ddp_allreduce, medians of " in first
    assert "no hook was registered" in second
    (named,) = re.findall(r"hooktrace report (\S+)$", last)
    assert Path(named).name.startswith("auto_script-")
    files = (folder / named / "plugins" / "hooktrace").glob("*.jsonl")
    assert {file.name for file in files} == {"rank00000.jsonl", "rank00001.jsonl"}


@shows(ANY, "DDP's own average, to the last bit")
def test_torchrun(tmp_path: Path) -> None:
    """The same bits and exit code, and a summary once; children that make no model are no news."""
    ranks = [*TORCHRUN, "--nproc-per-node", "2"]
    code, said = call([*ranks, SCRIPT, "plain", "exit"], tmp_path)
    assert "exitcode  : 7" in said, said
    traced_code, traced = call([*ranks, *RUN, SCRIPT, "traced", "children"], tmp_path)
    assert traced_code == code, traced
    assert "exitcode  : 7" in traced, traced
    assert (tmp_path / "traced").read_bytes() == (tmp_path / "plain").read_bytes()
    expect_summary(traced, tmp_path)


@shows(ANY, "ranks that the script spawns or forks")
@pytest.mark.parametrize("how", ["spawn", pytest.param("fork", marks=pytest.mark.long)])
def test_ranks_that_the_script_starts(how: str, tmp_path: Path) -> None:
    """The process that starts them makes no model, and says nothing of that."""
    code, said = call([*RUN, SCRIPT, "traced", how], tmp_path)
    assert code == 0, said
    assert (tmp_path / "traced").stat().st_size == 4 * 4 * 41 * 40
    expect_summary(said, tmp_path)


@shows(ANY, "`opentelemetry-instrument torchrun ...`")
@pytest.mark.long
def test_under_opentelemetrys_launcher(tmp_path: Path) -> None:
    """``opentelemetry-instrument torchrun`` does the same, in an environment that has it."""
    pytest.importorskip("opentelemetry.instrumentation.auto_instrumentation")
    launcher = (
        "import sys; from opentelemetry.instrumentation import auto_instrumentation as launcher\n"
        "launcher.run()"
    )
    ranks = [sys.executable, *TORCHRUN, "--nproc-per-node", "2"]
    nowhere = {f"OTEL_{kind}_EXPORTER": "none" for kind in ("TRACES", "METRICS", "LOGS")}
    code, said = call(["-c", launcher, *ranks, SCRIPT, "traced"], tmp_path, **nowhere)
    assert code == 0, said
    assert len(lines_of_hooktrace(said)) == 3, said


def test_what_is_aborted_starts_again_and_each_tracer_finds_its_own_ranks(tmp_path: Path) -> None:
    """A check is a hang as any other; nobody asks the ranks before, and a late one is found."""
    launch = [*TORCHRUN, "--nproc-per-node", "2", "--max-restarts", "1", RESTARTED, str(tmp_path)]
    code, said = call(launch, tmp_path)
    assert code == 0, said
    told = [line for line in said.splitlines() if "hooktrace ends rank" in line]
    # Once one has ended, the launcher ends the other: on a busy machine before it says so.
    assert len(told) == 2 or (told and "closing signal SIGTERM" in said)
    for line in told:
        waited = re.search(r"has waited ([0-9.]+) s on rank 0 for rank 1, which is in", line)
        assert waited, line
        assert float(waited[1]) < 10  # for which the probes themselves would wait
    for rank in range(2):
        assert read_parts([record_path(tmp_path, rank)]).hangs
    assert said.count("20 steps in start 1") == 2
    turns = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert sorted(turns) == ["0-0", "1-0", "1-1", "1-2"]
    for name, found in turns.items():
        assert found == [name.replace("-", " ")] * 2
    assert "no channel" not in said
    assert "is not reached" not in said
