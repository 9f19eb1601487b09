"""The error's numbers against closed forms."""

from __future__ import annotations

import math

import pytest
import torch

from hooktrace.probes.compare import digest, finite_parts, measure, numbers, square_sum


def error_of(result: torch.Tensor, reference: torch.Tensor, lengths: list[int] | None = None):  # type: ignore[no-untyped-def]
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
    assert error.max_absolute == 8
    assert error.flipped_share == 0.25
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    """Sums are taken in float64: large float16 values do not overflow."""
    reference = torch.full((100,), 60_000.0).to(dtype)
    error = error_of(torch.zeros_like(reference), reference)
    assert (error.relative_l2, error.cosine) == (1.0, 0.0)
    assert error.reference_l2 == pytest.approx(float(reference[0]) * 10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_measuring_changes_nothing(dtype: torch.dtype) -> None:
    """DDP gets the very same result afterwards, and a float64 one is not even copied."""
    result, reference = torch.randn(2, 70_000).to(dtype)
    before = result.clone(), reference.clone()
    measure(result, reference, [69_999, 1])
    finite_parts(result, [69_999, 1])
    digest(result)
    square_sum(result)
    assert torch.equal(result, before[0])
    assert torch.equal(reference, before[1])


@pytest.mark.parametrize(
    ("result", "reference", "relative", "cosine"),
    [(0.0, 0.0, 0.0, 1.0), (1.0, 0.0, math.inf, 0.0), (0.0, 1.0, 1.0, 0.0)],
)
def test_zeros(result: float, reference: float, relative: float, cosine: float) -> None:
    """Where a norm is 0 the numbers are what the docstring says."""
    error = error_of(torch.full((3,), result), torch.full((3,), reference))
    assert (error.relative_l2, error.cosine) == (relative, cosine)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_stands_for_what_is_not_one(bad: float) -> None:
    """NaN or inf on either side leave no error; the reference's norm stays where it is known."""
    good = torch.ones(4)
    broken = torch.tensor([1.0, bad, 1.0, -bad])
    error = error_of(broken, good)
    assert (error.relative_l2, error.cosine, error.max_absolute) == (None, None, None)
    assert error.reference_l2 == 2
    assert error_of(good, broken).reference_l2 is None


def test_an_empty_bucket() -> None:
    """No parameters, no error."""
    error = numbers(measure(torch.zeros(0), torch.zeros(0), []).tolist(), 0)
    assert (error.relative_l2, error.cosine, error.flipped_share) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_digest_sees_every_bit_and_every_place(dtype: torch.dtype) -> None:
    """A last bit, a sign of zero, two elements swapped, and nothing at all."""
    torch.manual_seed(0)
    result = torch.randn(70_001).to(dtype)
    result[5] = 0
    same = digest(result.clone())
    assert torch.equal(digest(result), same)
    for change in ("bit", "zero", "swap"):
        other = result.clone()
        if change == "bit":
            other[70_000] = (
                torch.nextafter(other[70_000], other[70_000] + 1)
                if (dtype != torch.float16)
                else other[70_000] * (1 + 2**-9)
            )
        elif change == "zero":
            other[5] = -0.0
        else:
            other[[1, 66_000]] = result[[66_000, 1]]
        assert not torch.equal(digest(other), same), change


def test_the_sum_of_squares_is_taken_in_float64() -> None:
    """Of any shape and type, of nothing at all."""
    assert square_sum(torch.full((2, 3), 300.0, dtype=torch.float16)) == 540_000
    assert square_sum(torch.zeros(0)) == 0
