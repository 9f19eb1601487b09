"""What is said of a hook's calls; more jobs are in ``golden/``."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hooktrace.analysis.report.facts import ModelFacts
from hooktrace.analysis.report.rules_time import hook_holds_the_thread
from hooktrace.testing.synthetic import write_job
from tests.analysis.jobs import QUIET
from tests.analysis.report.jobs import facts_of


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    """A hook whose calls hold up backward."""
    folder = tmp_path_factory.mktemp("quiet")
    write_job(QUIET, folder)
    facts = facts_of(folder)
    buckets = tuple(
        replace(one, call_ns=30e6, stages={"compress": 5e6, "turn": 50e6})
        for one in facts.buckets[-2:]
    )
    return replace(facts, buckets=buckets)


@pytest.mark.parametrize(
    ("hook", "stages", "evidence", "remedy"),
    [
        ("powerSGD_hook", {"compress": 5e6, "turn": 5e7}, "at most 5.00 ms of it is", "See in"),
        ("powerSGD_hook", {"compress": 25e6}, "at most 25.0 ms of it is compress", "Compress with"),
        ("ddp_allreduce", {"compress": 25e6}, "at most 25.0 ms of it is compress", "See in"),
        ("my_hook", {"hook": 30e6}, "what it does in them is not seen", "To see it, "),
    ],
)  # fmt: skip
def test_what_calls_hold_the_thread_for(
    quiet: ModelFacts, hook: str, stages: dict[str, float], evidence: str, remedy: str
) -> None:
    """But for the last, which ends after backward; a turn is not called compression."""
    buckets = tuple(replace(one, stages=stages) for one in quiet.buckets)
    (found,) = hook_holds_the_thread(replace(quiet, hook=hook, buckets=buckets))
    assert found.gain_ns == 30e6
    assert found.evidence[0].startswith(evidence)
    assert found.remedy.startswith(remedy)
