"""Step times of hooks that took turns, from begins that one knows, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from hooktrace.commands.tune.measure import Floats, Setting, Start, against, recorded
from hooktrace.commands.tune.show import Tuned, as_text, sentence
from hooktrace.integrations.tuning.plan import OWN, TURN, folder_of
from hooktrace.integrations.tuning.turns import Files
from hooktrace.records.files import find_records
from hooktrace.records.reader import read_parts
from tests.exporters import records_sample as sample

MS = 1e6


def seen(steps: Mapping[str, float], rounds: int, *, noise: float = 0.0, seed: int = 0) -> Any:
    """Return what a rank writes whose steps take so many ms; the first ones of a turn 5 more."""
    random = np.random.default_rng(seed)
    turns, now, begins = [(OWN, 0)], 0.0, []
    order = [label for _ in range(rounds) for label in random.permutation([*steps])]
    turns += [(str(label), TURN * (i + 1)) for i, label in enumerate(order)]
    for label, _ in turns:
        for step in range(TURN):
            begins.append(now)
            slower = 5 if step < 3 else 0
            now += MS * (steps[label] + slower) * (1 + noise * random.standard_normal())
    return {"begins": [*begins, now], "turns": turns}


def turns(*ranks: Any) -> dict[str, Floats]:
    return Start(Path(), ranks).turns


def plain(step: float, rounds: int, *, noise: float = 0.0) -> Any:
    """Return the steps, ns, by turns of a job as it is."""
    return turns(seen({OWN: step}, rounds, noise=noise, seed=9))[OWN]


def test_turns_without_their_first_steps_over_the_job_as_it_is() -> None:
    """The mean of ranks, whole rounds only, however the start was slower than the job as it is."""
    steps = {OWN: 12.0, "fp16": 9.0, "bf16": 15.0}
    one, cut = seen(steps, 10), seen(steps, 10)
    cut["begins"] = cut["begins"][: -TURN - 1]  # of a rank that was ended before its last turn
    found = turns(one, cut)
    assert {label: len(turns) for label, turns in found.items()} == dict.fromkeys(steps, 9)
    assert found["fp16"] == pytest.approx(9 * MS)
    base = plain(10.0, 12)
    assert base == pytest.approx(10 * MS)
    told = against(found["fp16"], found[OWN], [base])
    assert told == pytest.approx((9 * MS, 0.9, 0.9, 0.9))


def test_intervals_hold_what_is_true_as_often_as_they_say() -> None:
    """Of 100 jobs with noise; drift that all hooks of a round share does not widen them."""
    inside = widths = 0.0
    for seed in range(100):
        one = turns(seen({OWN: 10.0, "fp16": 9.0}, 12, noise=0.1, seed=seed))
        base = plain(10.0, 26, noise=0.1)
        _, _, low, high = against(one["fp16"], one[OWN], [base / base.mean() * 10 * MS])
        inside += low <= 0.9 <= high
        widths += (high - low) / 100
    assert inside >= 90
    assert widths < 0.15


def test_two_starts_of_the_job_that_differ_are_no_trend_of_its_steps() -> None:
    """A jump between them is drift, which is told by itself; each start's steps vary little."""
    one = turns(seen({OWN: 10.0, "fp16": 9.0}, 12, noise=0.02))
    bases = [plain(8.0, 12, noise=0.02), plain(12.0, 12, noise=0.02)]
    _, ratio, low, high = against(one["fp16"], one[OWN], bases)
    assert ratio == pytest.approx(9 / np.sqrt(8.0 * 12.0), rel=0.02)
    assert high / low < 1.08


def test_settings_are_told_by_turns_and_record_files(tmp_path: Path) -> None:
    """Medians of what counts and the largest error, of each hook's own steps."""
    steps = [sample.make_step(step) for step in (*range(1, 4), *range(10, 15))]
    steps[:2] = [(replace(x, warmup=True, exposed_ns=999), of_step) for x, of_step in steps[:2]]
    steps[-1] = (replace(steps[-1][0], complete=False, exposed_ns=999), steps[-1][1])
    steps.append(sample.probed(sample.make_step(15)))
    files = Files(tmp_path, ["a", OWN], lambda step: "a" if step < 10 else OWN)
    files.export(replace(sample.make_batch(0, steps=0), steps=tuple(steps)))
    files.close()
    for label, count in (("a", 3), (OWN, 6)):
        ((_, paths),) = find_records(folder_of(tmp_path, label)).items()
        assert len(read_parts(paths).steps) == count
    start = Start(tmp_path, [seen({"a": 9.0, OWN: 10.0}, 12)], cap=5.0)
    a, own = start.settings([plain(10.0, 12)])
    exposed = sample.make_step(1)[0].exposed_ns
    assert (a.hook, a.cap, a.exposed_ns, a.wire_bytes, a.error) == ("a", 5.0, exposed, 4000, None)
    assert (a.step_ns, a.ratio) == pytest.approx((9 * MS, 0.9))
    assert (own.hook, own.exposed_ns, own.error) == (OWN, exposed, 0.25)
    assert recorded(tmp_path / "none") == (None, None, None)


