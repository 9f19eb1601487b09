"""The dashboard of buckets and the hook: where a bucket's time goes, what is sent, what is lost."""

from __future__ import annotations

from hooktrace.records import metrics as m

from .queries import (
    INTERPOLATED,
    OF_MODEL,
    UNTIMED,
    Dashboard,
    Panel,
    Query,
    last,
    mean,
    quantile,
    rate,
)

__all__ = ["BUCKETS"]

_NO_WAIT = ', stage!="wait"'
"""It is a part of wire, of probed buckets."""
_OF_STAGE = (
    f"sum by (job, model, stage) ({rate(m.STAGE_DURATION, '_sum', more=_NO_WAIT)}) "
    f"/ on (job, model) group_left () sum by (job, model) ({rate(m.BUCKET_DURATION, '_count')})"
)

BUCKETS = Dashboard(
    "hooktrace-buckets",
    "hooktrace: buckets and hook",
    "Where the time of a bucket goes, what the hook sends, and what it loses. By bucket there is "
    "nothing of a sharded model: see its own dashboard.",
    (
        Panel(
            "Where a bucket's time goes",
            "Mean over all buckets, ranks and steps of the interval, stacked. Queue is derived "
            "from a model of gloo's workers and not measured; wire includes waiting for a late "
            "rank; of an opaque hook only its call (hook) and the wait for its result (pending) "
            "are known. "
            f"Buckets overlap, so this is not what a step waits for. {UNTIMED}",
            "s",
            (Query(_OF_STAGE, "{{model}} {{stage}}"),),
            "stacked",
        ),
        Panel(
            "Time of each bucket",
            "Mean from ready to done, over all ranks. Bucket 0 is the first to be ready. When DDP "
            f"rebuilds its buckets the same number means others: see the last panel. {UNTIMED} "
            "Buckets from 64 on are one, called other.",
            "s",
            (Query(mean(m.BUCKET_DURATION, "job, model, bucket"), "{{model}} bucket {{bucket}}"),),
        ),
        Panel(
            "Time of each bucket, 95th percentile",
            f"From ready to done, over all ranks. {INTERPOLATED} Empty with "
            f"bucket_histograms=False. {UNTIMED}",
            "s",
            (
                Query(
                    quantile(0.95, m.BUCKET_DURATION, "job, model, bucket"),
                    "{{model}} bucket {{bucket}}",
                ),
            ),
        ),
        Panel(
            "What the hook sends",
            "Payload of a step by collective and dtype, of the rank that sends most, beside the "
            "gradients that it was given: the last step of which it is known. Payload given to "
            "collectives, not bytes on the cable. Absent where an opaque hook's bytes are unknown.",
            "bytes",
            (
                Query(
                    last("max", m.STEP_WIRE_BYTES, "job, model, collective, dtype"),
                    "{{model}} {{collective}} {{dtype}}",
                ),
                Query(
                    f"max by (job, model) (sum by (job, model, rank) "
                    f"({m.BUCKET_SIZE.prometheus_name}{{{OF_MODEL}}}))",
                    "{{model}} gradients",
                ),
            ),
        ),
        Panel(
            "Compression",
            "Gradient bytes over sent bytes of the last step of which both are known, mean over "
            "ranks; of a sharded model's step all that it communicates over what was sent. Above "
            "1 is no gain by itself: what compressing takes is in the stages, what it loses in "
            "the error.",
            "none",
            (Query(last("avg", m.COMPRESSION_RATIO, "job, model, hook"), "{{model}} {{hook}}"),),
        ),
        Panel(
            "What the hook loses",
            "Relative L2 distance of probed buckets' results from the lossless average, and of "
            "units' from what FSDP would have had, over one hour. It is of single steps: error "
            "feedback gives back later what is lost here. A hook that is local by design is "
            "not meant to be the average. A percentile is interpolated between bounds that "
            "are up to a factor of 10 apart.",
            "none",
            (
                Query(quantile(0.5, m.COMPRESSION_ERROR, "job, model, hook", "1h"),
                      "{{model}} {{hook}} median"),
                Query(quantile(0.95, m.COMPRESSION_ERROR, "job, model, hook", "1h"),
                      "{{model}} {{hook}} p95"),
            ),
        ),
        Panel(
            "What each bucket loses",
            "The last probed error of each bucket, of the rank with the largest: of one step, "
            "which may be some thousand steps old where buckets are probed in turn.",
            "none",
            (
                Query(last("max", m.BUCKET_ERROR, "job, model, bucket"), "{{model}} {{bucket}}"),
                Query(
                    f"1 - min by (job, model, bucket) "
                    f"({m.BUCKET_COSINE.prometheus_name}{{{OF_MODEL}}})",
                    "{{model}} {{bucket}}, 1 - cosine",
                ),
            ),
        ),
        Panel(
            "Sizes of buckets",
            "Gradient bytes of each bucket in the present layout, without those from 64 on. What "
            "is sent of them is in the panel above.",
            "bytes",
            (Query(last("max", m.BUCKET_SIZE, "job, model, bucket"), "{{model}} {{bucket}}"),),
        ),
        Panel(
            "Rebuilds of the buckets",
            "How often DDP has rebuilt them. It does so once, after the first step; a later change "
            "gives the numbers of buckets another meaning, here and in the panels above.",
            "none",
            (Query(last("max", m.GENERATION, "job, model"), "{{model}}"),),
        ),
    ),
)  # fmt: skip
