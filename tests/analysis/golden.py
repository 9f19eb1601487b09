"""What all views say of each job, as text: one file a job in ``golden/``, which tests compare.

    python -m tests.analysis.golden    # writes all of them anew, after a change that is meant

A redraw changes no file there; where one changes, its diff is what a user will see differently.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import numpy as np
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from hooktrace.analysis.compare import compare_runs, measure
from hooktrace.analysis.frames import load as load_frames
from hooktrace.analysis.perfetto import export
from hooktrace.analysis.report import build_report
from hooktrace.analysis.tensorboard_plugin.heat_map import VALUES
from hooktrace.analysis.tensorboard_plugin.plugin import CommTimeline
from hooktrace.testing.synthetic import SyntheticJob, write_job
from tests.analysis.compare.jobs import BASE as _BASE
from tests.analysis.jobs import JOBS
from tests.analysis.perfetto.trace_events import read
from tests.analysis.runs import run_in
from tests.analysis.shown import printed

HERE = Path(__file__).with_name("golden")
RECORDED = Path(__file__).with_name("recorded")
"""Record files of real runs, a zip archive each (``record.py``)."""

COMPARED: dict[str, tuple[SyntheticJob, SyntheticJob]] = {
    name: (replace(_BASE, **a), replace(_BASE, seed=1, **b))
    for name, a, b in (
        ("compared, alike", {}, {}),
        ("compared, fp16", {}, {"hook": "fp16", "wire_share": 0.5, "codec_ms": 1.0}),
        ("compared, late", {}, {"late_ms": {1: 6.0}}),
        ("compared, late and no clocks", {"clocks": False}, {"late_ms": {1: 6.0}}),
        ("compared, errors", {"error": 0.01}, {"hook": "powerSGD_hook", "error": 0.3}),
        ("compared, other buckets", {}, {"bucket_bytes": (8_000_000,) * 4}),
        ("compared, another model", {}, {"bucket_bytes": (1_000_000,) * 8, "steps": 200}),
        ("compared, few steps", {}, {"steps": 20}),
    )
}
"""Two runs, by what the second one differs in."""

_WIDTH = 150


REAL = sorted(path.stem for path in RECORDED.glob("*.zip"))


def names() -> list[str]:
    """Return the jobs, made-up and recorded, and the comparisons."""
    return [*JOBS, *REAL, *COMPARED]


def write(name: str, folder: Path) -> None:
    """Write the record files of a job."""
    if name in JOBS:
        JOBS[name](folder)
    else:
        with ZipFile(RECORDED / f"{name}.zip") as archive:
            archive.extractall(folder)


def path_of(name: str) -> Path:
    """Return where what is said of a job stands."""
    return HERE / f"{name.replace(', ', '-').replace(' ', '-')}.txt"


def said_of(name: str) -> str:
    """Return what report, comparison, tab, frames and Perfetto file say of a job."""
    with TemporaryDirectory() as root:
        folder = Path(root, "run")
        if name in COMPARED:
            parts = [_comparison(*COMPARED[name], folder)]
        else:
            write(name, folder)
            parts = [_report(folder), *_tab(folder), *_frames(folder), _trace(folder)]
    return "\n".join(line.rstrip() for part in parts for line in part.splitlines()) + "\n"


def _report(folder: Path) -> str:
    return "# report\n" + printed(build_report(run_in(folder)), _WIDTH)


def _comparison(a: SyntheticJob, b: SyntheticJob, folder: Path) -> str:
    sides = []
    for name, job in (("a", a), ("b", b)):
        write_job(job, folder / name)
        found = measure(run_in(folder / name), job.model, name)
        assert found is not None
        sides.append([found])
    return printed([compare_runs(*sides)], _WIDTH)


def _tab(folder: Path) -> Iterator[str]:
    apps = CommTimeline(TBContext(logdir=str(folder))).get_plugin_apps()

    def ask(route: str, **parameters: Any) -> Any:
        response = Client(apps[route]).get(route, query_string={"run": ".", **parameters})
        return json.loads(response.get_data())

    yield "# tab"
    for model in ask("/run")["models"]:
        name, extent = model["name"], model["extent"]
        summary = ask("/summary", model=name)
        bands = summary.pop("bands", {})
        for kind in ("slowest", "exposed", "anomalies"):
            summary[kind] = summary.get(kind, [])[:3]
        yield f"summary {_line(summary)}"
        yield f"bands {_line({k: {x: sum(v) for x, v in b.items()} for k, b in bands.items()})}"
        yield f"paths {_line(ask('/path_sums', model=name))}"
        step = ask("/step", model=name)
        yield f"step {_line(step)}"
        if "step" in step:
            yield f"path {_line(ask('/path', model=name, step=step['step'])['parts'])}"
        for value in VALUES:
            heat = ask("/heat", model=name, value=value, columns=1000)
            said = {k: heat[k] for k in ("low", "high", "unknown", "unsure")}
            yield f"heat {value} {_line(said | {'sum': sum(heat['cells'])})}"
        selected = ask("/selection", model=name, t0=0, t1=extent + 1)
        rows = [*selected.pop("stages"), *selected.pop("buckets")[:2]]
        yield f"selection {_line(selected)}"
        yield from (_line({k: v for k, v in row.items() if k != "histogram"}) for row in rows)


def _frames(folder: Path) -> Iterator[str]:
    frames = load_frames(folder)
    for name in ("steps", "buckets", "stages", "waits", "ranks", "models"):
        table = getattr(frames, name)
        yield f"# {name}\n{len(table)} rows: " + ", ".join(
            f"{column} {_sum(table[column])}" for column in table if column not in _WHOSE
        )


_WHOSE = ("model", "hook", "rank", "step", "generation", "bucket", "time")


def _sum(column: Any) -> str:
    """Return how many values of a column are known, and their sum, or which they are."""
    known = column.compressed()
    if column.dtype == object:
        return f"{len(known)} {'|'.join(sorted(map(str, set(known))))}"
    numbers = known.astype(np.float64)
    return f"{np.count_nonzero(~np.isnan(numbers))} {np.nansum(numbers):.9g}"


def _trace(folder: Path) -> str:
    export(run_in(folder), folder / "trace.json")
    sums: dict[str, list[float]] = {}
    for event in read(folder / "trace.json")["traceEvents"]:
        kind = f"{event['ph']} {event.get('cat', event.get('name'))}"
        of = sums.setdefault(kind, [0, 0.0])
        of[0] += 1
        of[1] += event.get("dur", 0.0)
    lines = (f"{kind}: {count}, {us:.3f} us" for kind, (count, us) in sorted(sums.items()))
    return "# trace\n" + "\n".join(lines)


def _line(found: Any) -> str:
    return json.dumps(_rounded(found), sort_keys=True)


def _rounded(found: Any) -> Any:
    """Return the same, floats to nine digits: their last ones depend on the processor."""
    if isinstance(found, float):
        return float(f"{found:.9g}")
    if isinstance(found, dict):
        return {key: _rounded(value) for key, value in found.items()}
    return [_rounded(value) for value in found] if isinstance(found, list) else found


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    for each in names():
        path_of(each).write_text(said_of(each), "utf-8")
