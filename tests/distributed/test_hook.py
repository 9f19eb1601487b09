"""Hooks that fail, and wrong results: hook, bucket and stage are named."""

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
"""Those of which untraced ones say the same."""

WRONG_RESULTS = {
    "opaque_raises": ("hook", "KeyError: 'opaque boom'"),
    "opaque_returns_none": ("hook", "returned None and not a future; return a torch.futures.Futu"),
    "opaque_future_fails": ("pending", "ValueError: future boom"),
    "own_future": ("pending", "a list of 1, as a collective's own future holds it; return the ten"),
    "nothing": ("pending", "the hook returned None; return the averaged gradients"),
    "number": ("pending", "the hook returned a float; return the averaged gradients"),
    "integers": ("pending", "the result is int64 and the gradients are float32; convert it back"),
    "booleans": ("pending", "the result is bool and the gradients are float32; convert it back"),
    "complex": ("pending", "the result is complex64 and the gradients are float32; convert"),
    "short": ("pending", "the result has 19 elements and the bucket 20; return one value for each"),
    "staged_offset": ("decompress", "begins at offset 20 of its storage"),
    "rounds_in_integers": ("decompress", "the result is int64 and the gradients are float32"),
}
"""DDP would crash, or train on wrong gradients; more in ``staging/test_hook_checks.py``."""


@pytest.mark.slow
@pytest.mark.parametrize("hook", [*STAGED_FAILURES, *WRONG_RESULTS])
def test_a_failing_hook_is_named_before_ddp_sees_its_result(two: Ranks, hook: str) -> None:
    """Hook, bucket, stage and remedy are in the error out of backward(), and on the record."""
    stage, reason = (STAGED_FAILURES | WRONG_RESULTS)[hook]
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
        named = f"hook '{hook}', bucket 0, stage {stage}: " in facts.get(hook, "")
        assert named == (hook in STAGED_FAILURES)
