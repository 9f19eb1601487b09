"""What a calibration measured on one rank: when gradients become ready, what each hook would cost.

All times are host times of the rank's clock (``time.perf_counter_ns``), or durations, in ns.
"""

from __future__ import annotations

import msgspec

from .base import BucketIndex, Count, Ns, Record, Step
from .bucket import Options


class ComputeRecord(Record, frozen=True, kw_only=True, tag="compute"):
    """One calibrated step without any trial: its gradients one by one, and what is around them.

    ``parameters``: names as in the layout of ``generation``, in the order in which their gradients
    became ready, without those that got none in the step; ``ready_ns``: when each did, ascending.
    Hooks that DDP calls in between delay what follows: the step's buckets say for how long
    (``launched_ns - ready_ns``).  ``forward_ns`` and ``optimizer_ns``: how long the forward pass
    before it and the optimizer's step after it took, ``None`` where it was not seen.
    ``processor_ns``: processor time of the whole process
    from the first gradient to that of the next step, ``None`` where the next one was not seen;
    ``thread_ns``: of it, that of the thread on which gradients come.
    """

    model: str
    generation: Count
    step: Step
    parameters: tuple[str, ...]
    ready_ns: tuple[Ns, ...]
    forward_ns: Ns | None = None
    optimizer_ns: Ns | None = None
    processor_ns: Ns | None = None
    thread_ns: Ns | None = None


class TrialRound(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One collective of a trial: the work before it was yielded, and what it would have sent.

    ``wire_bytes``: this rank's payload, as in ``Stage``.
    """

    before_ns: Ns
    collective: str
    wire_bytes: Count
    dtype: str


class TrialRecord(Record, frozen=True, kw_only=True, tag="trial"):
    """One hook of the catalogue, tried on this rank's gradients; nothing was sent.

    ``hook``: its name on the command line; ``options``: of its state.  ``bucket``: whose gradients;
    ``first`` and ``count`` say which of the bucket's parameters, since a trial may be of a part, as
    if DDP had made a smaller bucket.  ``rounds``: its collectives; ``after_ns``: the work after the
    last one.  ``copy_ns``: what it took to copy the gradients for the trial, which no hook pays.
    ``relative_l2``, ``cosine``: the local error, and ``reference_l2`` what it is relative to, as in
    ``ErrorRecord``.

    ``before_ns``, ``after_ns`` and ``copy_ns`` are processor time of the thread that worked: on the
    clock, other threads' and ranks' work would be in them wherever cores are shared.
    """

    model: str
    generation: Count
    step: Step
    bucket: BucketIndex
    first: Count
    count: Count
    hook: str
    options: Options = ()
    numel: Count
    gradient_bytes: Count
    rounds: tuple[TrialRound, ...]
    after_ns: Ns
    copy_ns: Ns = 0
    relative_l2: float | None = None
    cosine: float | None = None
    reference_l2: float | None = None
