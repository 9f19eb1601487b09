"""Every query of every panel and rule has data of a real job, asked of a real Prometheus."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..distributed.harness import REPOSITORY
from ..distributed.programs import clean_environment
from ..docs.pages import Page
from ..exporters.processes import Prometheus, prometheus, until
from . import rules

pytestmark = pytest.mark.slow

DEADLINE_S = 120.0
QUERIES = [
    query for d in rules.DASHBOARDS.values() for p in d["panels"] for query in rules.queries(p)
]


@contextmanager
def job(folder: Path) -> Iterator[None]:
    """Train on two ranks while the block runs; its ranks end by themselves."""
    end, log = folder / "end", folder / "job.log"
    environment = clean_environment(
        HOOKTRACE_PROMETHEUS_PORT="0",
        HOOKTRACE_PROMETHEUS_FILE_SD=str(folder / "targets"),
        HOOKTRACE_ERROR_EVERY="5",
    )
    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    script = Path(__file__).with_name("job.py")
    with (
        log.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", *launch, str(script), str(end)],
            stdout=output, stderr=subprocess.STDOUT, env=environment,
        ) as process,
    ):  # fmt: skip
        try:
            yield
            end.touch()
            assert process.wait(DEADLINE_S) == 0, log.read_text()[-3000:]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus with the rules, which reads two ranks that train."""
    folder = tmp_path_factory.mktemp("job")
    # A second's patience: the ranks that answer take both cores.
    with prometheus(folder, rules.RULES, interval="1s") as query, job(folder):
        log = folder / "prometheus.log"
        ready = until(
            lambda: query("sum(increase(hooktrace_arrival_delay_seconds_count[1h])) > 20"),
            bool, log, DEADLINE_S,
        )  # fmt: skip
        assert ready
        yield query


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """What Prometheus says is in the log of the job."""
    (tmp_path / "log").touch()
    return tmp_path / "log"


def test_the_queries_of_the_docs_are_promql(asked: Prometheus) -> None:
    """Each of docs/metrics.md is answered, if only by nothing."""
    found = [code for code in Page(REPOSITORY / "docs" / "metrics.md").codes if "(" in code]
    found = [code for code in found if "hooktrace_" in code]
    assert len(found) > 40
    for code in found:
        asked(code)  # raises where Prometheus refuses it


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:60])
def test_a_panels_query_has_data(query: str, asked: Prometheus, log: Path) -> None:
    """At once or when the next scrapes are in; what nothing is wrong with has none, but zeros."""
    values = {"$__rate_interval": "10s", "$job": ".*", "$model": ".*"}  # as Grafana sends them
    for name, value in values.items():
        query = query.replace(name, value)
    if query.endswith(" > 0"):
        assert asked(query) == []
        query = query.removesuffix(" > 0")
    found = until(lambda: asked(query), bool, log)
    assert all(one["value"][1] != "NaN" for one in found), found


@pytest.mark.parametrize("name", sorted(rules.recorded()))
def test_what_is_recorded_has_data(name: str, asked: Prometheus, log: Path) -> None:
    """Each rule's name is a series of the job."""
    assert until(lambda: asked(name), bool, log)


def test_no_rule_fails(asked: Prometheus, log: Path) -> None:
    """Each was evaluated without an error; alerts have data when they fire (test_rules.py)."""

    def found() -> list[tuple[str, str, str]]:
        groups = asked.ask("rules")["groups"]
        return [
            (r["name"], r["health"], r.get("lastError", "")) for g in groups for r in g["rules"]
        ]

    healthy = until(found, lambda r: all(health == "ok" for _, health, _ in r), log)
    assert {name for name, _, _ in healthy} == rules.recorded() | set(rules.alerts())
