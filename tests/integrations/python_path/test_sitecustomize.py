"""The file by which children are set up harms no other Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hooktrace.integrations.python_path

FOLDER = Path(hooktrace.integrations.python_path.__file__).parent


def test_an_environment_without_hooktrace_starts_as_ever(tmp_path: Path) -> None:
    """Without site-packages there is none; the folder leaves the import path in any case."""
    code = "import sys; print('sitecustomize' in sys.modules, [p for p in sys.path if 'hook' in p])"
    folder = tmp_path / "path"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text((FOLDER / "sitecustomize.py").read_text())
    other = Path(sys.base_prefix, "bin", "python3")
    done = subprocess.run(
        [str(other) if other.exists() else sys.executable, "-c", code], cwd=tmp_path,
        env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True []\n", "")
