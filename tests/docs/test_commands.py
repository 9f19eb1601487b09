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

README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs that an installation of this tree would bring."""
    folder = tmp_path_factory.mktemp("bin")
    for name, module in (
        ("hooktrace", "hooktrace"),
        ("torchrun", "torch.distributed.run"),
        ("tensorboard", "tensorboard.main"),
        ("pytest", "pytest"),
        ("python", ""),
    ):
        program = folder / name
        python = f"{shlex.quote(sys.executable)}{' -m ' if module else ''}{module}"
        program.write_text(f'#!/bin/sh\nexec {python} "$@"\n')
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
    "path",
    [README, DOCS / "quickstart.md", DOCS / "without-a-line.md", DOCS / "fsdp.md"],
    ids=lambda path: path.name,
)
def test_page_runs_from_the_top(
    path: Path, programs: Path, of_demo: tuple[Path, set[str]], tmp_path: Path
) -> None:
    """These pages work line by line for someone who begins with nothing."""
    folder, done = of_demo
    for block in Page(path).blocks:
        if block.language == "python":
            assert block.file is not None, f"say where this goes, as # train.py:\n{block.text}"
            (tmp_path / block.file).write_text(block.text)
        elif block.language == "bash":
            for line in block.text.splitlines():
                if line != "hooktrace demo" and "runs/demo" not in line:
                    _do_line(line, tmp_path, programs)
                elif line not in done:
                    done.add(line)
                    _do_line(line, folder, programs)


@pytest.mark.parametrize(
    "path", [DOCS / name for name in ("report.md", "timeline.md", "writing-a-hook.md")],
    ids=lambda path: path.name,
)  # fmt: skip
def test_page_runs_on_a_demo(path: Path, demo: Path, programs: Path, tmp_path: Path) -> None:
    """What these pages show works on a run of the demo; parts of a script are only compiled."""
    shutil.copytree(demo / "runs", tmp_path / "runs")
    for block in Page(path).blocks:
        if block.language != "python" or block.file is not None:
            _do(block, tmp_path, programs)
    for test in tmp_path.glob("test_*.py"):
        _run(f"pytest -q -p no:cacheprovider {test.name}", tmp_path, programs)


def test_report_says_what_its_page_shows(programs: Path, tmp_path: Path) -> None:
    """The made-up run of docs/report.md gives the very lines that stand there."""
    blocks = Page(DOCS / "report.md").blocks
    (script,) = [number for number, block in enumerate(blocks) if block.file == "late.py"]
    _do(blocks[script], tmp_path, programs)
    _do(blocks[script + 1], tmp_path, programs)
    printed = _run("hooktrace report runs/late", tmp_path, programs)
    lines = [line.rstrip() for line in printed.splitlines()]
    shown = blocks[script + 2].text.splitlines()
    assert shown == lines[lines.index(shown[0]) :][: len(shown)]


def test_comparison_says_what_its_page_shows(programs: Path, tmp_path: Path) -> None:
    """All lines of docs/comparing.md run, and two made-up runs give the very text that is there."""
    page = Page(DOCS / "comparing.md")
    (script,) = [number for number, block in enumerate(page.blocks) if block.file == "two_runs.py"]
    _do(page.blocks[script], tmp_path, programs)
    _run("python two_runs.py", tmp_path, programs)
    for block in page.blocks:
        if block.language == "bash":
            _do(block, tmp_path, programs)
    printed = _run("hooktrace compare runs/allreduce runs/fp16", tmp_path, programs)
    lines = [line.rstrip() for line in printed.splitlines()]
    shown = page.blocks[script + 2].text.splitlines()
    assert shown == lines[: len(shown)]
    (tmp_path / "use.py").write_text(page.blocks[-1].text)
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


def _do(block: Block, folder: Path, programs: Path) -> None:
    if block.language == "python" and block.file is not None:
        (folder / block.file).write_text(block.text)
    elif block.language == "bash":
        for line in block.text.splitlines():
            _do_line(line, folder, programs)


def _do_line(line: str, folder: Path, programs: Path) -> None:
    words = shlex.split(line, comments=True)
    if words[0] in ("python3", "source", "pip", "export"):
        return  # what sets up an installation: test_installs.py
    if words[0] == "tensorboard":
        assignments = (f"{name}={value}" for name, value in _environment(programs).items())
        assert_tab(["env", *assignments, *words, "--port", "0"], folder)
    else:
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
