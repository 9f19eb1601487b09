"""The notebook of examples/ runs as it is, and shows what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..distributed.harness import REPOSITORY

NOTEBOOK = REPOSITORY / "examples" / "reading_a_run.ipynb"


def test_outputs_are_not_committed() -> None:
    """A reader makes them; a diff of them says nothing."""
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    codes = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not [cell for cell in codes if cell["outputs"] or cell["execution_count"]]


@pytest.mark.slow
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel of its own: the picture is in it, and the late rank is found."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    nbformat.validate(notebook)
    (picture,) = [html for html in _outputs(notebook, "text/html") if "<img" in html]
    assert "data:image/svg+xml;base64," in picture
    waited_for = next(text for text in _outputs(notebook, "text/plain") if "waited_for" in text)
    assert waited_for.splitlines()[1].split()[0] == "2"
    said = "".join(
        out.text for cell in notebook.cells for out in cell.get("outputs", ()) if "text" in out
    )
    assert "Rank 2 (host-0) is late" in said


def _outputs(notebook: Any, kind: str) -> list[str]:
    found = (out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", ()))
    return [data[kind] for data in found if kind in data]
