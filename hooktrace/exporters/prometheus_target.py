"""What tells Prometheus where a rank is: a file for its ``file_sd_configs``.

URL, RunInfo --TargetFile.write--> <place>/hooktrace-rank<N>.json --TargetFile.remove--> gone
"""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from urllib.parse import urlsplit

from ..records import RunInfo

_log = logging.getLogger(__name__)


class TargetFile:
    """One rank's file in the directory ``place``, or beside it where it ends in ``.json``.

    Raises ``OSError`` when the directory cannot be made or written.
    """

    def __init__(self, place: Path) -> None:
        self._place = place
        self._path: Path | None = None
        self._text = ""
        folder = place.parent if place.suffix == ".json" else place
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = (
                f"file_sd={place} cannot be used ({error.strerror}); pass a writable directory"
            )
            raise OSError(error.errno or errno.EINVAL, message) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(
                errno.EACCES, f"file_sd={place} is not writable; pass a writable directory"
            )

    def write(self, url: str, run: RunInfo) -> None:
        """Announce that the rank's metrics are at ``url``; warns where that cannot be written."""
        parts = urlsplit(url)
        labels = {name: str(getattr(run, name)) for name in _LABELS}
        if parts.scheme != "http":
            labels["__scheme__"] = parts.scheme
        text = json.dumps([{"targets": [parts.netloc], "labels": labels}], indent=1) + "\n"
        path = self._path_of(run.rank)
        try:
            _write_atomically(path, text)
        except OSError as error:
            _log.warning(
                "Prometheus will not discover rank %d: %s could not be written (%s); "
                "make room or permit writing there, or add the target %s by hand",
                run.rank, path, error, parts.netloc,
            )  # fmt: skip
            return
        self._path, self._text = path, text

    def remove(self) -> None:
        """Remove the file, if it is still the one that was written."""
        path, self._path = self._path, None
        if path is None:
            return
        try:
            # A later run may have announced itself under the same name.
            if path.read_text() == self._text:
                path.unlink()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s could not be removed (%s); delete it by hand", path, error)

    def _path_of(self, rank: int) -> Path:
        if self._place.suffix == ".json":
            return self._place.with_name(f"{self._place.stem}-rank{rank}.json")
        return self._place / f"hooktrace-rank{rank}.json"


_LABELS = ("rank", "local_rank", "world_size", "run_id", "host")


def _write_atomically(path: Path, text: str) -> None:
    # The temporary name must not match Prometheus' *.json, and the mode must let it read the file.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
