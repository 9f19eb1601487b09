"""The file by which Prometheus finds a rank (``file_sd_configs``).

URL, labels --TargetFile.write--> <place>/hooktrace-rank<N>.json --TargetFile.remove--> gone
"""

from __future__ import annotations

import errno
import json
import logging
import os
from itertools import chain, count
from pathlib import Path
from urllib.parse import urlsplit

from .append_file import writable_directory

_log = logging.getLogger(__name__)

_announced: dict[Path, str] = {}
"""What stands in the files of this process; two endpoints of one rank have one each."""


class TargetFile:
    """One rank's file in the directory ``place``, or beside it where it ends in ``.json``.

    Raises ``OSError`` when the directory cannot be made or written.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path: Path | None = None
        try:
            writable_directory(place.parent if place.suffix == ".json" else place)
        except OSError as error:
            why = os.strerror(error.errno or errno.EIO)
            message = f"file_sd={place} cannot be used ({why}); pass a writable directory"
            raise OSError(error.errno or errno.EIO, message) from error

    def write(self, url: str, labels: dict[str, str]) -> bool:
        """Announce that the metrics of ``labels``' rank are at ``url``.

        Returns false, and warns, where it cannot.
        """
        target = urlsplit(url).netloc
        text = json.dumps([{"targets": [target], "labels": labels}], indent=1) + "\n"
        path = self._path_of(labels["rank"], text)
        try:
            _write_atomically(path, text)
        except OSError as error:
            _log.warning(
                "Prometheus will not discover rank %s: %s could not be written (%s); "
                "make room or permit writing there, or add the target %s by hand",
                labels["rank"], path, error, target,
            )  # fmt: skip
            return False
        self._path = path
        _announced[path] = text
        return True

    def remove(self) -> None:
        """Remove the file, if it is still the one that was written."""
        path, self._path = self._path, None
        if path is None or path not in _announced:
            return
        text = _announced.pop(path)
        try:
            # A later run may have announced itself under the same name.
            if path.read_text() == text:
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s could not be removed (%s); delete it by hand", path, error)

    def _path_of(self, rank: str, text: str) -> Path:
        if self._place.suffix == ".json":
            first = self._place.with_name(f"{self._place.stem}-rank{rank}.json")
        else:
            first = self._place / f"hooktrace-rank{rank}.json"
        others = (first.with_stem(f"{first.stem}-{number}") for number in count(2))
        return next(p for p in chain([first], others) if _announced.get(p, text) == text)


def _write_atomically(path: Path, text: str) -> None:
    # The temporary name must not match Prometheus' *.json, and the mode must let it read the file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
