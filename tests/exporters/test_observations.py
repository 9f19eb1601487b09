"""What a batch says about metrics, and what adds up; of many jobs: ``golden.py``."""

from __future__ import annotations

from msgspec.structs import replace

from hooktrace.exporters.aggregates import Aggregates, Distribution
from hooktrace.exporters.observations import Column, Observer
from hooktrace.records import Batch, Transfer
from hooktrace.records import metrics as m
from hooktrace.records.anomalies import ANOMALIES
from hooktrace.records.hang import HANGS
from hooktrace.records.losses import LOSSES
from hooktrace.records.metrics import RECORDS_LOST, Metric
from tests.exporters.records_sample import HOOK, MODEL, make_batch

NAMES = (MODEL, HOOK)


def flat(batch: Batch) -> list[Column]:
    return Observer("test").observe(batch)


def seen(
    batch: Batch, observer: Observer | None = None
) -> dict[tuple[Metric, tuple[str, ...]], float]:
    """Return a batch's last observation of each metric by its labels."""
    return {
        (metric, own): value
        for metric, labels, values in (observer or Observer("test")).observe(batch)
        for own, value in zip(labels, values, strict=True)
    }


def test_a_loss_that_every_batch_reports_again_is_counted_once() -> None:
    """Batches have totals so far; each observer says what came since its own last batch."""
    observer, other = Observer("test"), Observer("test")
    found = []
    for lost in (3, 3, 5):
        batch = replace(make_batch(), losses={"unfinished": lost})
        found.append(seen(batch, observer)[RECORDS_LOST, ("unfinished",)])
    assert found == [3, 0, 2]
    assert seen(batch, other)[RECORDS_LOST, ("unfinished",)] == 5


def test_what_steps_sent_is_counted_whether_they_are_timed_or_not() -> None:
    """Torch tells it as a whole of one that is not; what a hook no longer sends becomes 0."""
    step, buckets = make_batch().steps[0]
    sent = (Transfer(collective="all_reduce", dtype="float32", wire_bytes=7),)
    untimed = [replace(b, sent=sent, wire_bytes=7, bounded=True, stages=()) for b in buckets]
    batches = make_batch(), replace(make_batch(), steps=((step, tuple(untimed)),))
    observer = Observer("test")
    before, found = (seen(batch, observer) for batch in batches)
    assert [found[m.WIRE_BYTES, (*NAMES, str(b.bucket))] for b in buckets] == [7] * len(buckets)
    half, single = ((m.STEP_WIRE_BYTES, (*NAMES, "all_reduce", f"float{n}")) for n in (16, 32))
    assert (before[half], found[half], found[single]) == (4000, 0, 14)


def test_what_rarely_happens_is_counted_from_zero_on() -> None:
    """Before it happens: Prometheus' ``increase`` does not see the first value of a series."""
    batch = replace(make_batch(), failures={"record_file": 0, "mine": 0}, losses={"mine_rows": 2})
    # But for what only the check of a hook finds.
    kinds = [kind.name for kind in ANOMALIES.values() if kind.seen != "by check_hook"]
    zeros = [(m.ANOMALIES, (*NAMES, kind)) for kind in kinds]
    zeros += [(m.HANGS, (*NAMES, kind)) for kind in HANGS]
    zeros += [(m.RECORDS_LOST, (reason,)) for reason in (*LOSSES, "record_file_buckets")]
    zeros += [(m.EXPORTER_FAILURES, ("mine",)), (m.HANG_START, NAMES)]
    zeros += [(x, NAMES) for x in (m.WARMUP_STEPS, m.JOIN_DUMMY_STEPS, m.INCOMPLETE_STEPS)]
    found = seen(batch)
    assert [key for key in zeros if found.get(key) != 0] == []
    assert found[m.RECORDS_LOST, ("mine_rows",)] == 2
    assert {own[2] for metric, own in found if metric is m.ANOMALIES} == set(kinds)
    before = seen(replace(batch, steps=()))
    zeros += [(m.STEPS, NAMES), *((m.GRADIENT_BYTES, (*NAMES, bucket)) for bucket in "01")]
    assert [key for key in zeros if before.get(key) != 0] == []


def test_a_histogram_counts_by_inclusive_bounds_and_knows_its_extremes() -> None:
    """A value on a bound belongs to the bucket that ends there; the last one has no bound."""
    aggregates = Aggregates()
    aggregates.add([(m.EXPOSED, [NAMES] * 4, [0.001, 0.0011, 999.0, 0.0])])
    counts = [0] * (len(m.EXPOSED.buckets) + 1)
    for bound, count in ((0.00005, 1), (0.001, 1), (0.0025, 1)):
        counts[m.EXPOSED.buckets.index(bound)] = count
    counts[-1] = 1
    expected = Distribution(counts, 0.001 + 0.0011 + 999.0 + 0.0, least=0.0, most=999.0)
    assert aggregates.family(m.EXPOSED).series == {NAMES: expected}


def test_a_new_rebuild_forgets_the_sizes_of_the_old_one() -> None:
    """Of its own model alone."""
    aggregates = Aggregates()
    other = ("other", "hook")
    aggregates.add([(m.BUCKET_SIZE, [(*model, "0") for model in (NAMES, other)], [1, 1])])
    aggregates.add([(m.REBUILD, [NAMES], [1]), (m.BUCKET_SIZE, [(*NAMES, "1")], [2])])
    assert aggregates.family(m.BUCKET_SIZE).series == {(*other, "0"): 1, (*NAMES, "1"): 2}
