"""The error's numbers against closed forms."""

from __future__ import annotations

import math
from math import inf, nan

import pytest
import torch

from hooktrace.probes.compare import digest, finite_parts, measure, numbers, square_sum
from hooktrace.records import ErrorRecord

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def error_of(
    result: torch.Tensor, reference: torch.Tensor, lengths: list[int] | None = None
) -> ErrorRecord:
    """Return the error of a whole bucket."""
    sums = measure(result, reference, lengths or [len(result)])
    return numbers(sums.tolist(), len(result))


def test_by_hand() -> None:
    """Two elements right, one too large by 2, one with the wrong sign."""
    reference = torch.tensor([1.0, 2.0, 2.0, -4.0])
    result = torch.tensor([1.0, 2.0, 4.0, 4.0])
    error = error_of(result, reference, [1, 3])
    assert error.relative_l2 == pytest.approx(math.sqrt((4 + 64) / 25))
    assert error.cosine == pytest.approx((1 + 4 + 8 - 16) / math.sqrt(37) / 5)
    assert (error.max_absolute, error.flipped_share) == (8, 0.25)
    assert error.reference_l2 == pytest.approx(5)


def test_parts_add_up_whatever_their_lengths() -> None:
    """Blocks, parts of one element and empty ones; the bucket's error is that of one part."""
    torch.manual_seed(0)
    reference, result = torch.randn(200_003), torch.randn(200_003)
    lengths = [1, 0, 65_536, 70_000, 64_465, 1]
    whole, parts = error_of(result, reference), error_of(result, reference, lengths)
    assert whole.relative_l2 == pytest.approx(parts.relative_l2, rel=1e-12)
    assert whole.cosine == pytest.approx(parts.cosine, rel=1e-9)
    assert (whole.max_absolute, whole.flipped_share) == (parts.max_absolute, parts.flipped_share)
    exact = (result.double() - reference.double()).norm() / reference.double().norm()
    assert whole.relative_l2 == pytest.approx(exact.item(), rel=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_measuring_changes_nothing(dtype: torch.dtype) -> None:
    """DDP gets the very same result afterwards; sums in float64 hold large float16 values."""
    result, reference = torch.randn(2, 70_000).to(dtype)
    before = result.clone(), reference.clone()
    measure(result, reference, [69_999, 1])
    finite_parts(result, [69_999, 1])
    digest(result)
    square_sum(result)
    assert torch.equal(result, before[0])
    assert torch.equal(reference, before[1])
    assert square_sum(torch.full((2, 3), 300.0, dtype=torch.float16)) == 540_000
    assert square_sum(torch.zeros(0)) == 0
    large = torch.full((100,), 60_000.0).to(dtype)
    assert error_of(large * 0, large).reference_l2 == pytest.approx(float(large[0]) * 10)


@pytest.mark.parametrize(
    ("result", "reference", "expected"),
    [
        ([0.0] * 3, [0.0] * 3, (0.0, 1.0, 0.0)),
        ([1.0] * 4, [0.0] * 4, (inf, 0.0, 0.0)),
        ([0.0] * 4, [1.0] * 4, (1.0, 0.0, 2.0)),
        ([], [], (0.0, 1.0, 0.0)),
        *(([1.0, bad, 1.0, -bad], [1.0] * 4, (None, None, 2.0)) for bad in (nan, inf, -inf)),
        ([1.0] * 4, [1.0, nan, 1.0, inf], (None, None, None)),
    ],
)
def test_what_stands_where_there_is_no_number(
    result: list[float], reference: list[float], expected: tuple[float | None, ...]
) -> None:
    """Norms of 0, no parameters, NaN or inf: relative error, cosine, and the reference's norm."""
    error = error_of(torch.tensor(result), torch.tensor(reference))
    assert (error.relative_l2, error.cosine, error.reference_l2) == expected


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_digest_sees_every_bit_and_every_place(dtype: torch.dtype) -> None:
    """A last bit, a sign of zero, two elements swapped, and nothing at all."""
    torch.manual_seed(0)
    result = torch.randn(70_001).to(dtype)
    result[5] = 0
    bit, zero, swapped = (result.clone() for _ in range(3))
    bit[-1:].view(torch.uint8)[0] ^= 1
    zero[5] = -0.0
    swapped[[1, 66_000]] = result[[66_000, 1]]
    same = digest(result.clone())
    assert torch.equal(digest(result), same)
    assert not any(torch.equal(digest(other), same) for other in (bit, zero, swapped))
