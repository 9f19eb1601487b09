"""Staged hooks that fail: hook, bucket and stage are named."""

from __future__ import annotations

import pytest

from tests.distributed import failure_scenarios
from tests.distributed.harness import Ranks

STAGED_FAILURES = {
    "fails_in_compress": ("compress", "ValueError: boom"),
    "fails_on_the_wire": ("wire", "pad the tensor"),
    "fails_in_decompress": ("decompress", "ValueError: boom"),
    "yields_twice": ("decompress", "declare it with @staged(multi_round=True)"),
    "returns_nothing": ("decompress", "returned None; return the averaged gradients"),
    "fails_in_second_round": ("decompress", "ValueError: boom"),
}


@pytest.mark.slow
@pytest.mark.parametrize("hook", STAGED_FAILURES)
def test_a_failing_staged_hook_is_named(two: Ranks, hook: str) -> None:
    """Hook, bucket and stage are in the error out of backward(), and on the record."""
    stage, reason = STAGED_FAILURES[hook]
    for facts in two.run(failure_scenarios.failures):
        exception, message, anomalies, on_records = facts[hook]
        assert exception in ("HookError", "RuntimeError")
        assert f"hook '{hook}', bucket 0, stage {stage}: " in message
        assert reason in message
        assert [s for s, _ in anomalies] == [stage]
        assert anomalies[0][1].endswith("since a raising hook leaves DDP's reducer broken")
        assert len(on_records) == 1
        assert reason in on_records[0]
    for facts in two.run(failure_scenarios.untraced_failures):
        assert f"hook '{hook}', bucket 0, stage {stage}: " in facts[hook]
