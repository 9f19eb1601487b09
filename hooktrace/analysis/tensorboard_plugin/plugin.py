"""The routes of the tab, each an answer in JSON, and the files of its page.

    GET runs                      -> names
    GET run?run                   -> models, ranks, what could not be read, how far it is
    GET ROUTE?run&model&...       -> what ``ROUTES`` has of one model
    GET static/definitions.js     -> what page and server must agree on

Anything that names nothing is answered with 404, a number that is none with 400; ``error`` says
why.  Answers hold names from files as they are: the page writes them as text, never as markup.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from ..run import FLAGS
from ..run.missing import missing
from ..run.scene import KINDS, LATE, Scene
from .bucket_detail import bucket_detail
from .heat_map import VALUES, heat_map, run_bands
from .level_of_detail import Look, picture
from .run_summary import step_of, summary
from .runs import NotThereError, Runs, Snapshot, readers
from .search import search

_STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css"}
_DEFINITIONS = {
    "KINDS": KINDS,
    "FLAGS": {**FLAGS, "late": LATE},
    "HEAT_VALUES": [(value, title) for value, (title, _) in VALUES.items()],
}
"""What page and server must agree on; the page imports it as ``definitions.js``."""
_BUDGET_S = 0.25
"""How long a request for ``run`` reads: what is left is read by the next one."""
_MAX_WIDTH_PX = 20_000

Answer = Callable[[wrappers.Request], dict[str, Any]]


class CommTimeline(base_plugin.TBPlugin):  # type: ignore[misc]
    """The plugin as TensorBoard makes it."""

    plugin_name = "hooktrace"

    def __init__(self, context: base_plugin.TBContext) -> None:
        logdir = context.logdir
        is_local = logdir and "://" not in logdir
        self._runs = Runs(Path(logdir).expanduser() if is_local else None)
        self._reader = readers(self._runs.files)

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return the routes; a file of the page has one of its own, none is looked up by name."""
        apps = {f"/{name}": _serving(partial(self._of_model, name)) for name in ROUTES}
        apps["/runs"] = _serving(lambda _: {"runs": self._runs.names()})
        apps["/run"] = _serving(self._serve_run)
        paths = (path for path in _STATIC.iterdir() if path.suffix in _TYPES)
        files = {path.name: path.read_bytes() for path in paths}
        lines = (f"export const {name} = {json.dumps(it)};\n" for name, it in _DEFINITIONS.items())
        files["definitions.js"] = "".join(lines).encode()
        for name, content in files.items():
            kind = _TYPES[Path(name).suffix]
            respond = partial(http_util.Respond, content=content, content_type=kind)
            apps[f"/static/{name}"] = wrappers.Request.application(respond)
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

    def _serve_run(self, request: wrappers.Request) -> dict[str, Any]:
        snapshot = self._reader(request.args.get("run", "")).refresh(_BUDGET_S)
        run = snapshot.run
        unaligned = set(run.unaligned)
        return {
            "version": snapshot.version,
            "read_bytes": snapshot.read_bytes,
            "total_bytes": snapshot.total_bytes,
            "run_id": run.info.run_id if run.info is not None else None,
            "models": [_model(snapshot, name) for name in run.model_names],
            "ranks": [
                {
                    "rank": track.rank,
                    "host": track.host,
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

    def _of_model(self, name: str, request: wrappers.Request) -> dict[str, Any]:
        snapshot = self._reader(request.args.get("run", "")).latest(_BUDGET_S)
        found = ROUTES[name](snapshot.scene(request.args.get("model", "")), request)
        return {"version": snapshot.version, "read_bytes": snapshot.read_bytes, **found}


def _model(snapshot: Snapshot, name: str) -> dict[str, Any]:
    scene = snapshot.scene(name)
    rows = {"lanes": scene.lanes, "titles": scene.titles, "others_lane": scene.others_lane}
    return {"name": name, "extent": scene.extent, **rows}


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


def _ranks(scene: Scene, request: wrappers.Request) -> list[int]:
    """Return the places of the ranks that are asked for, as ``0,1,12``; all where none is."""
    text = request.args.get("ranks", "")
    try:
        wanted = {int(part) for part in text.split(",")} if text else {*scene.numbers}
    except ValueError:
        raise ValueError("ranks is not a list such as 0,1,12") from None
    return [i for i, rank in enumerate(scene.numbers) if rank in wanted]


def _view(scene: Scene, request: wrappers.Request) -> dict[str, Any]:
    t0, t1, width = (_number(request, name) for name in ("t0", "t1", "width"))
    ranks, strips = _ranks(scene, request), bool(request.args.get("strips"))
    return picture(scene, Look(t0, t1, min(width, _MAX_WIDTH_PX), ranks, strips))


def _bucket(scene: Scene, request: wrappers.Request) -> dict[str, Any]:
    rank = _number(request, "rank")
    if "id" in request.args:
        return bucket_detail(scene, rank, row=_number(request, "id"))
    bucket, step = _number(request, "bucket"), _number(request, "step")
    return bucket_detail(scene, rank, bucket=bucket, step=step)


ROUTES: dict[str, Callable[[Scene, wrappers.Request], dict[str, Any]]] = {
    "view": _view,
    "summary": lambda scene, _: {**summary(scene), "bands": run_bands(scene)},
    "step": lambda scene, asked: step_of(
        scene, _number(asked, "step") if "step" in asked.args else None
    ),
    "heat": lambda scene, asked: heat_map(
        scene, asked.args.get("value", ""), _number(asked, "columns")
    ),
    "search": lambda scene, asked: search(scene, asked.args.get("text", "")),
    "bucket": _bucket,
}
"""What is answered of a model, and what was read of the run then.  ``step`` without a number is a
typical one; a bucket is named by its ``id`` in its rank's file, or by ``step`` and ``bucket``."""
