"""What all processes of ``pytest -n`` use and one of them makes: the first that asks for it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` was called with, in whichever process; it is to be read only.

    Others wait meanwhile.  What ``make`` raises is raised here, and the next that asks tries again.
    """
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # a process has a folder of its own in that of the run
    made, is_made = folder / name, folder / f"{name}.made"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_made.exists():
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            make(made)
            is_made.touch()
    return made
