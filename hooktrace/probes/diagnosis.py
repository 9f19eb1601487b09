"""What is wrong with a hook, from the numbers of its probes: anomalies.

Runs in the drain.  A lossless or nearly lossless hook's result is a weighted sum of the ranks' own
gradients, and the weights say what it did.  They are fitted, by least squares, to samples x of the
result and g_r of each rank's gradient: x = sum of c_r g_r.

    c_r = 1/n   averaged                      c_r = 1       not divided by the world size
    c_r = 1/n²  divided twice                 c_r = -1/n    the sign is wrong
    c_r = 1 on this rank, else 0              nothing was communicated
    c_r = 0 on some ranks                     these ranks' gradients are missing
    c_r = c on all ranks, the same c in a few probes one after another     the scale is wrong

Where the fit leaves more than a thousandth of the result unexplained, or the ranks' gradients are
too much alike to be told apart, nothing is claimed: compression is lossy, and may be.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator

import torch

from ..capture.buckets import BucketSlot
from ..records import AnomalyRecord, BucketRecord
from .anomalies import anomaly_of
from .probe_result import ProbeResult

_UNEXPLAINED = 1e-3
_TOLERANCE = 0.02
_ALIKE = 0.05
_ROUNDING = 30
_SAME_SCALES = 3
_SAME = 1e-3
"""Clipping changes its factor from step to step; a wrong divisor does not."""

_CLAIMS = re.compile(r"compress|fp16|bf16|float16|half|quant|int8|8bit|power_?sgd|top_?k|spars")
_LOSSLESS = 1e-6
_WARM_UP = 2000
"""Steps for which a hook may lose nothing while it says that it compresses: twice PowerSGD's."""


class Diagnosis:
    """Says what is wrong with probed results; remembers what only several of them show."""

    def __init__(self) -> None:
        self._scales: dict[str, deque[float]] = {}
        self._exact_since: dict[str, int] = {}
        self._compressed: set[str] = set()

    def of_probe(self, probed: ProbeResult) -> Iterator[AnomalyRecord]:
        """Yield what is wrong with a probed result; of a local hook the weights say nothing."""
        if probed.sums is None:
            return
        yield from _not_finite(probed)
        if not probed.local:
            yield from self._wrong_sum(probed)
            yield from _diverged(probed)

    def of_bucket(self, slot: BucketSlot, record: BucketRecord) -> Iterator[AnomalyRecord]:
        """Yield ``no_compression`` where a hook that says it compresses sends as many bytes.

        As torch's own fp16 hook in C++ once did, which copied the 16-bit values back to float32.
        One that loses nothing either may be in its warm-up, so that it has to last.
        """
        size = record.wire_bytes
        if record.error is None or size is None or not _CLAIMS.search(record.hook.lower()):
            return
        if slot.torch_dtype.itemsize < 4 or size < record.gradient_bytes:
            self._compressed.add(record.model)
            return
        if (record.error.relative_l2 or 0.0) <= _LOSSLESS:
            since = self._exact_since.setdefault(record.model, record.step)
            if record.model in self._compressed or record.step - since < _WARM_UP:
                return
        dtypes = ", ".join(sorted({t.dtype for t in record.transfers})) or record.dtype
        what = (
            f"it sends {size} bytes ({dtypes}) for {record.gradient_bytes} bytes of gradients, so "
            "nothing is compressed"
        )
        yield anomaly_of(
            slot,
            "no_compression",
            what,
            step=record.step,
            time_ns=record.done_ns,
            stage="wire",
        )

    def _wrong_sum(self, probed: ProbeResult) -> Iterator[AnomalyRecord]:
        found = weights(probed)
        if found is None or len(found) == 1:
            return
        size, rank = len(found), probed.rank
        scaled = [weight * size for weight in found]

        def all_near(target: float) -> bool:
            return all(abs(weight - target) <= _TOLERANCE * abs(target) for weight in scaled)

        others = [weight for r, weight in enumerate(scaled) if r != rank]
        scale = sum(scaled) / size
        scales = self._scales.setdefault(probed.slot.model.name, deque(maxlen=_SAME_SCALES))
        scales.append(scale if all_near(scale) else math.nan)
        if all_near(1.0):
            return
        if all_near(size):
            yield probed.anomaly("not_averaged", f"the result is {size} times the average: a sum")
        elif all_near(1 / size):
            what = f"the result is the average over {size} once more"
            yield probed.anomaly("averaged_twice", what)
        elif max(scaled) < 0:
            yield probed.anomaly("wrong_sign", "the result points away from the average")
        elif all(abs(weight) <= _TOLERANCE for weight in others):
            what = f"the result is rank {probed.named(rank)}'s own gradient"
            yield probed.anomaly("not_communicated", what)
        elif missing := [r for r, weight in enumerate(scaled) if abs(weight) <= _TOLERANCE]:
            ranks = ", ".join(str(probed.named(r)) for r in missing)
            what = f"the gradients of rank(s) {ranks} are not in the result"
            yield probed.anomaly("ranks_missing", what)
        elif len(scales) == _SAME_SCALES and max(scales) - min(scales) <= _SAME * scale:
            what = (
                f"the result is {scale:.4g} times the average, in {_SAME_SCALES} probes one after "
                f"another; the world size is {size}"
            )
            yield probed.anomaly("wrong_scale", what)


