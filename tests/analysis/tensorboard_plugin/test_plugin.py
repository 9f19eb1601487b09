"""The routes as TensorBoard calls them, and what they cost in imports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client

from hooktrace.analysis import tensorboard_plugin
from hooktrace.analysis.run import FLAGS
from hooktrace.analysis.run.scene import KINDS, LATE
from hooktrace.analysis.tensorboard_plugin.heat_map import VALUES
from hooktrace.analysis.tensorboard_plugin.plugin import CommTimeline
from hooktrace.testing.synthetic import SyntheticJob
from hooktrace.testing.synthetic_hangs import SyntheticHang, write_hung_job
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
from tests.analysis.runs import asking
from tests.test_layering import loaded_with


def ask(plugin: CommTimeline, route: str, **parameters: Any) -> tuple[int, Any]:
    response = Client(plugin.get_plugin_apps()[route]).get(route, query_string=parameters)
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    return response.status_code, json.loads(response.get_data())


@pytest.fixture
def plugin(tmp_path: Path) -> CommTimeline:
    text = text_of(run_of(0), steps_of(3))
    write_ranks(tmp_path / "logs/a", {0: text, 1: text_of(run_of(1), steps_of(3))})
    write_ranks(tmp_path / "secret", {0: text})
    return CommTimeline(TBContext(logdir=str(tmp_path / "logs")))


def test_routes_answer(plugin: CommTimeline) -> None:
    assert plugin.is_active()
    assert ask(plugin, "/runs") == (200, {"runs": ["a"]})
    _, run = ask(plugin, "/run", run="a")
    assert [m["name"] for m in run["models"]] == ["net"]
    assert [(r["rank"], r["clock_known"]) for r in run["ranks"]] == [(0, True), (1, False)]
    assert run["read_bytes"] == run["total_bytes"] > 0
    where = {"run": "a", "model": "net"}
    code, view = ask(plugin, "/view", **where, t0=0, t1=run["models"][0]["extent"], width=1000)
    assert (code, len(view["ranks"]), view["version"]) == (200, 2, run["version"])
    assert ask(plugin, "/step", **where, step=2)[1]["step"] == 2
    assert ask(plugin, "/bucket", **where, rank=1, id=3)[1]["title"].startswith("bucket 1, step 1")


@pytest.mark.parametrize(
    ("route", "parameters", "code", "says"),
    [
        ("/run", {"run": "../secret"}, 404, "no such run"),
        ("/run", {}, 404, "no such run"),
        ("/view", {"run": "a", "model": "other", "t0": 0, "t1": 1, "width": 1}, 404, "no such mod"),
        ("/view", {"run": "a", "model": "net", "t0": 0, "t1": "x", "width": 1}, 400, "t1 is not a"),
        ("/view", {"run": "a", "model": "net", "t0": 0, "t1": "inf", "width": 1}, 400, "t1 is not"),
        ("/view", {"run": "a", "model": "net", "t0": 0, "t1": "1e300", "width": 1}, 400, "range"),
        ("/view", {"run": "a", "model": "net", "t0": 9, "t1": 1, "width": 1}, 400, "after t0"),
        (
            "/view",
            {"run": "a", "model": "net", "t0": 0, "t1": 1, "width": 9, "ranks": "1-2"},
            400,
            "0,1,",
        ),
        ("/bucket", {"run": "a", "model": "net", "rank": 7, "id": 0}, 404, "rank 7 has no row 0"),
    ],
)
def test_what_is_not_there_is_said(
    plugin: CommTimeline, route: str, parameters: dict[str, Any], code: int, says: str
) -> None:
    found, answer = ask(plugin, route, **parameters)
    assert found == code
    assert says in answer["error"]


def test_the_page_s_files_have_routes_of_their_own(plugin: CommTimeline) -> None:
    """No part of a request becomes a path."""
    static = {route for route in plugin.get_plugin_apps() if route.startswith("/static/")}
    assert {"/static/main.js", "/static/style.css"} <= static
    assert not any("*" in route for route in plugin.get_plugin_apps())
    path = plugin.frontend_metadata().es_module_path
    response = Client(plugin.get_plugin_apps()[path]).get(path)
    assert response.mimetype == "text/javascript"
    assert b"export function render" in response.get_data()


def test_the_page_has_the_server_s_definitions_and_a_colour_for_each_stage(
    plugin: CommTimeline,
) -> None:
    """In light and in dark; what a wire stage waits is hatched in the wire's."""
    route = "/static/definitions.js"
    response = Client(plugin.get_plugin_apps()[route]).get(route)
    assert response.mimetype == "text/javascript"
    found = dict(re.findall(r"^export const (\w+) = (.*);$", response.text, re.MULTILINE))
    assert json.loads(found["KINDS"]) == list(KINDS)
    assert json.loads(found["FLAGS"]) == {**FLAGS, "late": LATE}
    assert [value for value, _ in json.loads(found["HEAT_VALUES"])] == list(VALUES)
    sheet = (Path(tensorboard_plugin.__file__).parent / "static" / "style.css").read_text()
    for name in set(KINDS) - {"wait"}:
        assert len(re.findall(rf"--{name}: #[0-9a-f]{{6}};", sheet)) == 2, name


def test_without_a_local_logdir_the_tab_is_inactive() -> None:
    for logdir in (None, "", "gs://somewhere", "/nowhere/at/all"):
        plugin = CommTimeline(TBContext(logdir=logdir))
        assert not plugin.is_active()
        assert ask(plugin, "/runs") == (200, {"runs": []})


@pytest.mark.slow
def test_torch_is_not_imported() -> None:
    """TensorBoard's process stays as small as it is."""
    code = "import hooktrace.analysis.tensorboard_plugin.plugin"
    assert loaded_with(code, {"torch", "prometheus_client", "opentelemetry"}) == "[]"


def test_a_strip_has_all_buckets_in_one_row(tmp_path: Path) -> None:
    """As many as before, of the ranks that were asked for alone; a hang keeps its row."""
    write_hung_job(SyntheticJob(steps=12), SyntheticHang(step=12, killed=(2,)), tmp_path)
    ask = asking(tmp_path)
    (model,) = ask("/run")["models"]
    part = {"model": model["name"], "t0": 0, "t1": model["extent"], "width": 30_000, "strips": 1}
    drawn = ask("/view", **part, ranks="1,2,99")["ranks"]
    assert [rank["rank"] for rank in drawn] == [1, 2]
    assert sum(len(rank[kind]["lane"]) for rank in drawn for kind in ("bars", "bins")) >= 2 * 11 * 8
    assert {lane for rank in drawn for lane in rank["bars"]["lane"]} == {0}
    assert [bar["lane"] for rank in drawn for bar in rank["hangs"]] == [5, None]
    assert len(ask("/view", **part)["ranks"]) == 4
