"""TensorBoard with this tree's plugin; what a wheel installs of it: ``docs/test_installs.py``.

made-up jobs --> logdir --> TensorBoard, first on its path the repository
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..distributed.harness import REPOSITORY
from ..exporters.processes import get, running, until
from ..ports import free_port


@contextmanager
def tensorboard(logdir: Path, log: Path, *, load_fast: bool = False) -> Iterator[str]:
    """Serve ``logdir`` with a stock TensorBoard; yields its address, and it ends with the block."""
    port = free_port()
    command = [
        *("env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", "tensorboard.main"),
        *("--logdir", str(logdir), "--host", "127.0.0.1", "--port", str(port)),
        f"--load_fast={str(load_fast).lower()}",
    ]
    with running(command, log):
        address = f"http://127.0.0.1:{port}"
        until(lambda: get(f"{address}/data/plugins_listing"), bool, log)
        yield address
