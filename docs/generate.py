"""Fills the parts of the docs that follow a table in the code: ``python docs/generate.py``.

    records/metrics.py    METRICS     --> metrics.md
    records/anomalies.py  ANOMALIES   --> errors-and-anomalies.md
    records/hang.py       HANGS       --> hangs.md
    records/losses.py     LOSSES      --> exporters.md
    tracing/options.py    TRACER, ... --> exporters.md, with Tracer's docstring
    docs/benchmarks.json  what make bench has measured --> benchmarks.md
    commands/line.py      the options --> command-line.md
    analysis/run/tables   TABLES      --> data-frames.md, with the docstrings of Run's tables
    docs/frameworks.json  what tests have shown --> frameworks.md

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; what is around it is
written by hand.  ``tests/docs/test_generated.py`` holds the files equal to what this makes of them.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from hooktrace.__main__ import main as command_line
from hooktrace.analysis.frames import Run
from hooktrace.analysis.run.rows import Column
from hooktrace.analysis.run.tables import TABLES
from hooktrace.records.anomalies import ANOMALIES, AnomalyKind
from hooktrace.records.hang import HANGS, HangKind
from hooktrace.records.losses import LOSSES, LOSSES_OF_EXPORTERS
from hooktrace.records.metrics import METRICS, Metric
from hooktrace.tracing.options import OUTSIDE, TRACER
from hooktrace.tracing.tracer import Tracer

__all__ = ["DOCS", "PARTS", "filled", "promql"]

DOCS = Path(__file__).parent

_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """Return a page with its generated parts made anew; raises ``KeyError`` for an unknown one."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]().strip()}\n\n{part[3]}", text)


def promql(metric: Metric) -> str:
    """Return a query that shows the metric: a rate, a 95th percentile, or the value by rank."""
    if metric.kind == "counter":
        return f"sum by ({_labels(metric)}) (rate({metric.prometheus_name}[5m]))"
    if metric.kind == "histogram":
        within = _labels(metric, "le")
        return f"histogram_quantile(0.95, sum by ({within}) (rate({metric.name}_bucket[5m])))"
    if metric.kind == "info":
        return metric.prometheus_name
    return f"max by ({_labels(metric, 'rank')}) ({metric.name})"


def _labels(metric: Metric, *first: str) -> str:
    kept = [label for label in metric.labels if label != "hook"]
    return ", ".join([*first, *kept]) or "rank"


def _anchored(kind: str) -> str:
    """Return a kind with the anchor that its printed address has."""
    return f'<a id="{kind}"></a>`{kind}`'


def _anomalies() -> str:
    rows = (
        f"| {_anchored(k.name)} | {k.sentence} | {'wrong' if k.gradients_wrong else 'right'} "
        f"| {_to_do(k)} | {k.seen} | {k.severity} |"
        for k in ANOMALIES.values()
    )
    head = "| kind | what is the case | gradients | what to do | looked for | in a check |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *rows])


def _to_do(kind: AnomalyKind) -> str:
    return kind.fix + (f"; of a sharded model: {kind.sharded.fix}" if kind.sharded else "")


def _hangs() -> str:
    rows = (f"| {_anchored(k.name)} | {k.sentence} | {_fixes(k)} |" for k in HANGS.values())
    head = "| kind | what is the case | what to do |"
    return "\n".join([head, "| --- | --- | --- |", *rows])


def _fixes(kind: HangKind) -> str:
    return kind.fix + (f"; of a sharded model: {kind.sharded}" if kind.sharded else "")


def _losses() -> str:
    rows = [f"| `{loss.name}` | {loss.sentence} | {loss.fix} |" for loss in LOSSES.values()]
    own = ", ".join(f"`{name}_{what}`" for name, of in LOSSES_OF_EXPORTERS.items() for what in of)
    last = f"| `<exporter>_<what>` | an exporter's own losses: {own} | its own message says why |"
    head = "| reason | meaning | what to do |"
    return "\n".join([head, "| --- | --- | --- |", *rows, last])


def _settings() -> str:
    said = " ".join((Tracer.__doc__ or "").replace("``", "`").split())
    helps = dict(re.findall(r"- `(\w+)`: (.*?)\.(?= - `| Raises )", said))
    arguments = (
        f"| `{s.name}` | `{getattr(s.default, '__qualname__', repr(s.default))}` "
        f"| {s.variable and f'`{s.variable}`'} | {helps[s.name]} |"
        for s in TRACER
    )
    others = (f"| `{s.variable}` | {s.help} |" for s in OUTSIDE)
    head = "| argument | default | variable | meaning |\n| --- | --- | --- | --- |"
    return "\n".join([head, *arguments, "\n| other variable | meaning |\n| --- | --- |", *others])


