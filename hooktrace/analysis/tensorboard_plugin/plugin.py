"""The routes of the tab, each an answer in JSON, and the files of its page.

    GET runs                               -> names
    GET run?run                            -> models, ranks, what could not be read, how far it is
    GET view?run&model&t0&t1&width         -> what to draw (level_of_detail.py); with ranks and
                                              strips of some of them
    GET summary?run&model                  -> lists (run_summary.py), bands (heat_map.py)
    GET step?run&model&step                -> where a step is; without one a typical step
    GET heat?run&model&value&columns       -> ranks by steps (heat_map.py)
    GET selection?run&model&t0&t1&ranks    -> a stretch of time in numbers (selection.py)
    GET search?run&model&text              -> what a text finds (search.py)
    GET bucket?run&model&rank&id           -> all numbers of one bucket (bucket_detail.py)
    GET bucket?run&model&rank&step&bucket  -> the same, of who does not know its id
    GET path?run&model&step                -> the critical path of a step (run_paths.py)
    GET path_sums?run&model                -> of a sample of steps, and who is waited for
    GET static/definitions.js              -> what page and server must agree on

Anything that names nothing is answered with 404, a number that is none with 400; ``error`` says
why.  Answers hold names from files as they are: the page writes them as text, never as markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from ..run import FLAGS
from ..run.missing import missing
from .bucket_detail import bucket_detail, row_of
from .cache import RunCache, Snapshot
from .heat_map import VALUES, heat_map, run_bands
from .level_of_detail import Look, picture
from .run_paths import step_path, usual_path
from .run_summary import lists_of, step_of, usual_exposed
from .runs import NotThereError, Runs
from .scene import KINDS, LATE, Scene
from .search import search
from .selection import selection

_STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css"}
_DEFINITIONS = {
    "KINDS": KINDS,
    "FLAGS": {**FLAGS, "late": LATE},
    "HEAT_VALUES": [(value, title) for value, (title, _) in VALUES.items()],
}
"""What page and server must agree on; the page imports it as ``definitions.js``."""
_BUDGET_S = 0.4
"""How long a request for ``run`` reads: what is left is read by the next one."""
_MAX_WIDTH_PX = 20_000

Answer = Callable[[wrappers.Request], dict[str, Any]]


class CommTimeline(base_plugin.TBPlugin):  # type: ignore[misc]
    """The plugin as TensorBoard makes it."""

    plugin_name = "hooktrace"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._runs = Runs(_roots(context))
        self._cache = RunCache(self._runs.files)

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return the routes; a file of the page has one of its own, none is looked up by name."""
        apps = {
            f"/{name}": _serving(getattr(self, f"_serve_{name}"))
            for name in (
                *("runs", "run", "view", "summary", "step", "heat", "selection", "search"),
                *("bucket", "path", "path_sums"),
            )
        }
        for path in _STATIC.iterdir():
            if path.suffix in _TYPES:
                apps[f"/static/{path.name}"] = _serving_file(path.read_bytes, _TYPES[path.suffix])
        apps["/static/definitions.js"] = _serving_file(_definitions, _TYPES[".js"])
        return apps

    def is_active(self) -> bool:
        """Return whether there is a record file under the logdir."""
        return bool(self._runs.names())

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return the tab's name and its module; the page looks for new data by itself."""
        return base_plugin.FrontendMetadata(
            es_module_path="/static/main.js", tab_name="Comm Timeline", disable_reload=True
        )

    def data_plugin_names(self) -> tuple[str, ...]:
        """Return none: nothing of event files is shown."""
        return ()

    def _serve_runs(self, request: wrappers.Request) -> dict[str, Any]:
        return {"runs": self._runs.names()}

    def _serve_run(self, request: wrappers.Request) -> dict[str, Any]:
        snapshot = self._cache.refresh(request.args.get("run", ""), _BUDGET_S)
        run = snapshot.run
        unaligned = set(run.unaligned)
        return {
            **_progress(snapshot),
            "run_id": run.info.run_id if run.info is not None else None,
            "models": [_model(snapshot, name) for name in run.model_names],
            "ranks": [
                {
                    "rank": track.rank,
                    "host": track.records.run.host if track.records.run is not None else None,
                    "clock_known": track.rank not in unaligned,
                    "skipped": len(track.records.skipped) + track.records.unnamed,
                }
                for track in run.tracks
            ],
            "notes": [
                *(f"{name} cannot be read: {why}" for name, why in snapshot.errors.items()),
                *missing(run),
            ],
        }

    def _serve_view(self, request: wrappers.Request) -> dict[str, Any]:
        snapshot, scene = self._scene(request)
        t0, t1, width = (_number(request, name) for name in ("t0", "t1", "width"))
        strips = bool(request.args.get("strips"))
        look = Look(t0, t1, min(width, _MAX_WIDTH_PX), _ranks(request, scene), strips)
        return {**_progress(snapshot), **picture(scene, look)}

    def _serve_summary(self, request: wrappers.Request) -> dict[str, Any]:
        snapshot, scene = self._scene(request)
        return {
            "version": snapshot.version,
            "extent": scene.extent,
            "bands": run_bands(scene),
            "lists": lists_of(scene),
            "late": [{"rank": x.rank, "share": x.share} for x, _ in scene.late],
            "usual_exposed": usual_exposed(scene),
        }

    def _serve_step(self, request: wrappers.Request) -> dict[str, Any]:
        _, scene = self._scene(request)
        is_named = "step" in request.args
        return step_of(scene, _number(request, "step") if is_named else None)

    def _serve_heat(self, request: wrappers.Request) -> dict[str, Any]:
        _, scene = self._scene(request)
        return heat_map(scene, request.args.get("value", ""), _number(request, "columns"))

    def _serve_selection(self, request: wrappers.Request) -> dict[str, Any]:
        _, scene = self._scene(request)
        t0, t1 = _number(request, "t0"), _number(request, "t1")
        return selection(scene, t0, t1, _ranks(request, scene))

    def _serve_search(self, request: wrappers.Request) -> dict[str, Any]:
        _, scene = self._scene(request)
        return search(scene, request.args.get("text", ""))

    def _serve_bucket(self, request: wrappers.Request) -> dict[str, Any]:
        _, scene = self._scene(request)
        rank = _number(request, "rank")
        if "id" in request.args:
            return bucket_detail(scene, rank, _number(request, "id"))
        row = row_of(scene, rank, _number(request, "step"), _number(request, "bucket"))
        return bucket_detail(scene, rank, row)

    def _serve_path(self, request: wrappers.Request) -> dict[str, Any]:
        _, scene = self._scene(request)
        return step_path(scene, _number(request, "step"))

    def _serve_path_sums(self, request: wrappers.Request) -> dict[str, Any]:
        _, scene = self._scene(request)
        return usual_path(scene)

    def _scene(self, request: wrappers.Request) -> tuple[Snapshot, Scene]:
        """Return the run as far as it was read, and its model that is asked for."""
        snapshot = self._cache.get(request.args.get("run", ""), _BUDGET_S)
        return snapshot, snapshot.scene(request.args.get("model", ""))


