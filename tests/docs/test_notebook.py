"""The notebook of examples/ runs as it is, and finds what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..distributed.harness import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "reading_a_run.ipynb"
CELLS = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
CODES = [cell for cell in CELLS if cell["cell_type"] == "code"]


def test_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One cell after another, as a kernel runs them: the late rank is found."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in CODES:
        exec("".join(cell["source"]), names)
    assert names["waits"].waited_for.value_counts().index[0] == 2
    assert "Rank 2 (host-0) is late" in capsys.readouterr().out
