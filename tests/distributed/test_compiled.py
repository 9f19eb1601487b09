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
    """The same gradients; a tracer says what it cannot see, since it is given no bucket."""
    for facts in two.run(catalogue_scenarios.compiled):
        traced = {name: facts.pop(name) for name in catalogue_scenarios.TRACED}
        assert traced == dict.fromkeys(traced, (0.0, ["compiled_reducer"]))
        exact = {name: value for name, value in facts.items() if "QUANTIZE" not in name}
        assert exact == dict.fromkeys(exact, 0.0)
        assert len(exact) == 5
        assert facts["QUANTIZE_PER_TENSOR"] < QUANTISATION_ERROR
        assert facts["QUANTIZE_PER_CHANNEL"] < QUANTISATION_ERROR


def test_instrument_takes_a_compiled_model(two: Ranks) -> None:
    """Its buckets are traced under the names of the model that was compiled; no bit changes."""
    names = {f"{layer}.{kind}" for layer in range(3) for kind in ("weight", "bias")}
    for facts in two.run(training_scenarios.compiled_models):
        assert facts == {
            kind: {
                "same bits": True,
                "steps": [(hook, 1), *[(hook, 3)] * 3],
                "anomalies": [],
                "names": names,
            }
            for kind, hook in (("fp16", "fp16_compress_hook"), ("none", "ddp_allreduce"))
        }