def _frames() -> str:
    by_row = [columns for columns, _ in TABLES.values() if "step" in {c.name for c in columns}]
    uses = Counter(_frame_row(column) for columns in by_row for column in columns)
    names = Counter(column.name for columns in by_row for column in columns)
    shared = {
        _frame_row(column): column.name
        for columns in by_row
        for column in columns
        if 1 < names[column.name] == uses[_frame_row(column)]
    }
    parts = ["\n".join(["## Shared columns", "", *_FRAME_HEAD, *shared])]
    for name, (columns, _) in TABLES.items():
        rows = {_frame_row(column): column.name for column in columns}
        others = ", ".join(f"`{shared[row]}`" for row in rows if row in shared)
        head = [f"## `run.{name}`", "", getattr(Run, name).__doc__ or ""]
        head += [f"Shared columns: {others}."] if others else []
        own = [row for row in rows if row not in shared]
        parts.append("\n".join([*head, "", *_FRAME_HEAD, *own]))
    return "\n\n".join(parts)


_FRAME_HEAD = ("| column | dtype | what it is |", "| --- | --- | --- |")


def _frame_row(column: Column) -> str:
    return f"| `{column.name}` | `{column.dtype}` | {column.what.replace('|', chr(92) + '|')} |"


def _metrics() -> str:
    rows = (
        f"| `{m.prometheus_name}` | `{m.otel_name}` | {m.kind} | `{m.unit}` "
        f"| {', '.join(m.labels) or 'none'} | {m.help} |"
        for m in METRICS
    )
    head = "| Prometheus | OpenTelemetry | kind | unit | labels | meaning |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- |", *rows])


def _queries() -> str:
    rows = (f"| `{metric.prometheus_name}` | `{promql(metric)}` |" for metric in METRICS)
    return "\n".join(["| metric | query |", "| --- | --- |", *rows])


def _benchmarks() -> str:
    found = json.loads((DOCS / "benchmarks.json").read_text("utf-8"))
    ((machine, _),) = Counter(row["cpu"] for row in found).most_common(1)
    where = f"Measured on {machine}, if a row names no other machine.\n"
    head = [where, "| group | what | median (95 %) | budget | measured | |", "| --- " * 6 + "|"]
    return "\n".join([*head, *(_benchmark(row, machine) for row in found)])


def _benchmark(row: dict[str, Any], machine: str) -> str:
    value, least, most = (f"{row[name]:.4g}" for name in ("value", "least", "most"))
    figure = value if least == most else f"{value} ({least} to {most})"
    budget = "" if row["budget"] is None else f"{row['budget']:g}"
    met = "" if row["budget"] is None or row["least"] <= row["budget"] else "not met"
    cpu = row["cpu"].removeprefix(machine).removeprefix(", ")
    where = ", ".join(part for part in (row["date"], cpu, f"load {row['load']}") if part)
    columns = (f"`{row['group']}`", row["what"], f"{figure} {row['unit']}", budget, where, met)
    return f"| {' | '.join(columns)} |"


def _frameworks() -> str:
    rows = (
        f"| {row['name']} | {row['line']} | {'; '.join(row['works'])} "
        f"| {row['package'].removesuffix('-skinny')} {row['version']} |"
        for row in json.loads((DOCS / "frameworks.json").read_text("utf-8"))
    )
    head = "| framework | what to write | what works, as tested on gloo | tested with |"
    return "\n".join([head, "| --- | --- | --- | --- |", *rows])


def _commands() -> str:
    group: Any = typer.main.get_command(command_line)
    return "\n".join(line for name in group.commands for line in _command(group.commands[name]))


def _command(command: Any) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    shown = " ".join(p.name.upper() if p.required else f"[{p.name.upper()}]" for p in arguments)
    yield f"## `hooktrace {command.name}{' ' if shown else ''}{shown}`\n"
    yield f"{' '.join(command.help.split())}\n"
    if not command.params:
        return
    yield "| option | default | |\n| --- | --- | --- |"
    for parameter in arguments:
        yield f"| `{parameter.name.upper()}` | | {parameter.help} |"
    for option in options:
        yield f"| `{', '.join(option.opts)}` | {_default(option)} | {option.help} |"
    yield ""


def _default(option: Any) -> str:
    return "" if option.default in (None, False, [], "") else f"`{option.default}`"


PARTS: dict[str, Callable[[], str]] = {
    "anomalies": _anomalies,
    "hangs": _hangs,
    "losses": _losses,
    "settings": _settings,
    "frames": _frames,
    "metrics": _metrics,
    "queries": _queries,
    "benchmarks": _benchmarks,
    "commands": _commands,
    "frameworks": _frameworks,
}


if __name__ == "__main__":
    for page in sorted(DOCS.glob("*.md")):
        page.write_text(filled(page.read_text("utf-8")), "utf-8")
