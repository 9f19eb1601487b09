"""The compiled python reducer, on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import catalogue_scenarios, training_scenarios
from tests.distributed.harness import Ranks
from tests.versions import COMPILES_GENERATORS

pytestmark = pytest.mark.slow


QUANTISATION_ERROR = 0.02
"""Of one element at most half a step, 1/510 of the range; the norm's error is smaller than this."""


@pytest.mark.skipif(not COMPILES_GENERATORS, reason="dynamo of this torch fails on generators")
def test_single_round_hooks_run_compiled(two: Ranks) -> None:
    """The compiled python reducer gives the same gradients."""
    for facts in two.run(catalogue_scenarios.compiled):
        exact = {name: value for name, value in facts.items() if "QUANTIZE" not in name}
        assert exact == dict.fromkeys(exact, 0.0)
        assert len(exact) == 5
        assert facts["QUANTIZE_PER_TENSOR"] < QUANTISATION_ERROR
        assert facts["QUANTIZE_PER_CHANNEL"] < QUANTISATION_ERROR


@pytest.mark.slow
def test_the_compiled_reducer(two: Ranks) -> None:
    """A tuple in place of a bucket: results are right, and the tracer says what it cannot see."""
    for facts in two.run(training_scenarios.compiled_reducer):
        assert facts == {
            "staged": (0.0, ["compiled_reducer"]),
            "opaque": (0.0, ["compiled_reducer"]),
        }


def test_instrument_takes_a_compiled_model(two: Ranks) -> None:
    """Its buckets are traced under the names of the model that was compiled; no bit changes."""
    names = {f"{layer}.{kind}" for layer in range(3) for kind in ("weight", "bias")}
    for facts in two.run(training_scenarios.compiled_models):
        for backend in ("eager", "aot_eager"):
            for name, hook in (("fp16", "fp16_compress_hook"), ("no", "ddp_allreduce")):
                assert facts.pop(f"{backend}, {name} hook") == {
                    "same bits": True,
                    "steps": [(hook, 1), *[(hook, 3)] * 3],
                    "anomalies": [],
                    "names": names,
                }
        assert not facts
