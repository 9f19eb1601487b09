"""What is said of a rank that others wait for: a part of ``facts.py``."""

from __future__ import annotations

import msgspec


class LateAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where ranks of another group wait for a late rank most, and what they wait a step.

    ``members``: all ranks of that collective.
    """

    bucket: int
    members: tuple[int, ...]
    waiting: tuple[int, ...]
    margin_ns: float


class LateRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that is ready last.

    ``bucket``: where it is furthest behind the next rank; of the steps, ``share`` have it last
    there.  ``waiting``: the ranks that never have the bucket's result before it has it ready.
    ``margin_ns``: by how much it is later than the next one of them, the mean over all steps, those
    in which it is not last counting as 0: what they wait for.  ``uncertainty_ns``: of
    the difference of two ranks' times.  ``lag_ns``: after the median rank, at that bucket.
    ``since``: the bucket at which it falls behind; the first one where it comes late already.
    ``held_ns``: how much longer than others' its hook's calls before ``bucket`` take.
    ``is_of_means``: the last two are of the others' mean, and not their median.
    Of a sharded model ``margin_ns`` is the sum over the ``units`` collectives that the rank comes
    to last so often, and ``since`` the collective before ``bucket``.  Where collectives have a part
    of the ranks, ``members`` are those of ``bucket``, ``since`` is the last one before it in which
    all of these were together (``is_since_step_before``: of the step before), ``margin_ns`` is of
    the rank that waits longest, and ``elsewhere`` says where ranks of other groups wait.
    """

    rank: int
    bucket: int
    share: float
    margin_ns: float
    uncertainty_ns: float
    lag_ns: float
    since: int
    waiting: tuple[int, ...]
    held_ns: float
    is_late_from_the_start: bool
    is_of_means: bool = False
    units: int = 0
    members: tuple[int, ...] = ()
    is_since_step_before: bool = False
    elsewhere: tuple[LateAt, ...] = ()
