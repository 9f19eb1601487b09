"""What a hook lost, as files hold it."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.records import ErrorRecord
from tests.exporters import records_sample as sample

from .text import decode, encode


def test_infinity_and_what_is_not_finite() -> None:
    """JSON has no word for them: an error that is infinite comes back, what is NaN is unknown."""
    error = ErrorRecord(
        relative_l2=float("inf"), cosine=0.0, max_absolute=2.0, flipped_share=0.0,
        reference_l2=0.0, residual_l2=float("nan"),
    )  # fmt: skip
    bucket = replace(sample.make_bucket(), error=error)
    (found,) = decode(encode(sample.make_run(), [(sample.make_step()[0], (bucket,))])).buckets
    assert found.error == replace(error, residual_l2=None)
