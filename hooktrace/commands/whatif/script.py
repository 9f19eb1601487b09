"""A choice on the user's own script: its command, with another hook and other buckets in it.

command, Choice --environment--> job.py: ranks, each with integrations.chosen --> record files
record files --is it the run's model, on its ranks, with what was chosen?--> Timeline
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...analysis.report.run_files import read_run
from ...analysis.report.settled import settled_steps
from ...analysis.timeline import Timeline
from ...analysis.whatif.answer import Answer
from ...analysis.whatif.choice import Choice
from ...analysis.whatif.hook_rules import known_as, label_of
from ...analysis.whatif.own_run import layouts_of
from ...analysis.whatif.words import buckets_text
from ...integrations import chosen, start
from ...records.errors import UsageError
from ...tracing.redirected import FOLDER
from .job import StepCount, run_job

_DEADLINE_S = 1800.0
_MIB = 1 << 20
_OURS = ("PROMETHEUS_PORT", "TENSORBOARD_DIR", "OPENTELEMETRY", "CALIBRATE")
_SAID = re.compile(
    r"(\[rank\d+\]: ?)?((\w+\.)*\w*(Error|Exception|Exit)\b.*|\S+: (error:|can't open file) .*)"
)
"""How Python, and a parser of arguments, say why they end."""
_LAUNCHERS = ("ChildFailedError", "SignalException")


@dataclass(frozen=True, slots=True)
class Script:
    """A command that trains; ``shapes``: of the parameters of the run's model."""

    command: Sequence[str]
    shapes: str

    @property
    def name(self) -> str:
        """The command, as a shell takes it."""
        return shlex.join(self.command)

    def run(self, answer: Answer, choice: Choice, steps: int, folder: Path) -> Timeline:
        """Run it with a choice for so many steps; return its records, or raise ``UsageError``.

        ``folder``: for its records and its output; it is made.
        """
        try:
            return self._run(answer, choice, steps, folder)
        except UsageError as error:
            raise UsageError(f"{self.name}: {error}; its output is in {_output(folder)}") from error

    def _run(self, answer: Answer, choice: Choice, steps: int, folder: Path) -> Timeline:
        folder.mkdir(parents=True)
        count = StepCount(folder, answer.today.model)
        code = run_job(
            self.command, self._environment(choice, folder), _output(folder), count=count,
            steps=steps, deadline_s=_DEADLINE_S,
        )  # fmt: skip
        if code:
            raise UsageError(
                f"it failed with exit code {code}: {why_of(_output(folder))}; pass after -- a "
                "command that trains as it is"
            )
        made, found = count.best()
        if found is None:
            raise UsageError(
                "no DDP model was seen in it; pass the command that trains, with a Python that has "
                "hooktrace"
            )
        timeline = read_run(found)
        if not made:
            raise UsageError(
                f"no model {answer.today.model!r} was seen, but {', '.join(timeline.models)}; "
                "pass the command of the run"
            )
        self._check(answer, choice, timeline)
        return timeline

    def _environment(self, choice: Choice, folder: Path) -> dict[str, str]:
        wanted = chosen.Chosen(self.shapes, choice.hook, choice.bucket_cap_mb)
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in {f"HOOKTRACE_{one}" for one in _OURS}
        }
        paths = environment.get("PYTHONPATH")
        return {
            **environment,
            "PYTHONPATH": os.pathsep.join([start.FOLDER, *([paths] if paths else [])]),
            "HOOKTRACE_RECORD_DIR": str(folder / "unused"),
            FOLDER: str(folder),
            chosen.VARIABLE: wanted.encoded(),
        }

    def _check(self, answer: Answer, choice: Choice, timeline: Timeline) -> None:
        """Raise ``UsageError`` where what was trained is not what was predicted."""
        today, run = answer.today, timeline.run
        if run is None or run.world_size != today.ranks:
            ranks = "an unknown number of" if run is None else run.world_size
            raise UsageError(
                f"it trained on {ranks} ranks, and the run on {today.ranks}; start as many"
            )
        if shapes_of(timeline, today.model) != self.shapes:
            raise UsageError(
                f"its model {today.model!r} has other parameters than the run's; pass the command "
                "of the run"
            )
        arrays = settled_steps(timeline, today.model)
        if arrays is None:
            raise UsageError(
                "none of its steps counts (all are warm-up, probed or incomplete); pass "
                "--verify-steps 100 or more, and a command that trains for as many"
            )
        layout = layouts_of(timeline, today.model)[arrays.generation]
        known = known_as(arrays.hook, dict(layout.hook_options))
        label = arrays.hook if known is None else label_of(*known)
        wanted, cap = answer.cap(choice), layout.bucket_cap_bytes
        is_cap = wanted is None or cap is None or cap == int(wanted * _MIB)
        if label != answer.hook(choice) or not is_cap:
            of = "unknown size" if cap is None else f"{cap / _MIB:g} MB"
            raise UsageError(
                f"it trained with {label} and buckets of {of}, not with {answer.hook(choice)} and "
                f"{buckets_text(wanted)}; pass the command of the run, with the same options"
            )


def shapes_of(timeline: Timeline, model: str) -> str:
    """Return the key of a model's parameters."""
    layouts = layouts_of(timeline, model)
    last = layouts[max(layouts)]
    return chosen.shapes_key(shape for one in last.buckets for _, shape in one.parameters)


def why_of(output: Path) -> str:
    """Return the line that says why a job failed: its first error, else the last thing it said.

    The first: other ranks then lose their connections, and a launcher says it all again.
    """
    lines = [line.strip() for line in output.read_text("utf-8", "replace").splitlines()]
    errors = (match for line in lines if (match := _SAID.fullmatch(line)))
    said = [m[2] for m in errors if not any(name in m[2] for name in _LAUNCHERS)]
    spoken = [line for line in lines if any(c.isalnum() for c in line)]
    return said[0] if said else (spoken or ["it said nothing"])[-1]


def _output(folder: Path) -> Path:
    return folder / "output.txt"
