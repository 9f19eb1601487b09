"""Does ``hooktrace tune`` name the best setting?  Beside it each setting is measured alone.

two namespaces with so many Mbit/s between them, or loopback --tune--> the setting that it names
the same script with that hook and limit, a start for each and round --> the step of each
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from hooktrace.commands.bench.table import Row
from hooktrace.integrations.tuning import OWN
from tests.distributed.harness import environment
from tests.distributed.test_hosts import run
from tests.distributed.test_tune import SCRIPT

LINKS = (None, 1000, 100)
"""Mbit/s; ``None`` for loopback."""
MODELS = {
    "wide": ("--width", "1024", "--layers", "2"),
    "deep": ("--width", "256", "--layers", "24", "--batch", "64"),
}
NOTHING_TO_GAIN = ("--width", "64", "--layers", "2", "--batch", "20000")
HOOKS, CAPS = ("allreduce", "fp16", "powersgd", "quantize-per-tensor"), (5.0, 1.0)
OWN_CAP, ROUNDS = 25.0, 3
SECONDS, FEWEST, MOST = 8.0, 20, 80
"""For which a setting is measured alone in a round; its steps."""

Link = Sequence[str]
"""The namespaces of its two ends; none on loopback."""


def tune(*, quick: bool) -> Iterator[Row]:
    """Yield the place of each named setting, and how far its step is from that of a run alone."""
    hooks, caps = (HOOKS[1:2], CAPS[:1]) if quick else (HOOKS, CAPS)
    cells = [*product(LINKS, MODELS.items())]
    for mbit, (name, model) in cells[2:3] if quick else cells:
        what = f"{name}, {f'{mbit} Mbit/s' if mbit else 'loopback'}"
        with linked(mbit) as link:
            tuned = tuned_on(link, model, hooks, caps)
            steps = int(min(MOST, max(FEWEST, SECONDS * 1e9 / tuned["step_ns"])))
            settings = product(range(1 if quick else ROUNDS), (OWN, *hooks), (OWN_CAP, *caps))
            alone = steps_alone(link, (*model, "--steps", str(steps)), settings)
        best = tuned["best"] or {"hook": OWN, "cap": OWN_CAP, "ratio": 1.0}
        key = best["hook"], best["cap"]
        order = sorted(alone, key=alone.__getitem__)
        told = ", ".join(f"{hook} {cap:g}: {alone[hook, cap] / 1e6:.1f}" for hook, cap in order)
        note = f"{key} is named; ms a step alone, MB: {told}"
        place = [order.index(key) + 1.0]
        yield Row(f"{what}: place of the setting that is named", place, "", budget=2, note=note)
        off = abs(best["ratio"] * tuned["step_ns"] / alone[key] - 1)
        yield Row("the same, its step, off that of a run alone", [100 * off], "%", budget=5)
    for attempt in range(0 if quick else 3):
        best = tuned_on((), NOTHING_TO_GAIN, hooks, caps)["best"]
        what = f"a job that nothing improves, {attempt + 1} of 3: settings that are named"
        yield Row(what, [float(best is not None)], "", budget=0)


@contextmanager
def linked(mbit: int | None) -> Iterator[Link]:
    """Give two namespaces with a cable between them that carries so much in each direction."""
    names = [] if mbit is None else [f"hooktrace-tune-{os.getpid()}-{i}" for i in range(2)]
    with ExitStack() as stack:
        for name in names:
            run("ip", "netns", "add", name)
            stack.callback(run, "ip", "netns", "del", name)
        if names:
            ends = [("cable", "netns", name) for name in names]
            run("ip", "link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1])
        for i, name in enumerate(names):
            run("ip", "-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "cable")
            for device in ("lo", "cable"):
                run("ip", "-n", name, "link", "set", device, "up")
            shape = ("tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "100ms")
            run("tc", "-n", name, "qdisc", "add", "dev", "cable", "root", *shape)
        yield names


def tuned_on(link: Link, model: Sequence[str], hooks: Sequence[str], caps: Sequence[float]) -> Any:
    """Return what a tuning of the job says."""
    with tempfile.TemporaryDirectory() as name:
        told = Path(name, "tuned.json")
        asked = ("--hooks", ",".join(hooks), "--caps", ",".join(map(str, caps)))
        command = (sys.executable, "-m", "hooktrace", "tune", *asked, "--json", str(told))
        launch(link, (*command, "--out", f"{name}/out", "--"), (name, *model))
        return json.loads(told.read_text())


def steps_alone(
    link: Link, model: Sequence[str], settings: Iterable[tuple[int, str, float]]
) -> dict[tuple[str, float], float]:
    """Return the step of each setting, ns: the median of its starts, one a round."""
    found: dict[tuple[str, float], list[float]] = {}
    for _, hook, cap in settings:
        with tempfile.TemporaryDirectory() as name:
            launch(link, (), (name, *model, "--hook", hook, "--cap", str(cap)))
            told = [json.loads(path.read_text()) for path in Path(name).glob("*.json")]
        found.setdefault((hook, cap), []).append(told[0]["step_ns"])
    return {key: median(steps) for key, steps in found.items()}


def launch(link: Link, before: Sequence[str], options: Sequence[str]) -> None:
    """Run the script on two ranks by torch's launcher; ``before``: of its command, at each end."""
    job = [*before, sys.executable, "-m", "torch.distributed.run"]
    script = [str(SCRIPT), *options]
    here = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2")
    there = ("--nnodes", "2", "--master-addr", "10.78.0.1", "--master-port", "29500")
    commands = [] if link else [[*job, *here, *script]]
    for node, name in enumerate(link):
        inside = ("ip", "netns", "exec", name)
        commands.append([*inside, *job, *there, "--node-rank", str(node), *script])
    asked = environment(GLOO_SOCKET_IFNAME="cable" if link else "lo")
    ends = [subprocess.Popen(one, env=asked, stdout=subprocess.DEVNULL) for one in commands]
    codes = [end.wait() for end in ends]
    if any(codes):
        raise RuntimeError(f"{' '.join(commands[0])} ended with {codes}")
