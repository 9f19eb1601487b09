"""A calibrated run that several tests read."""

from __future__ import annotations

import pytest

from hooktrace.analysis.timeline import Timeline

from .calibrated_run import written
from .truth import Truth


@pytest.fixture(scope="package")
def truth() -> Truth:
    """Return what the calibrated run is like."""
    return Truth(noise=0.0)


@pytest.fixture(scope="package")
def calibrated(truth: Truth, tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """Return its files, read."""
    return written(truth, tmp_path_factory.mktemp("calibrated"))
