"""The plan: how often a job's nodes tell, and of which steps, so that the hub can take it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hooktrace.ranks.whole_job.messages import Plan, next_plan


def test_a_small_job_tells_every_step_each_second() -> None:
    """Also at many steps a second."""
    assert next_plan(Plan(), 8, 75.0) == Plan(1.0, 1)


def test_a_large_job_tells_more_rarely() -> None:
    """10,000 ranks on 1,250 hosts: every 10 s, and at two steps a second of every fourth."""
    assert next_plan(Plan(), 1250, 0.5) == Plan(10.0, 1)
    assert next_plan(Plan(), 1250, 2.0) == Plan(10.0, 4)


@given(st.integers(1, 20_000), st.floats(0, 1e4), st.sampled_from([1, 2, 8, 1 << 20]))
def test_the_hub_can_take_it_and_the_plan_stays(senders: int, rate: float, every: int) -> None:
    """No more than 625 parts of steps a second, whatever was before; asked again it is kept."""
    plan = next_plan(Plan(1.0, every), senders, rate)
    assert senders * rate / plan.every <= 625
    assert senders / plan.interval_s <= max(125, senders / 20)
    assert next_plan(plan, senders, rate) == plan
