"""Makes the Grafana dashboards: ``python -m dashboards.generate``, with Grafana's SDK.

    queries.py, *panels.py --DASHBOARDS--> grafana-foundation-sdk --> *.json beside it

    python3 -m venv .venv-grafana
    .venv-grafana/bin/pip install 'grafana-foundation-sdk==1769699379!11.6.0' msgspec lazy-loader
    .venv-grafana/bin/python -m dashboards.generate

``tests/dashboards`` holds the files equal to what this makes, and asks a real Prometheus each
query.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hooktrace.records import metrics as m

from .panels import DASHBOARDS
from .queries import OF_JOB, Dashboard, Panel, Query

__all__ = ["rendered", "written"]

FOLDER = Path(__file__).parent


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
        of = "" if name == "job" else f"{{{OF_JOB}}}"
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
