"""``hooktrace report --on`` and ``compare --on`` a real Dask cluster; Ray is in ``test_ray.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.cluster_report import expect_report_and_comparison
from tests.integrations.frameworks import needs_frameworks
from tests.integrations.rows import Framework, shows

pytestmark = [pytest.mark.slow, needs_frameworks]


DASK = Framework(
    "Dask", "`hooktrace report RUN --on dask://HOST:PORT`, `hooktrace compare A B --on ...`", "dask"
)


@shows(DASK, "reports and comparisons whose ranks its workers read")
def test_a_report_and_a_comparison_on_dask(tmp_path: Path) -> None:
    """Its workers read the ranks; the late one is found, and numbers are those of this machine."""
    expect_report_and_comparison("dask", tmp_path)
