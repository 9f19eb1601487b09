"""Makes the Grafana dashboards: ``python dashboards/generate.py``, with Grafana's SDK.

    records/metrics.py  METRICS --queries--> DASHBOARDS --grafana-foundation-sdk--> *.json beside it

    python3 -m venv .venv-grafana
    .venv-grafana/bin/pip install 'grafana-foundation-sdk==1769699379!11.6.0' msgspec lazy-loader
    PYTHONPATH=. .venv-grafana/bin/python dashboards/generate.py

``tests/dashboards`` holds the files equal to what this makes, and asks a real Prometheus each
query.  Every name of a metric comes from the table; each panel's description says what misleads.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from hooktrace.records import metrics as m

__all__ = ["DASHBOARDS", "FOLDER", "Dashboard", "Panel", "Query", "rendered", "written"]

FOLDER = Path(__file__).parent

_OF_MODEL = 'job=~"$job", model=~"$model"'
_OF_JOB = 'job=~"$job"'


class Query(NamedTuple):
    """PromQL and the legend of its series; ``none_while``: when it rightly returns nothing."""

    expr: str
    legend: str
    none_while: str = ""


class Panel(NamedTuple):
    """A title, what it says and what would make that false, and what it draws."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "stacked", "table"] = "lines"
    width: int = 12


