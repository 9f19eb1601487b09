"""The dashboards: what each panel asks, what it says, and what would make that false."""

from __future__ import annotations

from hooktrace.records import metrics as m

from .bucket_panels import BUCKETS
from .queries import (
    INTERPOLATED,
    OF_JOB,
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
from .unit_panels import UNITS

__all__ = ["DASHBOARDS"]

_EXPOSED_SHARE = f"{rate(m.EXPOSED, '_sum')} / {rate(m.STEP_PERIOD, '_sum')}"
_BUSBW = f"{rate(m.BUS_BYTES)} / {rate(m.WIRE_BUSY)}"
_OVERLAP = (
    f"1 - sum by (job, model) ({rate(m.EXPOSED, '_sum')}) "
    f"/ sum by (job, model) ({rate(m.BUSY, '_sum')})"
)
_STAGED = "Absent for opaque hooks, whose bytes are known of few steps."

_RUNS = Panel(
    "Runs, and how many ranks are read",
    "Value: ranks whose metrics Prometheus reads now, of a run of world_size ranks. It is less "
    "where a rank's target is not found or has gone, and where a rank has not called a hook yet.",
    "none",
    (Query(
        f"count by (job, run_id, world_size, backend, torch_version) "
        f"({m.RUN.prometheus_name}{{{OF_JOB}}})", "",
    ),),
    "table", 24,
)  # fmt: skip
_WRONG = Panel(
    "What went wrong",
    "Anomalies by kind and rank since each process began, of each bucket the first; what the kinds "
    "mean is in docs/errors-and-anomalies.md. Empty: none was seen. Most kinds are looked for on "
    "probed steps only, and what was lost was not looked at.",
    "none",
    (Query(last("sum", m.ANOMALIES, "job, model, hook, kind, rank") + " > 0", "", "no anomaly"),),
    "table",
)
_HANGS = Panel(
    "Hangs",
    "Hangs that were recorded since the processes began, by kind, of the rank that recorded most: "
    "each is recorded on every rank. One that went on is in it too. Empty: none was recorded; a "
    "rank that was killed can tell nothing. For whom the ranks wait, and where that rank is: "
    "hooktrace hang.",
    "none",
    (Query(last("max", m.HANGS, "job, model, hook, kind") + " > 0", "", "no hang"),),
    "table",
)  # fmt: skip
_SINCE = m.HANG_START.prometheus_name
_HUNG = Panel(
    "Waiting in a hang",
    "How long ranks have waited in a hang that goes on, by the ranks that still answer; 0 where "
    "none does. It begins when the hang is recorded, some seconds after the wait did, and stays "
    "where the record of its end was lost.",
    "s",
    (Query(
        f"(time() - max by (job, model) ({_SINCE}{{{OF_MODEL}}})) "
        f"* (max by (job, model) ({_SINCE}{{{OF_MODEL}}}) > bool 0)", "{{model}}",
    ),),
)  # fmt: skip
_LOST = Panel(
    "What is missing here",
    "Records that were lost, by reason and rank, and exporters that were disabled, since each "
    "process began: what the other panels do not have. Empty: nothing. What a killed process still "
    "held is not counted. Reasons and remedies are in docs/exporters.md.",
    "none",
    (
        Query(last("sum", m.RECORDS_LOST, "job, reason, rank", OF_JOB) + " > 0", "",
              "nothing was lost"),
        Query(last("sum", m.EXPORTER_FAILURES, "job, exporter, rank", OF_JOB) + " > 0", "",
              "no exporter failed"),
    ),
    "table",
)  # fmt: skip

_OVER_RANKS = (
    Panel(
        "Over all ranks, from rank 0 alone",
        "Of the last step that the hub of the ranks' channel knows: how long it took and how much "
        "of it was exposed, least, mean and most over ranks. One scrape shows it, of a job of any "
        "size; a step between two scrapes is not seen. Ranks that wait for each other have nearly "
        f"the same step time: the least exposed is the one that is waited for. {UNTIMED}",
        "s",
        (
            Query(last("max", m.JOB_PERIOD_MIN, "job, model"), "{{model}} step time, least"),
            Query(last("max", m.JOB_PERIOD_MEAN, "job, model"), "{{model}} step time, mean"),
            Query(last("max", m.JOB_PERIOD_MAX, "job, model"), "{{model}} step time, most"),
            Query(last("max", m.JOB_EXPOSED_MIN, "job, model"), "{{model}} exposed, least"),
            Query(last("max", m.JOB_EXPOSED_MEAN, "job, model"), "{{model}} exposed, mean"),
            Query(last("max", m.JOB_EXPOSED_MAX, "job, model"), "{{model}} exposed, most"),
            Query(last("max", m.JOB_LAG, "job, model"), "{{model}} last rank after the first"),
            Query(last("max", m.JOB_LAG_UNCERTAINTY, "job, model"),
                  "{{model}} what clocks may be off"),
        ),
    ),
    Panel(
        "Who reports, who is last, from rank 0 alone",
        "Last: the rank whose last bucket was ready last, -1 where clocks cannot tell. Slowest: "
        "the longest step time, which says little where all ranks wait for each other. Reporting: "
        "fewer than the job has where a rank is silent, or where the model is on some ranks only.",
        "none",
        (
            Query(last("max", m.JOB_RANKS, "job", OF_JOB), "ranks of the job"),
            Query(last("max", m.JOB_REPORTING, "job, model"), "{{model}} reporting"),
            Query(last("max", m.JOB_LAST, "job, model"), "{{model}} last rank"),
            Query(last("max", m.JOB_SLOWEST, "job, model"), "{{model}} slowest rank"),
        ),
        "table",
    ),
)  # fmt: skip

_JOB = Dashboard(
    "hooktrace-job",
    "hooktrace: job",
    "How long a step takes, how much of it waits for communication, and whether anything is wrong.",
    (
        _RUNS,
        Panel(
            "Step time",
            "From one step's first ready bucket to the next one's, over all ranks: evaluation and "
            "checkpoints between two steps are in it. Busy: with at least one bucket being "
            f"communicated. Exposed: what backward did not hide. {UNTIMED} {INTERPOLATED}",
            "s",
            (
                Query(mean(m.STEP_PERIOD, "job, model"), "{{model}} mean"),
                Query(quantile(0.95, m.STEP_PERIOD, "job, model"), "{{model}} p95"),
                Query(mean(m.BUSY, "job, model"), "{{model}} busy"),
                Query(mean(m.EXPOSED, "job, model"), "{{model}} exposed"),
            ),
        ),
        Panel(
            "Exposed share of the step",
            "Of the time of all steps, the part in which a rank had nothing left to compute and "
            "waited for its buckets, or at each unit of a sharded model. A rank that comes late "
            "makes all others wait, which is in it: "
            "the least of all ranks is what lateness does not explain. Pauses between steps "
            f"(evaluation) make the share smaller. {UNTIMED}",
            "percentunit",
            (
                Query(f"max by (job, model) ({_EXPOSED_SHARE})", "{{model}} most exposed rank"),
                Query(f"avg by (job, model) ({_EXPOSED_SHARE})", "{{model}} mean"),
                Query(f"min by (job, model) ({_EXPOSED_SHARE})", "{{model}} least exposed rank"),
            ),
        ),
        Panel(
            "Communication that backward hides",
            "1 - exposed / busy, over all ranks and steps of the interval; of a sharded model what "
            "the forward pass hides is in it too. On gloo it is 0 there: its collectives are "
            "synchronous. 100 % is no proof of a "
            "fast network: a long backward pass hides a slow one. Low, where there is hardly any "
            f"communication, costs nothing: see the exposed share. {UNTIMED}",
            "percentunit",
            (Query(_OVERLAP, "{{model}}"),),
        ),
        Panel(
            "Bus bandwidth",
            "Bus bytes over the time with a collective on the wire, as nccl-tests defines it. "
            "Waiting for a late rank counts as time on the wire, so the fastest rank is nearest to "
            "what the network gives, and the slowest may only be early. Small buckets show "
            f"latency, not bandwidth. {_STAGED} {UNTIMED}",
            "Bps",
            (
                Query(f"max by (job, model) ({_BUSBW})", "{{model}} fastest rank"),
                Query(f"min by (job, model) ({_BUSBW})", "{{model}} slowest rank"),
            ),
        ),
        *_OVER_RANKS,
        _WRONG,
        _LOST,
        _HANGS,
        _HUNG,
    ),
)

_RANKS = Dashboard(
    "hooktrace-ranks",
    "hooktrace: ranks",
    "Which rank is late, slow, silent, or not read.",
    (
        Panel(
            "How late each rank is",
            "Mean time after the first rank at which this one had a probed bucket ready, over 30 "
            "minutes. True to within the clocks' uncertainty, which is drawn too: a smaller "
            "difference means nothing. Only where clocks are known and error_every is not 0; on a "
            "device lags are not measured. A rank that is late in few steps, none of them probed, "
            "is not seen.",
            "s",
            (
                Query(mean(m.ARRIVAL_LAG, "job, model, rank", "30m"), "{{model}} rank {{rank}}"),
                Query(
                    f"2 * max by (job) ({m.CLOCK_UNCERTAINTY.prometheus_name}{{{OF_JOB}}})",
                    "uncertainty of two ranks' clocks",
                ),
            ),
        ),
        Panel(
            "Exposed share by rank",
            "The rank with the least is the one that the others wait for, if one of them is late; "
            f"where all have the same, it is the network or the hook. {UNTIMED}",
            "percentunit",
            (Query(f"avg by (job, model, rank) ({_EXPOSED_SHARE})", "{{model}} rank {{rank}}"),),
        ),
        Panel(
            "Steps a second by rank",
            "All steps that communicated. 0 is a rank that waits, evaluates, writes a checkpoint, "
            "or has ended and still serves; DDP keeps ranks in step, so one that hangs stops all, "
            "and which it is only their stacks tell.",
            "ops",
            (Query(f"sum by (job, model, rank) ({rate(m.STEPS)})", "{{model}} rank {{rank}}"),),
        ),
        Panel(
            "Step time by rank",
            "Mean from one step's first ready bucket to the next one's. Ranks that communicate in "
            "every step have the same mean, however slow one of them is: who is slow is in the two "
            f"panels above. {UNTIMED}",
            "s",
            (Query(mean(m.STEP_PERIOD, "job, model, rank"), "{{model}} rank {{rank}}"),),
        ),
        Panel(
            "Targets",
            "1: Prometheus reads it. 0: it does not answer; the process ended without saying so, "
            "or the port is not reachable. A rank that ended well is gone from here, and so is a "
            "pod that was removed. Everything that the job label selects is listed.",
            "none",
            (Query(f"min by (job, instance) (up{{{OF_JOB}}})", ""),),
            "table", 24,
        ),
    ),
)  # fmt: skip

DASHBOARDS = (_JOB, _RANKS, BUCKETS, UNITS)
