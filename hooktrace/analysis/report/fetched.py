"""A run that lies elsewhere: its record files, copied here by fsspec.

    s3://bucket/run --fsspec lists and copies rank*.jsonl--> a folder of this machine --read as any

A copy, and not files that are opened in place: reading takes several passes and processes, and
looks for older runs' files, all of which a local path serves as fast as ever.  The copy is gone
when the process ends.
"""

from __future__ import annotations

import os
import re
import tempfile
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

from ...records.errors import UsageError
from ...records.files import RecordFileName

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?:://|::)")
_KEPT: list[tempfile.TemporaryDirectory[str]] = []
"""Removed with the process, since what was read names its files."""


def is_url(run: str | os.PathLike[str]) -> bool:
    """Return whether fsspec is to open it, and not the file system."""
    return _URL.match(os.fspath(run)) is not None


def fetched(run: str | os.PathLike[str]) -> Path:
    """Return the folder of a run, and of a URL that of a copy; raises ``UsageError``."""
    url = os.fspath(run)
    if not is_url(url):
        return Path(run)
    kept = tempfile.TemporaryDirectory(prefix="hooktrace-")
    _KEPT.append(kept)
    folder = Path(kept.name, PurePosixPath(url.rstrip("/")).name)
    try:
        files, root = _library().core.url_to_fs(url)
        found = _record_files(files, root)
        if found:
            folder.mkdir()
            files.get(found, [str(folder / PurePosixPath(name).name) for name in found])
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(
            f"cannot read {url}: {error or type(error).__name__}; pass a URL that fsspec opens, "
            "and install what it asks for"
        ) from error
    if not found:
        raise UsageError(
            f"there is no record file in {url} or in its plugins/hooktrace; pass the URL of the "
            "logdir that RecordFileExporter was given"
        )
    return folder


def _record_files(files: Any, root: str) -> list[str]:
    for folder in (f"{root.rstrip('/')}/plugins/hooktrace", root):
        try:
            names = files.ls(folder, detail=False)
        except FileNotFoundError:
            continue
        found = [name for name in names if RecordFileName.of(Path(PurePosixPath(name).name))]
        if found:
            return sorted(found)
    return []


def _library() -> Any:
    try:
        import_module("fsspec.core")
        return import_module("fsspec")
    except ModuleNotFoundError as error:
        raise UsageError(
            "a run at a URL is read by fsspec, which is not installed here, though torch brings it "
            "along; pip install fsspec, or copy the run and pass its path"
        ) from error
