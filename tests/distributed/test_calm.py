"""No hang is told of where there is none: real ranks, steps by the thousand, all sorts of waits.

``HOOKTRACE_TEST_CALM_STEPS=100000`` makes as many of it, in half an hour of a busy machine; with
``--log-cli-level=info`` it says what was done, and at what load.
"""

from __future__ import annotations

import logging
import os
from collections import Counter

import pytest

from tests.distributed.calm_scenarios import (
    DEADLINE_S,
    RANKS,
    STEPS,
    TROUBLES,
    calm,
    held_up_for_too_long,
)
from tests.distributed.harness import Ranks

logger = logging.getLogger(__name__)


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE_S + 120)
def test_no_hang_is_told_where_there_is_none() -> None:
    """And one at the end, which is one."""
    ranks = Ranks(RANKS)
    try:
        seen = ranks.run(calm)
    finally:
        ranks.close()
    done = sum((one.done for one in seen), start=Counter[str]())
    logger.info("%d steps, %.0f s, load %s, %s", STEPS, seen[0].seconds, os.getloadavg(), done)
    late = held_up_for_too_long(seen)
    untrue = [[hang.message for hang in one.calm if hang.step not in late] for one in seen]
    assert untrue == [[]] * RANKS
    assert set(done) == {trouble.__name__ for trouble in TROUBLES}
    for one in seen:
        assert {(hang.kind, hang.ranks) for hang in one.held_up} == {("busy", (1,))}
        assert one.held_up[-1].ended_after_ns is not None
