"""``hooktrace report --on`` and ``compare --on`` a real cluster, of two workers on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import run

SCRIPT = REPOSITORY / "tests" / "integrations" / "scripts" / "clusters.py"


def expect_report_and_comparison(kind: str, tmp_path: Path) -> None:
    """Its workers read the ranks: the late one is found, and runs differ as they do locally."""
    write_job(SyntheticJob(ranks=6, steps=60), tmp_path / "plain")
    write_job(SyntheticJob(ranks=6, steps=60, late_ms={4: 12.0}), tmp_path / "late")
    report, there, here = _answers(
        run(
            [
                SCRIPT,
                kind,
                "report late --json --on {}",
                "compare plain late --json --on {}",
                "compare plain late --json --on local:1",
            ],
            tmp_path,
        )
    )
    assert report["ranks"] == 6
    assert [one["rank"] for one in report["models"][0]["facts"]["late"]] == [4]
    assert there == here
    (found,) = there["comparisons"]
    assert found["b"]["runs"][0]["from_summaries"]
    assert found["quantities"][0]["difference"]["verdict"] == "differs"


def _answers(said: str) -> Iterator[Any]:
    """Yield the JSON that each command printed, whatever an engine says between them."""
    while '{\n  "schema"' in said:
        answer, end = json.JSONDecoder().raw_decode(said, said.index('{\n  "schema"'))
        yield answer
        said = said[end:]
