"""What the two subcommands do: ask a run, print and write; raises ``UsageError``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.text import Text

from ...analysis.report.command import check_writable, writing
from ...analysis.report.run_files import read_run
from ...analysis.timeline import COUNTS, HANG, PROBED, Timeline, reasons
from ...analysis.whatif.advise import Advice, Advised, advise
from ...analysis.whatif.answer import Answer, answer_fields, prediction_fields
from ...analysis.whatif.ask import Source, ask, everything, grid, read_source, sweep_of
from ...analysis.whatif.choice import Choice
from ...analysis.whatif.network import parse_network
from ...analysis.whatif.predicted_run import write_predicted
from ...analysis.whatif.terminal import print_advised, print_answer
from ...analysis.whatif.work import Network
from ...records.errors import UsageError
from .paste import code_of
from .script import Script, shapes_of
from .verify import Demo, check_subject, print_announced, print_verified, verify

SCHEMA = 1
"""Of the JSON: changes when a field changes its name or meaning; new fields may come without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What is asked of a run; what is empty or ``None`` is as it was."""

    hooks: tuple[str, ...] = ()
    caps_mb: tuple[float, ...] = ()
    ranks: int | None = None
    network: str | None = None
    per_host: int | None = None
    model: str | None = None

    def place(self, own: Network | None = None) -> Choice:
        """Return ranks and network, checked; raises ``UsageError``.

        ``own``: the run's network, whose latency is taken where none is named.
        """
        for name, value in (("ranks", self.ranks), ("per-host", self.per_host)):
            if value is not None and value < 1:
                raise UsageError(f"{value} is no number of ranks; pass --{name} 1 or more")
        place = Choice(ranks=self.ranks, per_host=self.per_host)
        if self.network is None:
            return place
        network, has_latency = parse_network(self.network)
        if not has_latency and own is not None:
            network = replace(network, latency_ns=own.latency_ns)
        return replace(place, network=network, has_own_latency=not has_latency)


def run_whatif(
    run: str,
    asked: WhatIf,
    *,
    as_json: bool = False,
    html: Path | None = None,
    write: Path | None = None,
) -> None:
    """Predict what was asked, print it, and write page and predicted runs."""
    console = Console(highlight=False, markup=False)
    asked.place()  # what cannot be asked is said before files are read
    if html is not None:
        check_writable(html)
    timeline = read_run(run)
    source = read_source(timeline, asked.model)
    place = asked.place(source.fit.network)
    ranks = place.ranks or source.calibration.ranks
    if place.per_host is not None and place.per_host > ranks:
        raise UsageError(
            f"a host cannot have {place.per_host} of {ranks} ranks; pass --per-host {ranks} or "
            "less, or more --ranks"
        )
    answer = ask(source, grid(source, asked.hooks, asked.caps_mb), place)
    if as_json:
        console.file.write(_json(answer_fields(answer)))
    else:
        print_answer(console, answer)
    written = [] if write is None else _write(write, timeline, answer)
    if html is not None:
        _write_page(html, source, answer, place)
        written.append(f"with the sweep and advice: {html}")
    for line in [] if as_json else written:
        console.print(Text(line), soft_wrap=True)


def _write(folder: Path, timeline: Timeline, answer: Answer) -> list[str]:
    """Write each prediction as a run, and return what to say of them."""
    run, model = timeline.run, answer.today.model
    if run is None:
        raise UsageError("the run's own line is missing, so no other can be written like it")
    ranks = zip(timeline.tracks, reasons(timeline), strict=True)
    rows = ((t.steps, t.is_of(t.steps, model), why) for t, why in ranks)
    settled = (s.step[own & np.isin(why, (COUNTS, PROBED, HANG))] for s, own, why in rows)
    steps = sorted({number for one in settled for number in one.tolist()})
    several = len(answer.predictions) > 1
    for one in answer.predictions or (answer.baseline,):
        hook, cap = answer.hook(one.choice), answer.cap(one.choice)
        name = hook if cap is None else f"{hook}-{cap:g}mb"
        logdir = folder / name if several else folder
        try:
            write_predicted(logdir, run, one, model=model, hook=hook, steps=steps)
        except OSError as error:
            raise UsageError(
                f"cannot write in {logdir}: {error.strerror}; pass --write a directory that you "
                "may write"
            ) from error
    return [f"predicted steps for TensorBoard's Comm Timeline: {folder}; serve a folder that holds "
            "it and the run, and choose it under \"compare with\""]  # fmt: skip


def _write_page(html: Path, source: Source, answer: Answer, place: Choice) -> None:
    from ...analysis.whatif.page import page  # Jinja2, which the terminal does without

    advised = advise(ask(source, everything(source), place))
    text = page(answer, advised, sweep_of(source, place), code=code_of)
    with writing(html):
        html.write_text(text, encoding="utf-8")


def run_advise(
    run: str,
    *,
    model: str | None = None,
    as_json: bool = False,
    verify_steps: int | None = None,
    command: Sequence[str] = (),
) -> None:
    """Search all that could be changed; ``verify_steps``: and run the best two.

    ``command``: what trains then; ``hooktrace demo`` where it is empty.
    """
    if command and verify_steps is None:
        raise UsageError(
            f"{shlex.join(command)} is run with --verify only; pass --verify -- before it, or "
            "leave it out"
        )
    console = Console(highlight=False, markup=False)
    timeline = read_run(run)
    source = read_source(timeline, model)
    advised = advise(ask(source, everything(source)))
    shapes = shapes_of(timeline, advised.answer.today.model)
    subject = Script(command, shapes) if command else Demo()
    if verify_steps is not None:
        check_subject(advised.answer, subject, verify_steps)
    if as_json:
        content = _advised_fields(advised)
        if verify_steps is not None:
            checked = verify(advised, subject, verify_steps)
            content["verified"] = [one.fields(advised.answer) for one in checked]
            content["verified_on"] = subject.name
        console.file.write(_json(content))
        return
    print_advised(console, advised, code_of)
    if verify_steps is not None:
        console.print()
        print_announced(console, advised, subject, verify_steps)
        print_verified(console, advised.answer, subject, verify(advised, subject, verify_steps))


def _advised_fields(advised: Advised) -> dict[str, Any]:
    fields = answer_fields(advised.answer)
    fields["advice"] = [_advice_fields(advised.answer, one) for one in advised.lines]
    return fields


def _advice_fields(answer: Answer, one: Advice) -> dict[str, Any]:
    return {
        **prediction_fields(answer, one.prediction),
        "gain_ms": one.gain_ms,
        "gain_low_ms": one.low_ms,
        "gain_high_ms": one.high_ms,
        "code": code_of(answer, one.prediction.choice),
    }


def _json(content: dict[str, Any]) -> str:
    encoded = msgspec.json.encode({"schema": SCHEMA, **content})
    return msgspec.json.format(encoded, indent=2).decode() + "\n"