class Dashboard(NamedTuple):
    """A file of its own, ``<uid>.json``."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]


def _rate(metric: m.Metric, suffix: str = "", window: str = "$__rate_interval") -> str:
    return f"rate({metric.prometheus_name}{suffix}{{{_OF_MODEL}}}[{window}])"


def _mean(metric: m.Metric, by: str, window: str = "$__rate_interval") -> str:
    total, count = (_rate(metric, suffix, window) for suffix in ("_sum", "_count"))
    return f"sum by ({by}) ({total}) / sum by ({by}) ({count})"


def _quantile(share: float, metric: m.Metric, by: str, window: str = "$__rate_interval") -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) ({_rate(metric, '_bucket', window)}))"


def _last(function: str, metric: m.Metric, by: str, of: str = _OF_MODEL) -> str:
    return f"{function} by ({by}) ({metric.prometheus_name}{{{of}}})"


_EXPOSED_SHARE = f"{_rate(m.EXPOSED, '_sum')} / {_rate(m.STEP_PERIOD, '_sum')}"
_BUSBW = f"{_rate(m.BUS_BYTES)} / {_rate(m.WIRE_BUSY)}"
_OVERLAP = (
    f"1 - sum by (job, model) ({_rate(m.EXPOSED, '_sum')}) "
    f"/ sum by (job, model) ({_rate(m.BUSY, '_sum')})"
)
_OF_STAGE = (
    f"sum by (job, model, stage) ({_rate(m.STAGE_DURATION, '_sum')}) "
    f"/ on (job, model) group_left () sum by (job, model) ({_rate(m.BUCKET_DURATION, '_count')})"
)
_UNTIMED = "Warm-up, probed, incomplete and shadow steps are not in it; with debug=True no step is."
_INTERPOLATED = "A percentile is interpolated between bounds that are a factor of 2 to 2.5 apart."
_STAGED = "Absent for opaque hooks, whose bytes are known of few steps."

_RUNS = Panel(
    "Runs, and how many ranks are read",
    "Value: ranks whose metrics Prometheus reads now, of a run of world_size ranks. It is less "
    "where a rank's target is not found or has gone, and where a rank has not called a hook yet.",
    "none",
    (Query(
        f"count by (job, run_id, world_size, backend, torch_version) "
        f"({m.RUN.prometheus_name}{{{_OF_JOB}}})", "",
    ),),
    "table", 24,
)  # fmt: skip
_WRONG = Panel(
    "What went wrong",
    "Anomalies by kind and rank since each process began, of each bucket the first; what the kinds "
    "mean is in docs/errors-and-anomalies.md. Empty: none was seen. Most kinds are looked for on "
    "probed steps only, and none where records are lost.",
    "none",
    (Query(_last("sum", m.ANOMALIES, "job, model, hook, kind, rank") + " > 0", "", "no anomaly"),),
    "table",
)
_LOST = Panel(
    "What is missing here",
    "Records that were lost, by reason and rank, and exporters that were disabled, since each "
    "process began: what the other panels do not have. Empty: nothing. What a killed process still "
    "held is not counted. Reasons and remedies are in docs/exporters.md.",
    "none",
    (
        Query(_last("sum", m.RECORDS_LOST, "job, reason, rank", _OF_JOB) + " > 0", "",
              "nothing was lost"),
        Query(_last("sum", m.EXPORTER_FAILURES, "job, exporter, rank", _OF_JOB) + " > 0", "",
              "no exporter failed"),
    ),
    "table",
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
            f"communicated. Exposed: what backward did not hide. {_UNTIMED} {_INTERPOLATED}",
            "s",
            (
                Query(_mean(m.STEP_PERIOD, "job, model"), "{{model}} mean"),
                Query(_quantile(0.95, m.STEP_PERIOD, "job, model"), "{{model}} p95"),
                Query(_mean(m.BUSY, "job, model"), "{{model}} busy"),
                Query(_mean(m.EXPOSED, "job, model"), "{{model}} exposed"),
            ),
        ),
        Panel(
            "Exposed share of the step",
            "Of the time of all steps, the part in which a rank had nothing left to compute and "
            "waited for its buckets. A rank that comes late makes all others wait, which is in it: "
            "the least of all ranks is what lateness does not explain. Pauses between steps "
            f"(evaluation) make the share smaller. {_UNTIMED}",
            "percentunit",
            (
                Query(f"max by (job, model) ({_EXPOSED_SHARE})", "{{model}} most exposed rank"),
                Query(f"avg by (job, model) ({_EXPOSED_SHARE})", "{{model}} mean"),
                Query(f"min by (job, model) ({_EXPOSED_SHARE})", "{{model}} least exposed rank"),
            ),
        ),
        Panel(
            "Communication that backward hides",
            "1 - exposed / busy, over all ranks and steps of the interval. 100 % is no proof of a "
            "fast network: a long backward pass hides a slow one. Low, where there is hardly any "
            f"communication, costs nothing: see the exposed share. {_UNTIMED}",
            "percentunit",
            (Query(_OVERLAP, "{{model}}"),),
        ),
        Panel(
            "Bus bandwidth",
            "Bus bytes over the time with a collective on the wire, as nccl-tests defines it. "
            "Waiting for a late rank counts as time on the wire, so the fastest rank is nearest to "
            "what the network gives, and the slowest may only be early. Small buckets show "
            f"latency, not bandwidth. {_STAGED} {_UNTIMED}",
            "Bps",
            (
                Query(f"max by (job, model) ({_BUSBW})", "{{model}} fastest rank"),
                Query(f"min by (job, model) ({_BUSBW})", "{{model}} slowest rank"),
            ),
        ),
        _WRONG,
        _LOST,
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
                Query(_mean(m.ARRIVAL_LAG, "job, model, rank", "30m"), "{{model}} rank {{rank}}"),
                Query(
                    f"2 * max by (job) ({m.CLOCK_UNCERTAINTY.prometheus_name}{{{_OF_JOB}}})",
                    "uncertainty of two ranks' clocks",
                ),
            ),
        ),
        Panel(
            "Exposed share by rank",
            "The rank with the least is the one that the others wait for, if one of them is late; "
            f"where all have the same, it is the network or the hook. {_UNTIMED}",
            "percentunit",
            (Query(f"avg by (job, model, rank) ({_EXPOSED_SHARE})", "{{model}} rank {{rank}}"),),
        ),
        Panel(
            "Steps a second by rank",
            "All steps that communicated. 0 is a rank that waits, evaluates, writes a checkpoint, "
            "or has ended and still serves; DDP keeps ranks in step, so one that hangs stops all, "
            "and which it is only their stacks tell.",
            "ops",
            (Query(f"sum by (job, model, rank) ({_rate(m.STEPS)})", "{{model}} rank {{rank}}"),),
        ),
        Panel(
            "Step time by rank",
            "Mean from one step's first ready bucket to the next one's. Ranks that communicate in "
            "every step have the same mean, however slow one of them is: who is slow is in the two "
            f"panels above. {_UNTIMED}",
            "s",
            (Query(_mean(m.STEP_PERIOD, "job, model, rank"), "{{model}} rank {{rank}}"),),
        ),
        Panel(
            "Targets",
            "1: Prometheus reads it. 0: it does not answer; the process ended without saying so, "
            "or the port is not reachable. A rank that ended well is gone from here, and so is a "
            "pod that was removed. Everything that the job label selects is listed.",
            "none",
            (Query(f"min by (job, instance) (up{{{_OF_JOB}}})", ""),),
            "table", 24,
        ),
    ),
)  # fmt: skip

_BUCKETS = Dashboard(
    "hooktrace-buckets",
    "hooktrace: buckets and hook",
    "Where the time of a bucket goes, what the hook sends, and what it loses.",
    (
        Panel(
            "Where a bucket's time goes",
            "Mean over all buckets, ranks and steps of the interval, stacked. Queue is derived "
            "from a model of gloo's workers and not measured; wire includes waiting for a late "
            "rank; of an opaque hook only its call (hook) and the wait for its result (pending) "
            "are known. "
            f"Buckets overlap, so this is not what a step waits for. {_UNTIMED}",
            "s",
            (Query(_OF_STAGE, "{{model}} {{stage}}"),),
            "stacked",
        ),
        Panel(
            "Time of each bucket",
            "Mean from ready to done, over all ranks. Bucket 0 is the first to be ready. When DDP "
            f"rebuilds its buckets the same number means others: see the last panel. {_UNTIMED} "
            "Buckets from 64 on are one, called other.",
            "s",
            (Query(_mean(m.BUCKET_DURATION, "job, model, bucket"), "{{model}} bucket {{bucket}}"),),
        ),
        Panel(
            "Time of each bucket, 95th percentile",
            f"From ready to done, over all ranks. {_INTERPOLATED} Empty with "
            f"bucket_histograms=False. {_UNTIMED}",
            "s",
            (
                Query(
                    _quantile(0.95, m.BUCKET_DURATION, "job, model, bucket"),
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
                    _last("max", m.STEP_WIRE_BYTES, "job, model, collective, dtype"),
                    "{{model}} {{collective}} {{dtype}}",
                ),
                Query(
                    f"max by (job, model) (sum by (job, model, rank) "
                    f"({m.BUCKET_SIZE.prometheus_name}{{{_OF_MODEL}}}))",
                    "{{model}} gradients",
                ),
            ),
        ),
        Panel(
            "Compression",
            "Gradient bytes over sent bytes of the last step of which both are known, mean over "
            "ranks. Above 1 is no gain by itself: what compressing takes is in the stages, what it "
            "loses in the error.",
            "none",
            (Query(_last("avg", m.COMPRESSION_RATIO, "job, model, hook"), "{{model}} {{hook}}"),),
        ),
        Panel(
            "What the hook loses",
            "Relative L2 distance of probed buckets' results from the lossless average, over one "
            "hour. It is of single steps: error feedback gives back later what is lost here. A "
            "hook that is local by design is not meant to be the average. A percentile is "
            "interpolated between bounds that are up to a factor of 10 apart.",
            "none",
            (
                Query(_quantile(0.5, m.COMPRESSION_ERROR, "job, model, hook", "1h"),
                      "{{model}} {{hook}} median"),
                Query(_quantile(0.95, m.COMPRESSION_ERROR, "job, model, hook", "1h"),
                      "{{model}} {{hook}} p95"),
            ),
        ),
        Panel(
            "What each bucket loses",
            "The last probed error of each bucket, of the rank with the largest: of one step, "
            "which may be some thousand steps old where buckets are probed in turn.",
            "none",
            (
                Query(_last("max", m.BUCKET_ERROR, "job, model, bucket"), "{{model}} {{bucket}}"),
                Query(
                    f"1 - min by (job, model, bucket) "
                    f"({m.BUCKET_COSINE.prometheus_name}{{{_OF_MODEL}}})",
                    "{{model}} {{bucket}}, 1 - cosine",
                ),
            ),
        ),
        Panel(
            "Sizes of buckets",
            "Gradient bytes of each bucket in the present layout, without those from 64 on. What "
            "is sent of them is in the panel above.",
            "bytes",
            (Query(_last("max", m.BUCKET_SIZE, "job, model, bucket"), "{{model}} {{bucket}}"),),
        ),
        Panel(
            "Rebuilds of the buckets",
            "How often DDP has rebuilt them. It does so once, after the first step; a later change "
            "gives the numbers of buckets another meaning, here and in the panels above.",
            "none",
            (Query(_last("max", m.GENERATION, "job, model"), "{{model}}"),),
        ),
    ),
)  # fmt: skip

DASHBOARDS = (_JOB, _RANKS, _BUCKETS)


def rendered() -> Iterator[tuple[str, str]]:
    """Yield each file's name and text; needs the SDK."""
    for dashboard in DASHBOARDS:
        yield f"{dashboard.uid}.json", written(_built(dashboard))