def setting(hook: str, ratio: float, spread: float, **more: Any) -> Setting:
    found = (ratio * 10 * MS, ratio, ratio - spread, ratio + spread)
    cap = more.pop("cap", 25.0)
    return Setting(hook, cap, *found, exposed_ns=1e6, wire_bytes=2e6, **more)


def tuned(*settings: Setting, drift: float | None = 1.001) -> Tuned:
    return Tuned(
        model="Net", own_hook="ddp_allreduce", own_cap=25.0, ranks=2, step_ns=10 * MS, drift=drift,
        settings=sorted(settings, key=lambda one: one.ratio), refused={"bf16": "no."},
        notes=[], folder="runs/tune",
    )  # fmt: skip


def test_a_winner_and_its_lines() -> None:
    """With what it loses, and what to write."""
    found = tuned(
        setting("powersgd-rank4", 0.8, 0.02, error=2e-4), setting(OWN, 1.0, 0.01),
        setting("allreduce", 0.9, 0.02),
    )  # fmt: skip
    assert sentence(found) == (
        "powersgd-rank4 at 25 MB: steps 20 % (18 to 22) shorter than the job's as it is, relative "
        "error 0.0002."
    )
    text = " ".join(as_text(found).split())
    assert "It loses a part of the gradients." in text
    assert "Nothing is lost by allreduce at 25 MB: -10.0 % (-12.0 to -8.0)." in text
    assert "bf16 was left out: no." in text
    assert (
        "hooktrace.instrument(ddp, hooktrace.hooks.powerSGD_hook, "
        "hooktrace.hooks.PowerSGDState(None, matrix_approximation_rank=4))"
    ) in text
    assert "HOOKTRACE_HOOK=powersgd-rank4 with hooktrace run" in text
    assert "It averages plainly before start_powerSGD_iter, 1,000 steps by default." in text


@pytest.mark.parametrize("other", [setting(OWN, 0.94, 0.01), setting("allreduce", 0.97, 0.01)])
def test_nothing_lossless_beside_the_winner_but_what_wins_too(other: Setting) -> None:
    """The job as it is is not faster than itself, and what is within that is noise."""
    found = tuned(setting("fp16", 0.5, 0.02, error=2e-4), other, setting(OWN, 0.945, 0.01))
    assert found.winner is not None
    assert "Nothing is lost by" not in as_text(found)


def test_the_jobs_own_hook_is_no_plain_average() -> None:
    """It may lose something; without one it is torch's average that is faster in other buckets."""
    own = setting(OWN, 0.8, 0.02, error=2e-4, cap=5.0)
    found = tuned(own, setting(OWN, 1.0, 0.01))
    assert sentence(found).startswith("The plain average at 5 MB: steps 20 % (18 to 22) shorter")
    assert "It loses a part of the gradients." not in as_text(found)
    found = replace(found, own_hook="fp16_compress_hook")
    assert sentence(found).startswith("The hook that the job has at 5 MB: steps 20 %")
    assert "It loses a part of the gradients." in as_text(found)


def test_nothing_else_to_try_is_said() -> None:
    """As where all hooks were left out, and where one start alone says how long a step is."""
    found = tuned(setting(OWN, 1.0, 0.01), drift=None)
    assert found.winner is None
    assert sentence(found) == "There was nothing to try beside the job as it is."
    assert "How far the job as it is drifts is not known: it ran once." in as_text(found)


@pytest.mark.parametrize(
    ("best", "own", "drift", "noise"),
    [
        (setting("fp16", 0.98, 0.02), 1.0, 1.001, "2.3"),  # the better of two
        (setting("fp16", 0.95, 0.01), 1.0, 1.08, "8.0"),
        (setting("fp16", 0.96, 0.01), 0.95, 1.001, "5.0"),
    ],
)
def test_what_is_no_more_than_noise_wins_nothing(
    best: Setting, own: float, drift: float, noise: str
) -> None:
    """Of the turns, of the job between its two starts, or of its own hook in its own place."""
    found = tuned(best, setting(OWN, own, 0.01), drift=drift)
    assert found.winner is None
    assert sentence(found) == (
        f"Nothing beats the job as it is by more than the noise ({noise} %)."
    )
    assert "To use it" not in as_text(found)
