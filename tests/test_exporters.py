"""Backends get of each job what they got before; how to change that: ``exporters/golden.py``."""

from __future__ import annotations

import pytest

from hooktrace.exporters.base import needing
from tests.exporters.golden import HERE, JOBS, path_of, told_of


@pytest.mark.parametrize("name", JOBS)
def test_what_backends_get_of_a_job(name: str) -> None:
    """A difference is shown as they will have it."""
    assert told_of(JOBS[name]).splitlines() == path_of(name).read_text("utf-8").splitlines()


def test_each_file_has_its_job() -> None:
    """Nothing is left of jobs that went."""
    assert {path.name for path in HERE.iterdir()} == {path_of(name).name for name in JOBS}


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(ImportError) as caught, needing("papyrus-client", "Papyrus"):
        import papyrus  # type: ignore[import-not-found] # noqa: F401
    assert str(caught.value) == (
        "the Papyrus exporter needs papyrus-client (No module named 'papyrus'); "
        "pip install 'hooktrace[exporters]'"
    )
