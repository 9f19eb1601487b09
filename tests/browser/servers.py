"""A wheel of this tree, a real run, and TensorBoard serving one from the other.

    repository --pip wheel--> wheel --unpacked--> site folder, first on TensorBoard's path
    hooktrace demo, 4 ranks --> <logdir>/real

So the plugin comes from what the wheel holds, with its entry point, wherever the tests run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..distributed.harness import REPOSITORY
from ..exporters.processes import get, running, until
from ..ports import free_port
from .page import Timeline

RANKS = 4
STEPS = 8
_DEADLINE_S = 200


def copy_source(folder: Path) -> Path:
    """Copy what is installed from, as building leaves files beside it; return the folder."""
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(REPOSITORY / "hooktrace", folder / "hooktrace", ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, folder)
    return folder


def build_site(folder: Path) -> None:
    """Build the wheel and unpack it into ``site`` there, which belongs on the path."""
    wheels, site, source = folder / "wheels", folder / "site", copy_source(folder / "source")
    command = [
        *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"),
        *("-w", str(wheels), str(source)),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
    assert run.returncode == 0, run.stderr
    (wheel,) = wheels.glob("hooktrace-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)


def real_run(logdir: Path) -> None:
    """Train on four ranks and leave their files in ``logdir``."""
    command = [
        *(sys.executable, "-m", "hooktrace", "demo", "--ranks", str(RANKS)),
        *("--steps", str(STEPS), "--out", str(logdir), "--port", "0"),
    ]
    # Four ranks on few cores: one thread each.
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


@contextmanager
def tensorboard(site: Path, logdir: Path, log: Path, *, load_fast: bool = False) -> Iterator[str]:
    """Serve ``logdir`` with a stock TensorBoard; yields its address, and it ends with the block."""
    port = free_port()
    command = [
        *("env", f"PYTHONPATH={site}", sys.executable, "-m", "tensorboard.main"),
        *("--logdir", str(logdir), "--host", "127.0.0.1", "--port", str(port)),
        f"--load_fast={str(load_fast).lower()}",
    ]
    with running(command, log):
        address = f"http://127.0.0.1:{port}"
        until(lambda: get(f"{address}/data/plugins_listing"), bool, log)
        yield address


@contextmanager
def one_page(site: Path, browser: Any, logs: Path, run: str) -> Iterator[Timeline]:
    """Serve the runs in ``logs`` and open one of them; at the end no script has failed."""
    with tensorboard(site, logs, logs.with_name(f"{logs.name}.log")) as address:
        context = browser.new_context(viewport={"width": 1300, "height": 800})
        page = Timeline(context.new_page(), address)
        page.choose(run)
        yield page
        assert page.page_errors == []
        context.close()
