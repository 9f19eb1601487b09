"""The routes as TensorBoard calls them, what they cost in imports; which runs there are."""

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
from hooktrace.analysis.tensorboard_plugin import plugin as plugin_module
from hooktrace.analysis.tensorboard_plugin.heat_map import VALUES
from hooktrace.analysis.tensorboard_plugin.plugin import CommTimeline
from hooktrace.analysis.tensorboard_plugin.runs import NotThereError, Runs, readers
from tests.analysis.run.files import run_of, steps_of, text_of, write_ranks
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


def test_what_else_lies_beside_the_page_s_files_is_not_served(
    plugin: CommTimeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor's file, a system's, a folder."""
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / ".DS_Store").touch()
    (tmp_path / "main.js").touch()
    monkeypatch.setattr(plugin_module, "_STATIC", tmp_path)
    static = {route for route in plugin.get_plugin_apps() if route.startswith("/static/")}
    assert static == {"/static/main.js", "/static/definitions.js"}


def test_the_page_has_the_server_s_definitions(plugin: CommTimeline) -> None:
    route = "/static/definitions.js"
    response = Client(plugin.get_plugin_apps()[route]).get(route)
    assert response.mimetype == "text/javascript"
    found = dict(re.findall(r"^export const (\w+) = (.*);$", response.text, re.MULTILINE))
    assert json.loads(found["KINDS"]) == list(KINDS)
    assert json.loads(found["FLAGS"]) == {**FLAGS, "late": LATE}
    assert [value for value, _ in json.loads(found["HEAT_VALUES"])] == list(VALUES)


def test_each_stage_has_a_colour_and_the_report_has_the_same() -> None:
    """In light, in dark, and on paper, which is light; what a wire stage waits is hatched."""
    sheet = (Path(tensorboard_plugin.__file__).parent / "static" / "style.css").read_text()
    begins = ":root {", ':root[data-theme="dark"] {'
    light, dark = (sheet.split(begin)[1].split("}")[0] for begin in begins)
    style = Path(tensorboard_plugin.__file__).parents[1] / "document" / "templates" / "page.css"
    screen, paper = style.read_text().split("@media print")
    light_report, dark_report = screen.split("@media(prefers-color-scheme:dark)")
    for tab, report in ((light, light_report), (dark, dark_report), (light, paper)):
        ours, theirs = (dict(re.findall(r"--(\w+): ?(#[0-9a-f]{6})", x)) for x in (tab, report))
        for name in set(KINDS) - {"wait", "other"}:
            assert ours[name] == theirs[name], name
        assert "other" in ours


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


TEXT = text_of(run_of(0), steps_of(1))


def test_runs_at_any_depth(tmp_path: Path) -> None:
    for name in (".", "a", "b/c"):
        write_ranks(tmp_path / name, {0: TEXT})
    (tmp_path / "empty/plugins/hooktrace").mkdir(parents=True)
    assert Runs(tmp_path).names() == [".", "a", "b/c"]
    assert Runs(None).names() == []
    assert Runs(tmp_path / "nowhere").names() == []


def test_a_name_is_looked_up_and_never_a_path(tmp_path: Path) -> None:
    write_ranks(tmp_path / "logs/a", {0: TEXT})
    write_ranks(tmp_path / "secret", {0: TEXT})
    runs = Runs(tmp_path / "logs")
    assert list(runs.files("a")) == [0]
    for name in ("../secret", str(tmp_path / "secret"), "a/../../secret", "a/", "", "A"):
        with pytest.raises(NotThereError):
            runs.files(name)


def test_links_out_of_the_logdir_are_not_followed(tmp_path: Path) -> None:
    """Whichever part of the path is the link; links inside are."""
    logs = tmp_path / "logs"
    write_ranks(tmp_path / "secret", {0: TEXT})
    outside = tmp_path / "secret/plugins/hooktrace/rank00000.jsonl"
    write_ranks(logs / "run", {0: TEXT})
    folder = logs / "run/plugins/hooktrace"
    (folder / "rank00001.jsonl").symlink_to(outside)
    (folder / "rank00002.jsonl").symlink_to(folder / "rank00000.jsonl")
    (logs / "whole").symlink_to(tmp_path / "secret")
    (logs / "up").symlink_to(logs)
    (logs / "plugins").symlink_to(tmp_path / "secret/plugins")
    deep = logs / "deep/plugins"
    deep.mkdir(parents=True)
    (deep / "hooktrace").symlink_to(tmp_path / "secret/plugins/hooktrace")
    runs = Runs(logs)
    assert runs.names() == ["run"]
    assert list(runs.files("run")) == [0, 2]


def test_new_runs_are_seen_after_a_while(tmp_path: Path) -> None:
    now = 0.0
    runs = Runs(tmp_path, clock=lambda: now)
    assert runs.names() == []
    write_ranks(tmp_path / "a", {0: TEXT})
    now = 4.0
    assert runs.names() == []
    now = 5.0
    assert runs.names() == ["a"]


def test_a_large_run_is_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank a portion at least, whatever the budget; then the rest."""
    monkeypatch.setattr("hooktrace.analysis.run.follow._PORTION", 1 << 15)
    write_ranks(tmp_path, {r: text_of(run_of(r), steps_of(60)) for r in range(3)})
    reader = readers(Runs(tmp_path).files)(".")
    first = reader.refresh(0.0)
    sizes = [len(t.steps) for t in first.run.tracks]
    assert all(0 < size < 60 for size in sizes)
    assert first.read_bytes < first.total_bytes
    assert reader.latest(100.0) is first
    whole = reader.refresh(100.0)
    assert [len(t.steps) for t in whole.run.tracks] == [60, 60, 60]
    assert (whole.version, whole.read_bytes) == (first.version + 1, whole.total_bytes)
    assert reader.refresh(100.0) is whole


def test_only_some_runs_stay_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        write_ranks(tmp_path / name, {0: TEXT})
    monkeypatch.setattr("hooktrace.analysis.tensorboard_plugin.runs._KEPT", 2)
    reader = readers(Runs(tmp_path).files)
    a, b = reader("a"), reader("b")
    assert reader("a") is a
    reader("c")
    assert reader("a") is a
    assert reader("b") is not b
