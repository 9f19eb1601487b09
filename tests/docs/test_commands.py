"""The commands and code of the docs, run as they stand, in a folder of their own.

    page --blocks in order--> Python: written to the file that it names itself
                              bash: each line run, but for what sets up an installation

A line may be run with other options, where it would take minutes or a port that is in use: OPTIONS.
What several pages show of the demo's run is done once: of_demo.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hooktrace.staging.job import loopback
from hooktrace.testing.synthetic import SyntheticJob, write_job

from ..distributed.harness import REPOSITORY
from ..exporters.processes import get_json, running, until
from .pages import Block, Page

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

DEADLINE_S = 240
OPTIONS = {
    "hooktrace demo": "--steps 10 --port 0",
    # test_half_hook, on the page about hooks, runs all cases.
    "hooktrace check my_hooks:half_hook": "--case many-buckets",
    "hooktrace check my_hooks:half_hook --ranks 2": "--case many-buckets",
}
SETUP = ("python3", "source", "pip", "export")
"""What sets up an installation: test_installs.py."""

DOCS = REPOSITORY / "docs"
MODULES = {
    "hooktrace": "-m hooktrace", "torchrun": "-m torch.distributed.run", "pytest": "-m pytest",
    "tensorboard": "-m tensorboard.main", "python": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs that an installation of this tree would bring."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in MODULES.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n')
        program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the record files of a made-up job where the demo would leave its own."""
    folder = tmp_path_factory.mktemp("demo")
    write_job(SyntheticJob(ranks=2, error=0.01), folder / "runs" / "demo")
    return folder


@pytest.fixture(scope="module")
def of_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """A folder for the lines that start the demo or read its run, and those that ran already."""
    return tmp_path_factory.mktemp("pages"), set()


@pytest.mark.parametrize(
    "path", ["README.md", "docs/quickstart.md", "docs/without-a-line.md", "docs/fsdp.md"]
)
def test_page_runs_from_the_top(
    path: str, programs: Path, of_demo: tuple[Path, set[str]], tmp_path: Path
) -> None:
    """These pages work line by line for someone who begins with nothing."""
    folder, done = of_demo
    for block in Page(REPOSITORY / path).blocks:
        assert block.language != "python" or block.file, f"say where this goes:\n{block.text}"
        of_this = [line for line in block.text.splitlines() if not _is_of_demo(block, line)]
        _do(block, of_this, tmp_path, programs)
        new = [line for line in block.text.splitlines() if _is_of_demo(block, line)]
        _do(block, [line for line in new if line not in done], folder, programs)
        done.update(new)


def _is_of_demo(block: Block, line: str) -> bool:
    return block.language == "bash" and (line == "hooktrace demo" or "runs/demo" in line)


@pytest.mark.parametrize("name", ["report.md", "timeline.md", "writing-a-hook.md"])
def test_page_runs_on_a_demo(name: str, demo: Path, programs: Path, tmp_path: Path) -> None:
    """What these pages show works on a run of the demo; parts of a script are only compiled."""
    shutil.copytree(demo / "runs", tmp_path / "runs")
    for block in Page(DOCS / name).blocks:
        _do(block, block.text.splitlines(), tmp_path, programs)
    for test in tmp_path.glob("test_*.py"):
        _run(f"pytest -q -p no:cacheprovider {test.name}", tmp_path, programs)


MADE_UP = {
    "report.md": ("late.py", "hooktrace report runs/late"),
    "comparing.md": ("two_runs.py", "hooktrace compare runs/allreduce runs/fp16"),
}
"""Pages whose script makes runs, of which they show what a command prints."""


@pytest.mark.parametrize("name", MADE_UP)
def test_a_made_up_run_says_what_its_page_shows(name: str, programs: Path, tmp_path: Path) -> None:
    """The very lines."""
    script, command = MADE_UP[name]
    blocks = Page(DOCS / name).blocks
    (at,) = [number for number, block in enumerate(blocks) if block.file == script]
    (tmp_path / script).write_text(blocks[at].text)
    _run(f"python {script}", tmp_path, programs)
    printed = [line.rstrip() for line in _run(command, tmp_path, programs).splitlines()]
    shown = blocks[at + 2].text.splitlines()
    assert shown == printed[printed.index(shown[0]) :][: len(shown)]
    if name == "comparing.md":  # all of it; test_page_runs_on_a_demo has the other one
        for block in blocks:
            _do(block, block.text.splitlines(), tmp_path, programs)
        (tmp_path / "use.py").write_text(blocks[-1].text)
        assert "fp16_compress_hook is" in _run("python use.py", tmp_path, programs)


@pytest.mark.parametrize("library", ["duckdb", "polars", "pandas"])
def test_record_files_can_be_queried(
    library: str, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queries of docs/exporters.md read the files of a run as they are."""
    pytest.importorskip(library)
    (block,) = [b.text for b in Page(DOCS / "exporters.md").blocks if f"import {library}" in b.text]
    monkeypatch.chdir(demo)
    exec(compile(block, library, "exec"), {})


def _do(block: Block, lines: list[str], folder: Path, programs: Path) -> None:
    """Write a block's file, or run lines of it."""
    if block.language == "python" and block.file is not None:
        (folder / block.file).write_text(block.text)
    for line in lines if block.language == "bash" else ():
        words = shlex.split(line, comments=True)
        if words[0] == "tensorboard":
            assignments = (f"{name}={value}" for name, value in _environment(programs).items())
            assert_tab(["env", *assignments, *words, "--port", "0"], folder)
        elif words[0] not in SETUP:
            _run(f"{line} {OPTIONS.get(line.strip(), '')}", folder, programs)


def _environment(programs: Path) -> dict[str, str]:
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith(("HOOKTRACE_", "OTEL_"))},
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "GLOO_SOCKET_IFNAME": loopback(),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "80",
    }


def _run(line: str, folder: Path, programs: Path) -> str:
    with subprocess.Popen(
        ["bash", "-euc", line], cwd=folder, env=_environment(programs), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            pytest.fail(f"not done in {DEADLINE_S} s: {line}\n{output}")
    assert process.returncode == 0, f"{line}\n{output}"
    return output


def assert_tab(command: list[str], folder: Path) -> None:
    """Start TensorBoard, and ask it for its plugins; Comm Timeline is one."""
    log = folder / "tensorboard.log"

    def url() -> str:
        found = re.search(r"http://\S+:\d+/", log.read_text())
        return found[0] if found else ""

    with running(command, log):
        base = until(url, bool, log)
        assert "hooktrace" in until(lambda: get_json(f"{base}data/plugins_listing"), bool, log)
