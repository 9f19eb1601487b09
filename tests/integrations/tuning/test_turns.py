"""Which hook a job has failed by; on real ranks: distributed/test_tune.py and test_hosts.py."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.integrations.tuning.turns import to_blame

GONE = ["fp16", True, "RuntimeError: Connection closed by peer"]


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        ([GONE, ["fp16", False, "ValueError: no"]], {"fp16": "it failed: ValueError: no"}),
        ([GONE, None], {}),
        ([GONE], {}),
        ([GONE, GONE], {"fp16": f"it failed: {GONE[2]}"}),
        ([["as it is", False, "ValueError: no"]], {}),
        ([None, None], {}),
    ],
    ids=["its own", "of the script", "a rank was killed", "alike", "the job's own", "none"],
)
def test_the_hook_to_blame(said: Any, blamed: dict[str, str]) -> None:
    """Where a rank is gone, a collective fails on the others, whoever's turn it is."""
    assert to_blame(said, 2) == blamed
