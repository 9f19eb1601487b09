"""Scripts that shard a model through a framework: as they are, traced, and with a hook by hand.

script plainly ------------------------> the bits that it trained
hooktrace run, script plainly by-hand -> the same bits; records, closing lines, a report; and what
                                         the script has traced with a hook of its own after that
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from hooktrace.records import StepRecord
from hooktrace.records.reader import read_parts
from tests.distributed.harness import REPOSITORY
from tests.distributed.test_run import lines_of_hooktrace
from tests.integrations.frameworks import TWO_RANKS, call, run

SCRIPTS = REPOSITORY / "tests" / "integrations" / "scripts"
RANKS = 2


class Run(NamedTuple):
    """One run under ``hooktrace run``; ``facts``: the last line of what it printed, if JSON."""

    lines: list[str]
    errors: str
    facts: dict[str, Any]
    folder: Path

    def steps(self, model: str) -> list[StepRecord]:
        """Return a model's steps, alike on all ranks, whole, without an anomaly but stalls."""
        found = []
        for file in self._files():
            records = read_parts([file])
            assert records.closed
            assert {found.kind for found in records.anomalies} <= {"stall"}
            steps = [step for step in records.steps if step.model == model]
            assert [step.step for step in steps] == list(range(len(steps)))
            assert all(step.complete and step.sharded for step in steps)
            found.append([(step.bucket_count, step.wire_bytes) for step in steps])
        assert found == [found[0]] * RANKS
        return steps

    def units(self, model: str) -> set[str]:
        """Return the names of a model's units."""
        records = read_parts(self._files()[:1])
        return {b.unit.name for b in records.buckets if b.unit and b.model == model}

    def report(self) -> str:
        """Return the report in one line."""
        said = run(["-m", "hooktrace", "report", self.folder], self.folder)
        return " ".join(said.split())

    def _files(self) -> list[Path]:
        files = sorted((self.folder / "plugins" / "hooktrace").glob("*.jsonl"))
        assert [file.name for file in files] == [f"rank{rank:05}.jsonl" for rank in range(RANKS)]
        return files


def traced_as_without(script: str, folder: Path, *ways: str) -> Run:
    """Run a script as it is, and traced, in more ways after that; it trains the same bits."""
    outcomes = {}
    for name, command, hows in (
        ("plain", (), ("plainly",)),
        ("traced", ("-m", "hooktrace", "run"), ("plainly", *ways)),
    ):
        own = folder / name
        own.mkdir()
        outcomes[name] = call([*TWO_RANKS, *command, SCRIPTS / script, "trained", *hows], own)
    plain, found = folder / "plain" / "trained", folder / "traced" / "trained"
    assert found.read_bytes() == plain.read_bytes()
    said, errors = outcomes["traced"]
    last = said.splitlines()[-1] if said else ""
    facts = json.loads(last) if last.startswith("{") else {}
    own = next((folder / "traced" / "runs").glob("*"))
    return Run(lines_of_hooktrace(errors), errors, facts, own)
