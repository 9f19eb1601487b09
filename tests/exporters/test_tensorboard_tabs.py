"""What Custom Scalars and HParams are told, as TensorBoard reads it."""

from __future__ import annotations

import re
import subprocess
import sys

from msgspec.structs import replace
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata

from hooktrace.exporters.tensorboard_tabs import charts, session
from hooktrace.testing.synthetic_shards import ShardedJob
from tests.exporters import records_sample as sample


def test_one_chart_has_the_errors_of_all_buckets_of_any_model() -> None:
    layout = layout_pb2.Layout.FromString(charts().tensor.string_val[0])
    error, *_ = layout.category[0].chart
    (pattern,) = error.multiline.tag
    assert re.match(pattern, "hooktrace.a%2Fb.c.error/error_bucket31")
    assert not re.match(pattern, "hooktrace.net/exposed_ms")


def test_a_run_is_a_row_with_hook_cap_and_ranks() -> None:
    layout = replace(
        sample.make_layout(), hook_options=(("rank", 2), ("warm", True)), bucket_cap_bytes=5 << 19
    )
    experiment, start = session(sample.make_run(), layout)
    told = metadata.parse_session_start_info_plugin_data(start.metadata.plugin_data.content)
    values = {
        name: value.string_value or value.number_value for name, value in told.hparams.items()
    }
    run = sample.make_run()
    assert values == {
        "hook": sample.HOOK, "hook_options": "rank=2, warm=True", "bucket_cap_mb": "2.5",
        "ranks": run.world_size,
    }  # fmt: skip
    compared = metadata.parse_experiment_plugin_data(experiment.metadata.plugin_data.content)
    assert compared.metric_infos[0].name.tag == f"hooktrace.{sample.MODEL}/exposed_ms"
    assert {info.name for info in compared.hparam_infos} == set(values)


def test_a_cap_that_is_not_known_is_said_to_be() -> None:
    _, start = session(sample.make_run(), sample.make_layout())
    told = metadata.parse_session_start_info_plugin_data(start.metadata.plugin_data.content)
    assert told.hparams["bucket_cap_mb"].string_value == "unknown"


def test_a_sharded_model_has_no_cap() -> None:
    """Its units are what ``fully_shard`` was called for."""
    _, start = session(sample.make_run(), ShardedJob().layout())
    told = metadata.parse_session_start_info_plugin_data(start.metadata.plugin_data.content)
    assert told.hparams["bucket_cap_mb"].string_value == "none"


def test_neither_torch_nor_tensorflow_is_imported() -> None:
    code = (
        "import sys, hooktrace.exporters.tensorboard_tabs\n"
        "assert not {'torch', 'tensorflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