def _not_finite(probed: ProbeResult) -> Iterator[AnomalyRecord]:
    names = [name for name, _ in probed.slot.parameters]
    assert probed.finite is not None
    for name, finite in zip(names, probed.finite.tolist(), strict=True):
        if not finite:
            what = f"the gradient of {name} had NaN or inf before the hook"
            yield probed.anomaly("nonfinite_gradient", what, stage="ready", parameter=name)
            return
    if probed.overflow is not None:
        part, value = probed.overflow
        of = "average" if probed.scope == "global" else "gradient"
        what = f"the hook made NaN or inf of {names[part]}, where the {of} is {value:.6g}"
        yield probed.anomaly("nonfinite_result", what, parameter=names[part])


def _diverged(probed: ProbeResult) -> Iterator[AnomalyRecord]:
    if probed.before is None or probed.checksums is None or not probed.before.sums:
        return
    ranks: dict[tuple[int, ...], list[int]] = {}
    for rank, sums in enumerate(probed.checksums.tolist()):
        ranks.setdefault(tuple(sums), []).append(probed.named(rank))
    if len(ranks) == 1:
        return
    groups = " and ".join(f"[{', '.join(map(str, group))}]" for group in ranks.values())
    buckets = ", ".join(map(str, sorted(probed.before.sums)))
    what = (
        f"at step {probed.before.step} the results of bucket(s) {buckets} were not the same on "
        f"ranks {groups}"
    )
    yield probed.anomaly("replicas_diverge", what)


def weights(probed: ProbeResult) -> list[float] | None:
    """Return the weight of each rank's gradient in the result; ``None`` where it cannot be told."""
    if probed.samples is None or probed.result_sample is None:
        return None
    gradients, result = probed.samples.double().T, probed.result_sample.double()
    if not (gradients.isfinite().all() and result.isfinite().all()):
        return None
    norms = gradients.norm(dim=0)
    # A gradient that rounding swallows cannot be told from one that is missing.
    least = _ROUNDING * torch.finfo(probed.slot.torch_dtype).eps * norms.max()
    if not (norms > least).all() or result.norm() == 0 or len(result) < 4 * len(norms):
        return None
    unit = gradients / norms
    if torch.linalg.svdvals(unit)[-1] < _ALIKE:
        return None
    fitted = torch.linalg.lstsq(unit, result[:, None]).solution[:, 0]
    if (unit @ fitted - result).norm() ** 2 > _UNEXPLAINED * result.norm() ** 2:
        return None
    return (fitted / norms).tolist()  # type: ignore[no-any-return]