def written(dashboard: Any) -> str:
    """Return the text of a dashboard as it stands in its file."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    return JSONEncoder(sort_keys=True, indent=2).encode(dashboard) + "\n"


def _built(dashboard: Dashboard) -> Any:
    from grafana_foundation_sdk.builders import dashboard as make
    from grafana_foundation_sdk.models.dashboard import DashboardLinkType

    built = (
        make.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags(["hooktrace"])
        .time("now-1h", "now")
        .refresh("30s")
        .link(make.DashboardLink("hooktrace").type(DashboardLinkType.DASHBOARDS).tags(["hooktrace"])
              .include_vars(True).keep_time(True))
    )  # fmt: skip
    for variable in _variables():
        built = built.with_variable(variable)
    for number, panel in enumerate(dashboard.panels, 1):
        built = built.with_panel(_panel(panel).id(number))
    return built.build()


def _variables() -> Iterator[Any]:
    from grafana_foundation_sdk.builders.dashboard import DatasourceVariable, QueryVariable
    from grafana_foundation_sdk.models.dashboard import VariableRefresh, VariableSort

    yield DatasourceVariable("datasource").label("Data source").type("prometheus")
    for name, metric in (("job", m.RUN), ("model", m.STEPS)):
        of = "" if name == "job" else f"{{{_OF_JOB}}}"
        yield (
            QueryVariable(name)
            .label(name.capitalize())
            .datasource(_source())
            .query(f"label_values({metric.prometheus_name}{of}, {name})")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
        )


def _source() -> Any:
    from grafana_foundation_sdk.models.dashboard import DataSourceRef

    return DataSourceRef(type_val="prometheus", uid="${datasource}")


def _panel(panel: Panel) -> Any:
    from grafana_foundation_sdk.builders import common, table, timeseries
    from grafana_foundation_sdk.models.common import StackingMode
    from grafana_foundation_sdk.models.dashboard import DataTransformerConfig

    built: Any = table.Panel() if panel.kind == "table" else timeseries.Panel().min(0)
    if panel.kind == "stacked":
        built = built.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    built = (
        built.title(panel.title)
        .description(panel.description)
        .datasource(_source())
        .unit(panel.unit)
        .height(8)
        .span(panel.width)
    )
    if panel.kind == "table":
        built = built.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    for letter, query in zip("ABCDEFGH", panel.queries, strict=False):
        built = built.with_target(_target(query, panel.kind == "table").ref_id(letter))
    return built


def _target(query: Query, is_table: bool) -> Any:
    from grafana_foundation_sdk.builders.prometheus import Dataquery
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

    target = Dataquery().expr(query.expr).datasource(_source())
    if is_table:
        return target.instant().format(PromQueryFormat.TABLE)
    return target.range().legend_format(query.legend)


if __name__ == "__main__":
    for name, text in rendered():
        Path(*sys.argv[1:] or [FOLDER], name).write_text(text, "utf-8")
