"""Hooks made of parts, on 2 real gloo ranks."""

from __future__ import annotations

import pytest

from tests.distributed import catalogue_scenarios
from tests.distributed.harness import Ranks

pytestmark = pytest.mark.slow


def test_encode_and_decode_make_a_hook(two: Ranks) -> None:
    """A bfloat16 encoding errs by its rounding, of a gradient and of the sum; it pickles."""
    for facts in two.run(catalogue_scenarios.encoded):
        assert set(facts) == {"mean", "sum"}
        for found in facts.values():
            assert 0 < found["error"] <= 2 * 2**-8
            assert found["names"] == {"encode_and_decode(halve, same)"}
