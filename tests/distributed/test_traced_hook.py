"""What DDP calls in place of any hook."""

from __future__ import annotations

from tests.distributed import training_scenarios
from tests.distributed.harness import Ranks


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
