"""``hooktrace run``: a script, or a module, as Python would run it, with hooktrace set up before.

    run(["train.py", "--lr", "0.1"]) --> start.begin --> __main__, sys.argv, sys.path --> its code

What the script raises passes through, and so does its exit code.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import runpy
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, NoReturn

from . import ending, start

USAGE = "name the script to run, as hooktrace run train.py, or hooktrace run -m package.module"


def run(arguments: list[str]) -> None:
    """Run a script with its arguments: ``[path, ...]``, or ``["-m", module, ...]``."""
    is_module = arguments[:1] == ["-m"]
    arguments = arguments[is_module:]
    if not arguments or (arguments[0].startswith("-") and not is_module):
        _refuse(USAGE)
    target = arguments[0]
    start.begin(os.path.splitext(os.path.basename(target))[0] or "hooktrace")
    ending.watch_first()
    sys.argv = arguments
    try:
        _run_module(target) if is_module else _run_script(target)
    except SystemExit as leaving:
        if leaving.code:
            ending.failed()
        raise
    except BaseException:
        ending.failed()
        raise


def _run_script(path: str) -> None:
    if not os.path.exists(path):
        _refuse(f"there is no file {path}; {USAGE}")
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        runpy.run_path(path, run_name="__main__")
        return
    _first_path(os.path.dirname(os.path.realpath(path)))
    full = os.path.abspath(path)
    with io.open_code(full) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    _execute(code, __file__=full, __cached__=None, __loader__=SourceFileLoader("__main__", full))


def _run_module(name: str) -> None:
    _first_path(os.getcwd())
    spec, code = _find(name)
    sys.argv[0] = str(spec.origin)
    _execute(
        code, __file__=spec.origin, __cached__=spec.cached, __loader__=spec.loader,
        __spec__=spec, __package__=spec.parent,
    )  # fmt: skip


def _find(name: str) -> tuple[ModuleSpec, CodeType]:
    """Return a module's spec and code; of a package those of its ``__main__``."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError as missing:
        _refuse(f"{missing}; {USAGE}")
    if spec is not None and spec.submodule_search_locations is not None:
        return _find(f"{name}.__main__")
    loader: Any = None if spec is None else spec.loader
    code: CodeType | None = loader.get_code(name) if hasattr(loader, "get_code") else None
    if spec is None or code is None:
        _refuse(f"there is no module {name} that can be run; {USAGE}")
    return spec, code


def _execute(code: CodeType, **attributes: Any) -> None:
    main = ModuleType("__main__")
    vars(main).update(attributes, __builtins__=builtins)
    sys.modules["__main__"] = main  # where pickles and child processes look for it
    exec(code, vars(main))


def _first_path(path: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = path  # which was hooktrace's own


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(f"hooktrace run: {why}\n")
    sys.exit(2)
