"""A process is set up before it imports torch; here torch is a package of three empty files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.test_run import python

DDP = """
class DistributedDataParallel:
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


BEFORE = "from hooktrace.integrations.start import begin, end\nbegin()\n"
IMPORT = "from torch.nn.parallel import DistributedDataParallel as D\n"
SHOW = "print(hasattr(D._ddp_init_helper, '__wrapped__'))\n"


@pytest.mark.parametrize("code", [BEFORE + IMPORT + SHOW, IMPORT + BEFORE + SHOW])
def test_ddp_is_patched_whenever_it_is_imported(code: str, folder: Path) -> None:
    """Before or after; and no class but DDP is looked at."""
    assert run(code, folder) == ["True"]


def test_a_torch_that_makes_models_in_another_way_is_left_alone(folder: Path) -> None:
    """Its import goes well, and it is said that nothing is traced."""
    (folder / "torch" / "nn" / "parallel" / "distributed.py").write_text(
        "class DistributedDataParallel: pass"
    )
    done = python("-c", BEFORE + IMPORT + "print(D.__name__)", folder=folder)
    assert done.stdout == "DistributedDataParallel\n"
    assert done.stderr.startswith("this version of torch makes DDP models in a way that hooktrace")


def test_the_end_gives_everything_back(folder: Path) -> None:
    """DDP, the import path of children and the finder, before the import and after it."""
    seen = "print(len(sys.meta_path), os.environ.get('PYTHONPATH'))\n"
    before, after, patched = run(seen + BEFORE + IMPORT + "end()\n" + seen + SHOW, folder)
    assert (after, patched) == (before, "False")
    before, after, patched = run(seen + BEFORE + "end()\n" + IMPORT + seen + SHOW, folder)
    assert (after, patched) == (before, "False")


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


def test_where_records_go(folder: Path) -> None:
    """Into a folder of the run's name, unless the environment names an exporter."""
    show = "print({k: v for k, v in os.environ.items() if 'HOOKTRACE' in k})\n"
    code = "from hooktrace.integrations.start import begin\nbegin('train', telemetry=True)\n" + show
    (chosen,) = run(code, folder)
    assert "'_HOOKTRACE_DEFAULT_DIR': 'runs/train-" in chosen
    assert "'HOOKTRACE_OPENTELEMETRY': '1'" in chosen
    (asked,) = run("os.environ['HOOKTRACE_RECORD_DIR'] = 'x'\n" + code, folder)
    assert asked == "{'HOOKTRACE_RECORD_DIR': 'x'}"
