"""Every kind of collective, in hooks of many rounds."""

from __future__ import annotations

import pytest

from tests.distributed import training_scenarios
from tests.distributed.harness import Ranks


@pytest.mark.slow
def test_multi_round_hooks_keep_their_order(world: Ranks) -> None:
    """Four rounds, many buckets, random delays: right results in every mode, on 2 and 4 ranks."""
    for facts in world.run(training_scenarios.multi_round):
        # A sum of 4 ranks in another order may differ in the last bits of values of about 100.
        bound = 0.0 if world.count == 2 else 1e-4
        assert set(facts["errors"]) == set(training_scenarios.MODES)
        assert max(facts["errors"].values()) <= bound
        assert facts["two models"] <= bound
        kinds = ["reduce_scatter", "all_gather", "all_to_all", "broadcast"]
        for bucket in facts["buckets"]:
            wire = [s for s in bucket.stages if s.name == "wire"]
            assert [s.collective for s in wire] == kinds
            assert bucket.wire_bytes == sum(s.wire_bytes for s in wire)
