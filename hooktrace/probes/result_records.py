"""What a probe found, as records: the error of a result, and when each rank was ready.

ProbeResult --compare.numbers--> ErrorRecord          ProbeResult.arrivals --> SkewRecord
"""

from __future__ import annotations

from ..records import ErrorRecord, ParameterError, SkewRecord
from .compare import lengths_of, numbers
from .probe_result import ProbeResult

_WORST = 3
"""Parameters of which the error is recorded one by one."""


def error_record(probed: ProbeResult) -> ErrorRecord | None:
    """Return the numbers of a probe; ``None`` where it failed or its call did."""
    if probed.sums is None:
        return None
    slot = probed.slot
    rows = probed.sums.tolist()
    whole = numbers(rows, slot.numel)
    lengths = lengths_of(slot.parameters)
    parts = [
        (name, numbers([row], length))
        for (name, _), length, row in zip(slot.parameters, lengths, rows, strict=True)
    ]
    worst = sorted(
        (p for p in parts if p[1].relative_l2 is not None and p[1].reference_l2),
        key=lambda p: -(p[1].relative_l2 or 0.0),
    )
    return ErrorRecord(
        relative_l2=whole.relative_l2,
        cosine=whole.cosine,
        max_absolute=whole.max_absolute,
        flipped_share=whole.flipped_share,
        reference_l2=whole.reference_l2,
        residual_l2=probed.residual_l2,
        scope=probed.scope,
        worst=tuple(
            ParameterError(
                name=name,
                relative_l2=error.relative_l2,
                cosine=error.cosine,
                max_absolute=error.max_absolute,
            )
            for name, error in worst[:_WORST]
        ),
    )


def skew_record(probed: ProbeResult) -> SkewRecord | None:
    """Return when each rank had a probed bucket ready; ``None`` where the probe failed."""
    if probed.arrivals is None:
        return None
    slot = probed.slot
    times, uncertainties = zip(*probed.arrivals.tolist(), strict=True)
    known = min(uncertainties) >= 0
    return SkewRecord(
        model=slot.model.name,
        hook=slot.model.hook,
        generation=slot.generation,
        step=probed.step,
        bucket=slot.index,
        time_ns=probed.ready,
        rank=probed.named(probed.rank),
        ranks=tuple(probed.named(place) for place in range(len(times))),
        arrivals_ns=tuple(time - min(times) for time in times),
        # Of the two clocks that are known worst.
        uncertainty_ns=sum(sorted(uncertainties)[-2:]) if known else None,
    )
