"""How far a hook's result is from what it would be if nothing were lost."""

from __future__ import annotations

import math

import msgspec
from msgspec.structs import force_setattr


class ParameterError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The error of one parameter's part of a bucket; numbers as in ``ErrorRecord``."""

    name: str
    relative_l2: float | None
    cosine: float | None
    max_absolute: float | None

    def __post_init__(self) -> None:
        _restore_infinity(self)


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How far a hook's result is from the lossless average of the same gradients.

    With x the result and r the average: ``relative_l2`` is |x - r| / |r| (inf where only r is 0),
    ``cosine`` is <x, r> / (|x| |r|), ``max_absolute`` is max |x - r|, ``flipped_share`` the share
    of elements with x r < 0, and ``reference_l2`` is |r|.  ``None``: NaN or inf made it
    meaningless.  ``residual_l2``: the norm of what error feedback keeps of the bucket, where the
    hook's state has an ``error_dict`` as PowerSGD's.  ``worst``: the parameters with the largest
    relative errors, worst first.  ``by_design``: the hook's results are not meant to be the average
    of all ranks (``local=True``).

    JSON has no word for infinity: a file says null, and where ``max_absolute`` is known a
    ``relative_l2`` that is not is infinite.
    """

    relative_l2: float | None
    cosine: float | None
    max_absolute: float | None
    flipped_share: float | None
    reference_l2: float | None
    residual_l2: float | None = None
    worst: tuple[ParameterError, ...] = ()
    by_design: bool = False

    def __post_init__(self) -> None:
        _restore_infinity(self)

    @property
    def vnmse(self) -> float | None:
        """The error as recent papers give it, |x - r|^2 / |r|^2; the square of ``relative_l2``."""
        return vnmse(self.relative_l2)


def vnmse(relative_l2: float | None) -> float | None:
    """Return the square, which is infinite where it is too large for a number."""
    return None if relative_l2 is None else relative_l2 * relative_l2


def _restore_infinity(error: ErrorRecord | ParameterError) -> None:
    if error.relative_l2 is None and error.max_absolute is not None:
        force_setattr(error, "relative_l2", math.inf)
