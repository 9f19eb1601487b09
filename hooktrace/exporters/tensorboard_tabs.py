"""TensorBoard's Custom Scalars: one chart of the errors of all buckets, in place of one a bucket.

tensorboard's own helper for it imports TensorFlow; its protocol buffers do not.  Importing this
imports tensorboard.
"""

from __future__ import annotations

from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import metadata as custom

_CHARTS = (
    ("relative error of all buckets or units", r"hooktrace\..*\.error/error_(bucket|unit).*"),
    (
        "residual of all buckets or units, with error feedback",
        r"hooktrace\..*\.error/residual_(bucket|unit).*",
    ),
    ("exposed and step period, ms", r"hooktrace\.[^/]*/(exposed_ms|step_period_ms)"),
)


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
