"""What all views say of each job, as text: one file a job in ``golden/``, which tests compare.

Of some jobs (``TOLD``) it is the findings alone, of some (``SEEN``) also what one sees of it close
by: a bucket's numbers, the picture, a search, the page, the rows and marks of the Perfetto file.

    python -m tests.analysis.golden    # writes all of them anew, after a change that is meant

A redraw changes no file there; where one changes, its diff is what a user will see differently.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

import numpy as np

from hooktrace.analysis.compare import Comparison, compare_runs
from hooktrace.analysis.document.tree import Table, Text
from hooktrace.analysis.frames import load as load_frames
from hooktrace.analysis.hang import document as hang_document
from hooktrace.analysis.perfetto import export
from hooktrace.analysis.report import RunReport, build_report
from hooktrace.analysis.report import view as report_view
from hooktrace.analysis.run import Run, hangs
from hooktrace.analysis.tensorboard_plugin.heat_map import VALUES
from hooktrace.exporters.retention import Retention
from tests.analysis.jobs import JOBS, kept, of, plain, two_models
from tests.analysis.perfetto.trace_events import read
from tests.analysis.runs import BASE, asking, measured, run_in
from tests.analysis.sharded_jobs import UNITS
from tests.analysis.shown import Page, lines_of, page_of, printed
from tests.analysis.told import TOLD

HERE = Path(__file__).with_name("golden")
RECORDED = Path(__file__).with_name("recorded")
"""Record files of real runs, a zip archive each (``record.py``)."""

_ONE = {"bucket_bytes": (8_000_000,), "codec_ms": 0.05}
_HALF = {**_ONE, "codec_ms": 1.05, "wire_share": 0.5, "hook": "fp16_compress_hook"}
_UNITS = replace(UNITS, steps=60)
_AGAIN = replace(BASE, seed=1)
_NO_BUCKETS = Retention(first_steps=0, window_steps=0, extra_share=0.0)


COMPARED: dict[str, tuple[Any, Any]] = {
    name: (replace(BASE, **a), replace(_AGAIN, **b))
    for name, a, b in (
        ("compared, alike", {}, {}),
        ("compared, fp16", {}, {"hook": "fp16", "wire_share": 0.5, "codec_ms": 1.0}),
        ("compared, late", {}, {"late_ms": {1: 6.0}}),
        ("compared, late in both", {"late_ms": {1: 6.0}}, {"late_ms": {1: 20.0}}),
        ("compared, late and no clocks", {"clocks": False}, {"late_ms": {1: 6.0}}),
        ("compared, errors", {"error": 0.01}, {"hook": "powerSGD_hook", "error": 0.3}),
        ("compared, other buckets", {}, {"bucket_bytes": (8_000_000,) * 4}),
        ("compared, another model", {}, {"bucket_bytes": (1_000_000,) * 8, "steps": 200}),
        ("compared, few steps", {}, {"steps": 20}),
        ("compared, one step", {}, {"steps": 1}),
        ("compared, slow network", {}, {"bytes_per_second": 2.5e8}),
        ("compared, slow forward", {}, {"forward_ms": 50.0, "hook": "fp16_compress_hook"}),
        ("compared, late or slow at times", {"late_ms": {1: 4.0}}, {"slow_every": 4}),
        ("compared, half the bytes", _ONE, _HALF),
        ("compared, less sent by one hook", {}, {"wire_share": 0.5}),
    )
} | {
    "compared, one of two models": (two_models, lambda folder: two_models(folder, 3 * 10**9)),
    "compared, units": (_UNITS, replace(_UNITS, gather_ms=9.0)),
    "compared, units and buckets": (BASE, _UNITS),
    "compared, units in two passes": (_UNITS, replace(_UNITS, micro_steps=2)),
    "compared, a plain hook": (BASE, of(_AGAIN, plain)),
    "compared, one file of three": (BASE, of(_AGAIN, files=1)),
    "compared, without buckets": (BASE, kept(_AGAIN, _NO_BUCKETS)),
}  # fmt: skip
"""Two runs, by what the second one differs in."""

SEEN = (
    "large last, alone", "late", "late, clocks unknown", "late, one file of three",
    "late and checked", "on devices", "hung for a while", "sharded, with a codec",
    "sharded, in replicas", "hung",
    "other collectives", "other collectives without an end",
)  # fmt: skip
"""Jobs that are also seen close by."""
_CLOSE = " seen close"

_WIDTH = 150


REAL = sorted(path.stem for path in RECORDED.glob("*.zip"))


def names() -> list[str]:
    """Return the jobs, made-up and recorded, the comparisons, and jobs seen close by."""
    return [*JOBS, *REAL, *COMPARED, *TOLD, *(name + _CLOSE for name in SEEN)]


def write(name: str, folder: Path) -> None:
    if name in JOBS or name in TOLD:
        (JOBS if name in JOBS else TOLD)[name](folder)
    else:
        with ZipFile(RECORDED / f"{name}.zip") as archive:
            archive.extractall(folder)


def path_of(name: str) -> Path:
    """Return where what is said of a job stands."""
    return HERE / f"{name.replace(', ', '-').replace(' ', '-').replace(chr(39), '')}.txt"


def said_of(name: str) -> str:
    """Return what report, comparison, tab, frames and Perfetto file say of a job."""
    with TemporaryDirectory() as root:
        folder = Path(root, "run")
        job = name.removesuffix(_CLOSE)
        if name in COMPARED:
            parts = [printed([_comparison(COMPARED[name], folder)], _WIDTH)]
        elif job != name:
            write(job, folder)
            parts = [*_close(folder)]
        else:
            write(name, folder)
            parts = [_told(folder)] if name in TOLD else [*_all(folder)]
    return "\n".join(line.rstrip() for part in parts for line in part.splitlines()) + "\n"


def _all(folder: Path) -> Iterator[str]:
    yield "# report\n" + printed(build_report(run_in(folder)), _WIDTH)
    yield from (*_tab(folder), *_frames(folder), _trace(folder))


def _told(folder: Path) -> str:
    run = run_in(folder)
    report = build_report(run)
    # The run's own two lines, tables, parameters and what is not recorded are in other files.
    nodes = [*report_view.document(report)][2:]
    soft = [n for n in nodes if isinstance(n, Text) and n.tone == "soft"]
    shown = [n for n in nodes if not (isinstance(n, Table) or n in soft)]
    lines = lines_of(shown, _WIDTH).splitlines()
    others = re.compile(r"^$|^ (parameters|sharded) | no(ne|t) recorded")
    text = "\n".join(one for one in lines if not others.search(one))
    return "\n".join(["# findings", text, *_findings(report), *_hang(run)])


def _findings(report: RunReport) -> Iterator[str]:
    """Yield what programs read of each finding, beside its sentence."""
    for one in (*report.findings, *(x for model in report.models for x in model.findings)):
        fields = ("rule", "rank", "bucket", "steps", "gain_ns", "severity", "is_small", "is_wrong")
        yield _line({name: getattr(one, name) for name in fields if getattr(one, name)})


def _hang(run: Run, **stacks: Any) -> Iterator[str]:
    """Yield what ``hooktrace hang`` prints 95.4 s after the first hang began."""
    if found := hangs(run):
        now = found[0].record.since_wall_ns + 95_400_000_000
        yield "# hang\n" + lines_of(hang_document(run, found, now, **stacks), _WIDTH)


def _close(folder: Path) -> Iterator[str]:
    run = run_in(folder)
    report = build_report(run)
    yield from ("# findings", *_findings(report), *_hang(run, stacks=True))
    ask = _asking(folder)
    yield "# bucket"
    for model in ask("/run")["models"]:
        of = {"model": model["name"]}
        step = ask("/step", **of)
        for track, bucket in ((run.tracks[0], 0), (run.tracks[-1], 3)):
            yield _line(ask("/bucket", **of, rank=track.rank, step=step["step"], bucket=bucket))
        yield "# search"
        for text in ("2", "layers.1", "blocks.1"):
            found = ask("/search", **of, text=text)
            yield f"{text}: {_line(found)}" if found["results"] else f"{text}: nothing"
        yield "# picture"
        extent = model["extent"]
        yield _line(model)
        for t0, t1, width in ((0, extent // 8, 4000), (extent // 2, extent, 300)):
            yield from _drawn(ask("/view", **of, t0=t0, t1=t1, width=width))
    yield _page(report)
    export(run, folder / "trace.json")
    content = read(folder / "trace.json")
    yield f"# trace\n{_line(content['otherData'])}"
    yield from _rows_and_marks(content["traceEvents"])


def _asking(folder: Path) -> Callable[..., Any]:
    """Return what asks the tab, whose answers also tell how much of the files was read."""
    ask, progress = asking(folder), ("version", "read_bytes", "total_bytes")
    return lambda *route, **of: {k: v for k, v in ask(*route, **of).items() if k not in progress}


def _drawn(view: dict[str, Any]) -> Iterator[str]:
    """Yield what is drawn: of each column how many values all ranks have, and their sum."""
    sums: dict[str, Counter[str]] = {}
    for rank in view.pop("ranks"):
        for kind, columns in rank.items():
            if isinstance(columns, dict):
                for name, values in columns.items():
                    sums.setdefault(kind, Counter())[name] += sum(values)
                    sums[kind]["times"] += len(values)
            elif columns and kind != "rank":
                yield f"{kind} of rank {rank['rank']}: {_line(columns)}"
    yield _line(view)
    yield from (f"{kind}: {_line(dict(of))}" for kind, of in sums.items())


def _page(what: RunReport) -> str:
    """Return what a page says beside the terminal, a line of each form, and what is drawn."""
    page, said = Page(page_of(what)), " ".join(printed(what, _WIDTH).split())
    forms: dict[str, str] = {}
    for line in filter(None, map(str.strip, page.lines)):
        if line not in said:
            forms.setdefault(re.sub(r"[\d.,]+", "0", line), line)
    drawn = Counter(zip(page.tags, page.classes, strict=True))
    counts = ", ".join(f"{tag} {of}: {n}" for (tag, of), n in sorted(drawn.items()) if of)
    return "\n".join(["# page", *forms.values(), counts])


def _rows_and_marks(events: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the rows of the Perfetto file, its marks, and what each kind of slice has."""
    rows: dict[tuple[int, int], str] = {
        (e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"
    }
    sums: dict[str, Counter[str]] = {}
    for e in events:
        if e["name"] == "process_name":
            yield e["args"]["name"]
        if e["ph"] in "XBiC":
            row = rows.get((e["pid"], e.get("tid", -1)), e["name"])
            kind = f"{e['ph']} {row}: {e['cat'] if e['ph'] in 'XB' else e['name']}"
            of = sums.setdefault(re.sub(r"[\d.]+", "0", kind), Counter())
            of["times"] += 1
            of["at"] += e.get("ts", 0.0) if e["ph"] == "i" else 0.0
            of.update({k: v for k, v in e.get("args", {}).items() if isinstance(v, int | float)})
    yield from (f"{kind}: {_line(dict(of))}" for kind, of in sorted(sums.items()))


def _comparison(pair: tuple[Any, Any], folder: Path) -> Comparison:
    a, b = (measured(job, folder / name, name) for name, job in zip("ab", pair, strict=True))
    return compare_runs(a, b)


def _tab(folder: Path) -> Iterator[str]:
    ask = _asking(folder)
    yield "# tab"
    for model in ask("/run")["models"]:
        name = model["name"]
        summary = ask("/summary", model=name)
        bands, lists = summary.pop("bands"), summary["lists"]
        lists |= {kind: lists[kind][:3] for kind in ("slowest", "exposed", "anomalies")}
        yield f"summary {_line(summary)}"
        yield f"bands {_line({k: {x: sum(v) for x, v in b.items()} for k, b in bands.items()})}"
        yield f"step {_line(ask('/step', model=name))}"
        for value in VALUES:
            heat = ask("/heat", model=name, value=value, columns=1000)
            said = {k: heat[k] for k in ("low", "high", "unknown", "note")}
            yield f"heat {value} {_line(said | {'sum': sum(heat['cells'])})}"


def _frames(folder: Path) -> Iterator[str]:
    frames = load_frames(folder)
    for name in ("steps", "buckets", "stages", "waits", "ranks", "models"):
        table = getattr(frames, name)
        yield f"# {name}\n{len(table)} rows: " + ", ".join(
            f"{column} {_sum(table[column])}" for column in table if column not in _WHOSE
        )


_WHOSE = ("model", "hook", "rank", "step", "rebuild", "bucket", "time")


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
