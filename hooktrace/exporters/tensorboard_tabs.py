"""What TensorBoard's own tabs are told once: charts of many buckets, and how runs differ.

    charts()  -> Custom Scalars: one chart of all buckets' errors in place of one a bucket
    session() -> HParams: hook, bucket cap, ranks, and which scalars a table of runs compares

tensorboard's own helpers for both import TensorFlow; its protocol buffers do not.  Importing this
imports tensorboard.
"""

from __future__ import annotations

from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams

from ..records import LayoutRecord, RunInfo
from .tensorboard_tags import COMPARED, group_of, tag_of

_CHARTS = (
    ("relative error of all buckets or units", r"hooktrace\..*\.error/error_(bucket|unit).*"),
    ("cosine of all buckets or units", r"hooktrace\..*\.error/cosine_(bucket|unit).*"),
    (
        "residual of all buckets or units, with error feedback",
        r"hooktrace\..*\.error/residual_(bucket|unit).*",
    ),
    ("exposed and step period, ms", r"hooktrace\.[^/]*/(exposed_ms|step_period_ms)"),
)
_HPARAMS = (
    ("hook", "DATA_TYPE_STRING"),
    ("hook_options", "DATA_TYPE_STRING"),
    ("bucket_cap_mb", "DATA_TYPE_STRING"),
    ("ranks", "DATA_TYPE_FLOAT64"),
)
"""``bucket_cap_mb`` is a word where it is not known, and of a sharded model, which has none."""


def charts() -> Summary.Value:
    """Return the layout of Custom Scalars, of whatever models the runs have."""
    layout = layout_pb2.Layout(
        category=[
            layout_pb2.Category(
                title="hooktrace",
                chart=[
                    layout_pb2.Chart(
                        title=title, multiline=layout_pb2.MultilineChartContent(tag=[tags])
                    )
                    for title, tags in _CHARTS
                ],
            )
        ]
    )
    tensor = TensorProto(
        dtype=DT_STRING,
        tensor_shape=TensorShapeProto(),
        string_val=[layout.SerializeToString()],
    )
    metadata = custom.create_summary_metadata()
    return Summary.Value(tag=custom.CONFIG_SUMMARY_TAG, tensor=tensor, metadata=metadata)


def session(run: RunInfo, layout: LayoutRecord) -> list[Summary.Value]:
    """Return what makes this run a row of the HParams table.

    ``layout``: of the first model, whose hook and scalars the table has.
    """
    experiment = api_pb2.Experiment(
        hparam_infos=[
            api_pb2.HParamInfo(name=name, type=getattr(api_pb2, kind)) for name, kind in _HPARAMS
        ],
        metric_infos=[
            api_pb2.MetricInfo(
                name=api_pb2.MetricName(tag=tag_of(group_of(layout.model), name)),
                display_name=name,
                dataset_type=api_pb2.DATASET_TRAINING,
            )
            for name in COMPARED
        ],
    )
    start = plugin_data_pb2.SessionStartInfo(start_time_secs=run.wall_anchor_ns / 1e9)
    cap = layout.bucket_cap_bytes
    sharded = any(entry.unit is not None for entry in layout.buckets)
    unknown = "none" if sharded else "unknown"
    values: dict[str, str | float] = {
        "hook": layout.hook,
        "hook_options": ", ".join(f"{name}={value}" for name, value in layout.hook_options),
        "bucket_cap_mb": unknown if cap is None else f"{cap / 2**20:g}",
        "ranks": run.world_size,
    }
    for name, value in values.items():
        if isinstance(value, str):
            start.hparams[name].string_value = value
        else:
            start.hparams[name].number_value = value
    return [
        _of_hparams(hparams.EXPERIMENT_TAG, experiment=experiment),
        _of_hparams(hparams.SESSION_START_INFO_TAG, session_start_info=start),
    ]


def _of_hparams(tag: str, **content: Any) -> Summary.Value:
    metadata = hparams.create_summary_metadata(plugin_data_pb2.HParamsPluginData(**content))
    return Summary.Value(tag=tag, tensor=hparams.NULL_TENSOR, metadata=metadata)
