"""What DDP calls in place of any hook."""

from __future__ import annotations

from tests.distributed import training_scenarios
from tests.distributed.harness import Ranks


def test_tracing_leaves_gradients_as_they_are(two: Ranks) -> None:
    """Of a staged, a multi-round and an opaque hook, bit for bit."""
    for facts in two.run(training_scenarios.traced_alike):
        assert set(facts) == {"fp16_compress_hook", "every_collective", "allreduce_hook"}
        for name, checks in facts.items():
            assert checks == dict.fromkeys(checks, True), name


def test_hooks_of_any_shape_are_accepted(two: Ranks) -> None:
    """Functions, methods, partials, objects and lambdas work, keep a name, pickle if they can."""
    for facts in two.run(training_scenarios.opaque_shapes):
        assert facts == {
            "function": (True, "allreduce_hook", True),
            "annotated": (True, "annotated", True),
            "method": (True, "method", True),
            "partial": (True, "method", True),
            "object": (True, "Doubler", True),
            "lambda": (True, "<lambda>", False),
        }


def test_a_model_with_a_traced_hook_pickles(two: Ranks) -> None:
    """The copy trains the same, and reports to the default tracer."""
    assert two.run(training_scenarios.pickled_model) == [[True, True, True]] * 2