def _roots(context: base_plugin.TBContext) -> dict[str, Path]:
    """Return the folders that TensorBoard was given, by name; none where they are not local."""
    logdir = context.logdir
    if logdir:
        return {} if "://" in logdir else {"": Path(logdir).expanduser()}
    spec = getattr(context.flags, "logdir_spec", "") or ""
    roots = {}
    for part in filter(None, spec.split(",")):
        name, colon, path = part.partition(":")
        if "://" not in part:
            roots[name if colon else ""] = Path(path if colon else part).expanduser()
    return roots


def _model(snapshot: Snapshot, name: str) -> dict[str, Any]:
    scene = snapshot.scene(name)
    rows = {"lanes": scene.lanes, "titles": scene.titles}
    if scene.others_lane is not None:
        rows["others_lane"] = scene.others_lane
    return {"name": name, "extent": scene.extent, **rows}


def _progress(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "version": snapshot.version,
        "read_bytes": snapshot.read_bytes,
        "total_bytes": snapshot.total_bytes,
    }


def _number(request: wrappers.Request, name: str) -> int:
    """Return a whole number of the request; raises ``ValueError`` that names it."""
    try:
        value = int(float(request.args.get(name, "")))
    except (ValueError, OverflowError):
        raise ValueError(f"{name} is not a number") from None
    if abs(value) > 2**60:
        raise ValueError(f"{name} is out of range")
    return value


def _serving(answer: Answer) -> Any:
    @wrappers.Request.application
    def serve(request: wrappers.Request) -> Any:
        code, content = 200, {}
        try:
            content = answer(request)
        except NotThereError as error:
            code, content = 404, {"error": str(error)}
        except ValueError as error:
            code, content = 400, {"error": str(error)}
        # As text: given a dict, TensorBoard would look at each of a million numbers.
        text = json.dumps(content, separators=(",", ":"))
        return http_util.Respond(request, text, "application/json", code=code)

    return serve


def _serving_file(content: Callable[[], bytes], content_type: str) -> Any:
    @wrappers.Request.application
    def serve(request: wrappers.Request) -> Any:
        return http_util.Respond(request, content(), content_type)

    return serve


def _definitions() -> bytes:
    lines = [f"export const {name} = {json.dumps(it)};\n" for name, it in _DEFINITIONS.items()]
    return "".join(lines).encode()


_MOST_RANKS = 100_000
"""Ranks that a text may name."""


def ranks_of(text: str) -> frozenset[int] | None:
    """Return the ranks that "0-7,12" names; ``None``, for all, of "".

    Raises ``ValueError`` for what is no such list.
    """
    if not text:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if match is None:
            raise ValueError("ranks is not a list such as 0-7,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if len(found) + last - first > _MOST_RANKS:
            raise ValueError("ranks names too many")
        found.update(range(first, last + 1))
    return frozenset(found)


def _ranks(request: wrappers.Request, scene: Scene) -> list[int]:
    """Return the places of the ranks that are asked for."""
    wanted = ranks_of(request.args.get("ranks", ""))
    return [i for i, rank in enumerate(scene.numbers) if wanted is None or rank in wanted]
