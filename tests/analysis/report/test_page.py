"""The page's template: it is installed with the package, and fails where it names what is not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from jinja2 import UndefinedError

import hooktrace
from hooktrace.analysis.report import page
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.jobs import report_of

FOLDER = Path(page.__file__).with_name("templates")
PYPROJECT = Path(hooktrace.__file__).parents[1] / "pyproject.toml"


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


def test_what_is_said_in_place_of_a_picture_is_true(tmp_path: Path) -> None:
    """Why nobody can be called late."""
    write_job(SyntheticJob(ranks=1, steps=10), tmp_path)
    text = page.page(report_of(tmp_path))
    assert "One rank alone has a file" in text
    assert "clocks are not known" not in text
