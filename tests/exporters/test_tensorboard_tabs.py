"""What Custom Scalars are told, as TensorBoard reads it."""

from __future__ import annotations

import re
import subprocess
import sys

from tensorboard.plugins.custom_scalar import layout_pb2

from hooktrace.exporters.tensorboard_tabs import charts


def test_one_chart_has_the_errors_of_all_buckets_of_any_model() -> None:
    layout = layout_pb2.Layout.FromString(charts().tensor.string_val[0])
    error, *_ = layout.category[0].chart
    (pattern,) = error.multiline.tag
    assert re.match(pattern, "hooktrace.a%2Fb.c.error/error_bucket31")
    assert not re.match(pattern, "hooktrace.net/exposed_ms")


def test_neither_torch_nor_tensorflow_is_imported() -> None:
    code = (
        "import sys, hooktrace.exporters.tensorboard_tabs\n"
        "assert not {'torch', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
