"""A process is set up before it imports torch; here torch is a package of three empty files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hooktrace.integrations.models import hook_asked
from hooktrace.integrations.start import FOLDER
from tests.integrations.test_run import python

DDP = """
class DistributedDataParallel:
    def __init__(self, module, device_ids=None, *, bucket_cap_mb=None, bucket_cap_mb_list=None):
        self.caps = bucket_cap_mb, bucket_cap_mb_list
    def _ddp_init_helper(self):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder from which ``torch`` is imported."""
    parallel = tmp_path / "torch" / "nn" / "parallel"
    parallel.mkdir(parents=True)
    for package in (parallel, parallel.parent, parallel.parent.parent):
        (package / "__init__.py").touch()
    (parallel / "__init__.py").write_text("from .distributed import DistributedDataParallel")
    (parallel / "distributed.py").write_text(DDP)
    return tmp_path


def run(code: str, folder: Path) -> list[str]:
    done = python("-c", f"import os, sys\n{code}", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


BEFORE = "from hooktrace.integrations.start import begin\nbegin()\n"
IMPORT = "from torch.nn.parallel import DistributedDataParallel as D\n"
SHOW = "print(hasattr(D._ddp_init_helper, '__wrapped__'))\n"


@pytest.mark.parametrize("code", [BEFORE + IMPORT + SHOW, IMPORT + BEFORE + SHOW])
def test_ddp_is_patched_whenever_it_is_imported(code: str, folder: Path) -> None:
    """Before or after."""
    assert run(code, folder) == ["True"]


def test_a_torch_that_makes_models_in_another_way_is_left_alone(folder: Path) -> None:
    """Its import goes well, and it is said that nothing is traced."""
    (folder / "torch" / "nn" / "parallel" / "distributed.py").write_text(
        "class DistributedDataParallel: pass"
    )
    done = python("-c", BEFORE + IMPORT + "print(D.__name__)", folder=folder)
    assert done.stdout == "DistributedDataParallel\n"
    assert done.stderr.startswith("this version of torch makes DDP models in a way that hooktrace")


def test_a_child_is_set_up_too(folder: Path) -> None:
    """It runs the sitecustomize that hooktrace's hides, and its import path is as without."""
    (folder / "sitecustomize.py").write_text("import sys; sys.was_customized = True")
    child = IMPORT + SHOW + "import sys; print(sys.was_customized, sys.path)"
    start = f"import subprocess\nsubprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
    path = f"os.environ['PYTHONPATH'] += os.pathsep + {str(folder)!r}\n"
    plain = run(path + start, folder)
    ours = run(path + BEFORE + start, folder)
    assert (plain[0], ours[0]) == ("False", "True")
    assert ours[1] == plain[1]


def test_an_environment_without_hooktrace_starts_as_ever(tmp_path: Path) -> None:
    """Without site-packages there is none; the folder leaves the import path in any case."""
    code = "import sys; print('sitecustomize' in sys.modules, [p for p in sys.path if 'hook' in p])"
    (tmp_path / "sitecustomize.py").write_text(Path(FOLDER, "sitecustomize.py").read_text())
    other = Path(sys.base_prefix, "bin", "python3")
    done = subprocess.run(
        [str(other) if other.exists() else sys.executable, "-c", code], cwd="/",
        env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True []\n", "")


def test_where_records_go(folder: Path) -> None:
    """Into a folder of each run, also in one second, unless the environment names an exporter."""
    code = BEFORE.replace("()", "('train', telemetry=True)")
    code += "print({k: v for k, v in os.environ.items() if 'HOOKTRACE' in k})\n"
    stopped = "import time; time.strftime = lambda _: 'now'\n"
    chosen, _other = {run(stopped + code, folder)[0] for _ in range(2)}
    assert f"'_HOOKTRACE_DEFAULT_DIR': '{folder}/runs/train-now-" in chosen
    assert "'HOOKTRACE_OPENTELEMETRY': '1'" in chosen
    asked = "os.environ['HOOKTRACE_RECORD_DIR'] = 'x'\n" + code
    assert run(asked, folder) == ["{'HOOKTRACE_RECORD_DIR': 'x'}"]


def test_a_limit_that_the_environment_asks_for_takes_the_place_of_the_scripts(folder: Path) -> None:
    """Also of newer torch's list of them; all else is passed on."""
    made = "print(D(3).caps, D(module=3, bucket_cap_mb_list=[1]).caps, D(3, None).caps)\n"
    asked = "os.environ['HOOKTRACE_BUCKET_CAP_MB'] = '2.5'\n"
    assert run(asked + BEFORE + IMPORT + made, folder) == [" ".join(["(2.5, None)"] * 3)]


def test_a_hook_that_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of all models; what cannot be is left out and named."""
    assert hook_asked() is None
    monkeypatch.setenv("HOOKTRACE_HOOK", "powersgd-rank4")
    found = hook_asked()
    assert found is not None
    assert found.name == "powersgd-rank4"
    monkeypatch.setenv("HOOKTRACE_HOOK", "fp17")
    assert hook_asked() is None
    assert "HOOKTRACE_HOOK=fp17 has no effect; use one of allreduce, " in caplog.text
