"""The two subcommands on a calibrated run of which one knows what others would have been."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hooktrace.analysis.whatif.answer import LIMITS
from hooktrace.analysis.whatif.words import latency
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.report.test_command import Page, call
from tests.analysis.whatif.calibrated_run import written
from tests.analysis.whatif.truth import Truth


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An all-reduce of 25 MB over 800 Mbit/s, whose step is mostly the wire."""
    folder = tmp_path_factory.mktemp("calibrated")
    written(Truth(steps=40), folder)
    return folder


def test_predictions_in_the_terminal_and_as_json(run: Path) -> None:
    """Of hooks and buckets that were asked for; the truth is inside of each interval."""
    asked = ("--hook", "fp16", "--hook", "powersgd", "--bucket-cap-mb", 5)
    shown = call("whatif", run, *asked)
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("Measured: net, allreduce, buckets of 25 MB, 2 ranks on gloo")
    assert shown.output.rstrip().endswith(LIMITS)
    found = msgspec.json.decode(call("whatif", run, *asked, "--json").output)
    fields = [(one["hook"], one["bucket_cap_mb"], one["lossy"]) for one in found["predictions"]]
    assert fields == [("fp16", 5.0, True), ("powersgd", 5.0, True)]
    assert found["schema"] == 1
    for one in found["predictions"]:
        assert one["low_ms"] < one["step_ms"] < one["high_ms"]
        assert one["step_ms"] < found["measured"]["step_ms"]


def test_another_network_and_more_ranks(run: Path) -> None:
    """On a fast one the step is shorter; the run's own configuration is predicted there too."""
    found = msgspec.json.decode(
        call("whatif", run, "--hook", "fp16", "--network", "100gbit,5us", "--ranks", 16,
             "--per-host", 8, "--json").output
    )  # fmt: skip
    network = {
        "bytes_per_second": 12.5e9, "latency_ns": 5e3, "per_host": 8, "is_fitted": False,
    }  # fmt: skip
    assert found["baseline"]["network"] == network
    assert found["baseline"]["ranks"] == 16
    assert found["baseline"]["step_ms"] < found["replayed"]["step_ms"] / 2


def test_a_network_without_a_latency_has_the_runs_own(run: Path) -> None:
    """Which is said; with one it is that one, and nothing is."""
    bare = msgspec.json.decode(call("whatif", run, "--network", "25gbit", "--json").output)
    own = bare["replayed"]["network"]["latency_ns"]
    assert own > 0
    assert bare["baseline"]["network"]["latency_ns"] == own
    said = f"--network names no latency, so a message takes {latency(own)}, as in this run; name "
    assert said in " ".join(bare["baseline"]["doubts"])
    named = msgspec.json.decode(call("whatif", run, "--network", "25gbit,0us", "--json").output)
    assert named["baseline"]["network"]["latency_ns"] == 0
    assert "--network" not in " ".join(named["baseline"]["doubts"])


def test_advice_is_ranked_and_has_its_code(run: Path) -> None:
    """Where the wire is most of the step; the same as JSON."""
    shown = call("advise", run)
    assert shown.exit_code == 0, shown.output
    assert "Predicted to be worth a change" in shown.output
    assert "instrument(ddp, hooks.powerSGD_hook, state)" in shown.output
    found = msgspec.json.decode(call("advise", run, "--json").output)
    steps = [one["step_ms"] for one in found["advice"]]
    assert steps == sorted(steps)
    assert 1 <= len(steps) <= 5
    assert found["advice"][0]["hook"] == "powersgd"
    assert all(0 < one["gain_low_ms"] <= one["gain_ms"] for one in found["advice"])


def test_a_command_is_run_for_a_verification_only(run: Path) -> None:
    """And the demo is none of this run's model."""
    shown = call("advise", run, "--", "torchrun", "train.py", "--lr", 1)
    assert shown.exit_code == 2
    assert "torchrun train.py --lr 1 is run with --verify only; pass --verify --" in shown.output
    shown = call("advise", run, "--verify")
    assert shown.exit_code == 2
    assert "this run is of net; pass the command that started it too" in shown.output
    assert "Measured" not in shown.output


def test_page_and_predicted_runs(run: Path, tmp_path: Path) -> None:
    """The page has advice, sweep and table and loads nothing; a run for each prediction."""
    html, logs = tmp_path / "whatif.html", tmp_path / "predicted"
    shown = call("whatif", run, "--hook", "fp16", "--hook", "powersgd", "--html", html,
                 "--write", logs)  # fmt: skip
    assert shown.exit_code == 0, shown.output
    page = Page(html.read_text("utf-8"))
    assert page.tags.count("svg") == 1
    assert "hooks.powerSGD_hook" in page.text
    assert not [v for k, v in page.attributes if k in ("src", "href")]
    assert sorted(path.name for path in logs.iterdir()) == ["fp16-25mb", "powersgd-25mb"]
    records = read_parts(find_records(logs / "powersgd-25mb")[0])
    assert {s.hook for s in records.steps} == {"powersgd (predicted)"}
    rounds = [len([s for s in b.stages if s.name == "wire"]) for b in records.buckets]
    assert set(rounds) == {2}
    assert all(s.start_ns <= s.end_ns for b in records.buckets for s in b.stages)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--hook", "fp17"), "pass --hook one of allreduce"),
        (("--hook", "noop"), "(those that do not average over all ranks never are); pass --ho"),
        (("--bucket-cap-mb", "0"), "pass --bucket-cap-mb above 0"),
        (("--bucket-cap-mb", "inf"), "pass --bucket-cap-mb above 0, as 25"),
        (("--per-host", "8"), "a host cannot have 8 of 2 ranks; pass --per-host 2 or less"),
        (("--write", "/proc/none", "--hook", "fp16"), "pass --write a directory that you may wri"),
        (("--ranks", "0"), "pass --ranks 1 or more"),
        (("--model", "other"), "pass --model one of net"),
        (("--network", "fast"), "25gbit"),
    ],
)
def test_what_cannot_be_predicted_is_said_with_its_remedy(
    run: Path, arguments: tuple[str, ...], why: str
) -> None:
    """As a line, and exit code 2."""
    shown = call("whatif", run, *arguments)
    assert shown.exit_code == 2, shown.output
    assert why in shown.output


def test_a_run_without_a_calibration_says_how_to_get_one(tmp_path: Path) -> None:
    """Both subcommands."""
    write_job(SyntheticJob(ranks=2, steps=30), tmp_path)
    for command in ("whatif", "advise"):
        shown = call(command, tmp_path)
        assert shown.exit_code == 2
        assert "Tracer(calibrate=True)" in shown.output
