"""The page's template: it is installed with the package, and fails where it names what is not."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from msgspec.structs import replace

import hooktrace
from hooktrace.analysis.report import page
from hooktrace.records import CompletedStep, ErrorRecord
from hooktrace.records.files import record_path
from hooktrace.testing.synthetic import SyntheticJob
from tests.analysis.report.jobs import QUIET, Change, report_of, write_changed

FOLDER = Path(page.__file__).with_name("templates")
PYPROJECT = Path(hooktrace.__file__).parents[1] / "pyproject.toml"


ERROR = ErrorRecord(
    relative_l2=0.01, cosine=1.0, max_absolute=0.1, flipped_share=0.0, reference_l2=3.0
)


def test_templates_are_installed_with_the_package() -> None:
    """A wheel has what pyproject says, and no template more would be missed before."""
    data = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]["package-data"]
    packed = {
        p for pattern in data["hooktrace.analysis.report"] for p in FOLDER.parent.glob(pattern)
    }
    assert packed == set(FOLDER.iterdir())


def test_a_name_that_is_not_there_fails() -> None:
    """And does not become an empty place on the page."""
    with pytest.raises(UndefinedError):
        page._PAGES.from_string("{{ report.headlime }}").render(report=object())


def test_what_is_said_beside_the_pictures_is_true(tmp_path: Path) -> None:
    """What an error is of, that of an average of zeros, and why nobody can be called late."""

    def erring(error: ErrorRecord) -> Change:
        def change(rank: int, completed: CompletedStep) -> CompletedStep:
            step, (first, *others) = completed
            return step, (replace(first, error=error), *others)

        return change

    alone = SyntheticJob(ranks=1, steps=10)
    for job, error, said in (
        (QUIET, ERROR, "Relative L2 error against a lossless average."),
        (QUIET, replace(ERROR, scope="local"), "against the rank's own gradients"),
        (QUIET, replace(ERROR, by_design=True), "which this hook is not meant to give"),
        (QUIET, replace(ERROR, relative_l2=math.inf), "infinite: the lossless average was 0"),
        (alone, ERROR, "One rank alone has a file"),
    ):
        write_changed(tmp_path, job, erring(error))
        for rank in range(job.ranks, QUIET.ranks):
            record_path(tmp_path, rank).unlink()
        text = page.page(report_of(tmp_path))
        assert said in text.replace("&#39;", "'")
    assert "clocks are not known" not in text
