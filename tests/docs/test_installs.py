"""What each line of docs/quickstart.md installs, really installed, and what works there.

    a copy of this tree --pip, with constraints.txt--> an environment of its own --> its programs

These need a package index, as the set-up of any environment does.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hooktrace.records.reader import read_parts
from hooktrace.testing.synthetic import SyntheticJob, write_job

from ..distributed.harness import REPOSITORY
from .test_commands import assert_tab

pytestmark = [pytest.mark.slow, pytest.mark.long]

DEADLINE_S = 380
TORCH = (
    "torch", "torchgen", "functorch", "typing_extensions.py", "sympy", "mpmath", "networkx",
    "fsspec", "filelock", "nvidia", "cuda", "triton", "setuptools",
)  # fmt: skip
"""What torch is made of and needs at run time, as far as an installation's build has it."""

PLAIN = """
import torch.distributed as dist, torch
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
for _ in range(5):
    ddp(torch.ones(2, 4)).sum().backward()
del ddp
dist.destroy_process_group()
"""

MADE = """
from hooktrace import exporters
made = {
    "PrometheusExporter": {"port": 0},
    "TensorBoardExporter": {"logdir": "tensorboard"},
    "RecordFileExporter": {"logdir": "records"},
    "OpenTelemetryExporter": {},
}
for name in exporters.__all__:
    kind = getattr(exporters, name)
    if hasattr(kind, "export") and name != "Exporter":
        kind(**made.pop(name)).close()
assert not made, made
"""


class Installation:
    """An environment with hooktrace in it, and a folder to work in."""

    def __init__(self, folder: Path, extra: str) -> None:
        self.folder, self.bin = folder, folder / "venv" / "bin"
        source = folder / "source"  # as building leaves files beside it
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(REPOSITORY / "hooktrace", source / "hooktrace", ignore=ignore)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(REPOSITORY / name, source)
        venv.create(folder / "venv")
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "-q"]
        what = ["-c", REPOSITORY / "constraints.txt", "--no-compile", f"{source}{extra}"]
        subprocess.run([*pip, *what], timeout=DEADLINE_S, check=True)
        folder.joinpath("train.py").write_text(PLAIN)
        write_job(SyntheticJob(ranks=2, error=0.01), folder / "run")

    def __call__(
        self, program: str, *arguments: str, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.bin / program, *arguments], cwd=self.folder, env=self.environment(environment),
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip

    def environment(self, more: dict[str, str]) -> dict[str, str]:
        """Return the environment's variables, without those that lead to another tree."""
        ours = ("HOOKTRACE_", "OTEL_", "PYTHON")
        return {k: v for k, v in os.environ.items() if not k.startswith(ours)} | more


@contextmanager
def installed(extra: str, folder: Path) -> Iterator[Installation]:
    """Make an environment with an extra; they are large, and removed at the end."""
    yield Installation(folder, extra)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installed("", tmp_path_factory.mktemp("bare")) as made:
        yield made


@pytest.mark.parametrize(
    "arguments", [("report", "run", "--html", "page.html"), ("export", "run", "--out", "a.json")]
)
def test_files_are_read_without_torch(arguments: tuple[str, ...], bare: Installation) -> None:
    assert bare("python", "-c", "import torch").returncode == 1
    result = bare("hooktrace", *arguments)
    assert result.returncode == 0, result.stderr
    assert (bare.folder / arguments[-1]).stat().st_size > 10_000
    assert "powersgd" in bare("hooktrace", "hooks").stdout


def test_what_needs_torch_says_so(bare: Installation) -> None:
    for command in (("demo",), ("check", "package.module:hook"), ("bench",)):
        result = bare("hooktrace", *command)
        assert result.returncode == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith(f"hooktrace {command[0]}: torch is not installed here")
        assert line.endswith("pip install 'hooktrace[all]'")
    error = bare("python", "-c", "import hooktrace; hooktrace.instrument").stderr
    last = error.splitlines()[-1]
    assert "hooktrace.instrument needs torch, which is not installed here" in last
    assert last.endswith("pip install 'hooktrace[all]'")


def test_a_torch_that_is_there_is_taken(bare: Installation) -> None:
    """The least installation traces into record files; an exporter says what it is without."""
    packages = Path(next(p for p in site.getsitepackages() if (Path(p) / "torch").is_dir()))
    links = bare.folder / "torch_of_their_own"
    links.mkdir()
    for found in (packages / name for name in TORCH if (packages / name).exists()):
        links.joinpath(found.name).symlink_to(found)
    (about,) = packages.glob("torch-*.dist-info")  # by which newer versions find their backends
    links.joinpath(about.name).symlink_to(about)
    result = bare(
        "python", "-m", "hooktrace", "run", "train.py",
        PYTHONPATH=str(links), HOOKTRACE_RECORD_DIR="plain", HOOKTRACE_PROMETHEUS_PORT="9464",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    fix = "prometheus-client .*pip install 'hooktrace\\[exporters\\]'"
    assert re.search(fix, result.stderr), result.stderr
    found = read_parts(sorted((bare.folder / "plain").rglob("*.jsonl")))
    assert len(found.steps) == 5


def test_all_of_it(tmp_path: Path) -> None:
    """Every exporter, a training, and TensorBoard with the tab."""
    with installed("[all]", tmp_path) as made:
        version = "import torch; print(torch.__version__.partition('+')[0])"
        pinned = re.findall(r"^torch==(\S+)", (REPOSITORY / "constraints.txt").read_text(), re.M)
        assert made("python", "-c", version).stdout.split() == pinned
        for arguments in (("-c", MADE), ("-m", "hooktrace", "run", "train.py")):
            result = made("python", *arguments)
            assert result.returncode == 0, result.stderr
        assert "hooktrace: to open it: hooktrace report" in result.stderr
        settings = [f"{name}={value}" for name, value in made.environment({}).items()]
        command = [str(made.bin / "tensorboard"), "--logdir", ".", "--port", "0"]
        assert_tab(["env", "-i", *settings, *command], made.folder)
