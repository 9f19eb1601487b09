"""``hooktrace run`` with real launchers: results stay the script's own, and files are left."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.distributed.programs import TORCHRUN, call
from tests.integrations.rows import Framework, shows

pytestmark = pytest.mark.slow

SCRIPT = str(Path(__file__).with_name("auto_script.py"))
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
