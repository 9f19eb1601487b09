"""Real backends as child processes on loopback, and polling under a deadline."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import pytest

from tests.ports import free_port

T = TypeVar("T")

DEADLINE_SECONDS = 120.0
"""A backend may take that long to start, or to come to something, on a busy machine."""


def get(url: str) -> str:
    """Fetch a loopback URL, never through a proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=60) as response:
        text: str = response.read().decode()
        return text


def get_json(url: str) -> Any:
    return json.loads(get(url))


def until(
    read: Callable[[], T], accept: Callable[[T], bool], log: Path, seconds: float = DEADLINE_SECONDS
) -> T:
    """Poll ``read`` until its result is accepted; fail with the process's log at the deadline."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            result = read()
            if accept(result):
                return result
            last = result
        except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
            last = error
        time.sleep(0.05)  # the interval of the poll
    raise AssertionError(f"not within {seconds} s; last: {last}\n{log.read_text()[-3000:]}")


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """Run a child process with its output in ``log``; it is gone when the block ends."""
    with log.open("w") as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent)
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Prometheus:
    """A running Prometheus that is asked over HTTP."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}/api/v1/"

    def __call__(self, promql: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        result: list[dict[str, Any]] = self.ask(f"query?query={quote(promql)}")["result"]
        return result

    def ask(self, what: str) -> dict[str, Any]:
        """Return the data of any path of the API."""
        data: dict[str, Any] = get_json(self._base + what)["data"]
        return data


@contextmanager
def prometheus(
    folder: Path, rules: Sequence[Path] = (), *, interval: str = "200ms", **scrape_config: object
) -> Iterator[Prometheus]:
    """Run a real Prometheus that finds targets in ``folder/targets``; yields what asks it."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus; apt-get install prometheus")
    found = {"job_name": "hooktrace", "file_sd_configs": [{"files": [f"{folder}/targets/*.json"]}]}
    config = {
        "global": {
            "scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": "1s",
        },
        "rule_files": [str(path) for path in rules],
        "scrape_configs": [found | scrape_config],
    }  # fmt: skip
    (folder / "prometheus.yml").write_text(json.dumps(config))
    (folder / "targets").mkdir(exist_ok=True)  # one that comes later is found in five minutes
    port = free_port()
    command = [program, f"--config.file={folder}/prometheus.yml"]
    command += [f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]
    with running(command, folder / "prometheus.log"):
        yield Prometheus(port)
