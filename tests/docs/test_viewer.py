"""An installation without torch, as docs/quickstart.md describes it, reads files.

It is simulated: in a process of this environment no package can be imported but the ones that the
page names, what they require, and hooktrace.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from hooktrace.testing.synthetic import SyntheticJob, write_job

from ..distributed.harness import REPOSITORY
from ..exporters.processes import get_json, running, until
from .pages import Page

pytestmark = pytest.mark.slow

BLOCKED = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, Missing())
runpy.run_module({module!r}, run_name="__main__")
"""


def named() -> list[str]:
    """Return what the page has people install by hand."""
    lines = [c for c in Page(REPOSITORY / "docs" / "quickstart.md").codes if "tensorboard" in c]
    (line,) = [line for line in lines if line.startswith("pip install ")]
    return line.split()[2:]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_requirements(names: list[str]) -> set[str]:
    """Return distributions and all that they require, but for extras."""
    found: set[str] = set()
    wanted = list(names)
    while wanted:
        name = canonical(wanted.pop())
        if name not in found:
            found.add(name)
            required = metadata.requires(name) if _is_installed(name) else None
            plain = [text for text in required or () if "extra ==" not in text]
            wanted += [re.split(r"[^\w.-]", text)[0] for text in plain]
    return found


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False  # of another platform or Python
    return True


def program(module: str) -> list[str]:
    """Return how to run a module where nothing else is installed."""
    present = with_requirements(named()) | {"hooktrace"}
    missing = {
        package
        for package, owners in metadata.packages_distributions().items()
        if not {canonical(owner) for owner in owners} & present
    }
    assert {"torch", "opentelemetry", "prometheus_client", "pytest"} <= missing
    return [sys.executable, "-c", BLOCKED.format(missing=missing, module=module)]


def hooktrace(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program("hooktrace"), *arguments], cwd=folder, capture_output=True, text=True,
        timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the record files of a made-up run."""
    made = tmp_path_factory.mktemp("viewer")
    write_job(SyntheticJob(ranks=2, error=0.01), made / "run")
    return made


@pytest.mark.parametrize(
    "arguments", [("report", "run", "--html", "page.html"), ("export", "run", "--out", "a.json")]
)
def test_files_are_read(arguments: tuple[str, ...], folder: Path) -> None:
    """To the end, with the file that is asked for."""
    result = hooktrace(folder, *arguments)
    assert result.returncode == 0, result.stderr
    assert (folder / arguments[-1]).stat().st_size > 10_000


def test_hooks_are_listed(folder: Path) -> None:
    """Their names are there without their code."""
    assert "powersgd" in hooktrace(folder, "hooks").stdout


@pytest.mark.parametrize("command", [("demo",), ("check", "--standard"), ("bench",)])
def test_commands_that_train_say_what_is_missing(command: tuple[str, ...], folder: Path) -> None:
    """In one line, with the remedy, and not by a traceback."""
    result = hooktrace(folder, *command)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"hooktrace {command[0]}: torch is not installed here")
    assert line.endswith("pip install torch")


def test_tensorboard_has_the_tab(folder: Path) -> None:
    """Comm Timeline is among its plugins."""
    log = folder / "tensorboard.log"
    command = [*program("tensorboard.main"), "--logdir", str(folder), "--port", "0"]

    def base() -> str:
        found = re.search(r"http://\S+:\d+/", log.read_text())
        return found[0] if found else ""

    with running(["env", f"PYTHONPATH={REPOSITORY}", *command], log):
        url = until(base, bool, log)
        assert "hooktrace" in until(lambda: get_json(f"{url}data/plugins_listing"), bool, log)
