"""A file that only grows by whole blocks: what the record file and the event file are written with.

Nothing is buffered in the process, so what was appended survives a ``kill -9``.  A block that does
not fit on the disk is taken back, so that a reader never meets half of one.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

_FIXES = {
    errno.ENOSPC: "free space there, or pass a logdir on another disk",
    errno.EDQUOT: "free space in your quota, or pass a logdir on another disk",
    errno.EFBIG: "raise the process's file size limit (ulimit -f), or lower max_bytes",
    errno.EROFS: "pass a logdir on a disk that can be written",
    errno.EACCES: "pass a logdir that this user may write",
    errno.EPERM: "pass a logdir that this user may write",
    errno.ENOTDIR: "a part of the path is a file; pass another logdir",
    errno.EEXIST: "a part of the path is a file; pass another logdir",
}


def disk_error(error: OSError, what: str) -> OSError:
    """Return an error of the same kind whose message says what failed, why, and the fix."""
    code = error.errno or errno.EIO
    fix = _FIXES.get(code, "check that disk, or pass a logdir on another one")
    return OSError(code, f"{what}: {os.strerror(code)}; {fix}")


def writable_directory(path: str | os.PathLike[str]) -> Path:
    """Make the directory ``path`` and its parents, and check that a file can be made in it.

    Raises ``ValueError`` for a URL and ``OSError`` where the directory cannot be made or written.
    """
    if "://" in os.fspath(path):
        raise ValueError(
            f"{os.fspath(path)!r} is not a local path; pass a local directory and copy it later"
        )
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Only making a file tells the truth: os.access is blind to a read-only mount and to root.
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise disk_error(error, f"cannot write in the directory {directory}") from error
    return directory


class AppendFile:
    """A new file at ``path``, open for appending; ``size`` is its length in bytes.

    Raises ``FileExistsError`` when ``path`` exists, ``OSError`` when it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._pid = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        try:
            self._fd: int | None = os.open(path, flags, 0o666)
        except OSError as error:
            raise disk_error(error, f"cannot make the file {path}") from error

    def append(self, block: bytes) -> None:
        """Write ``block`` as a whole, or nothing of it.

        Raises ``OSError`` when the disk is full, the file was deleted or the write fails; what was
        written of the block is cut off again.  A forked child writes nothing.
        """
        if self._fd is None or os.getpid() != self._pid:
            return
        if os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(
                errno.ENOENT,
                f"{self.path} was deleted while it was being written; "
                "keep the logdir for as long as the run lasts",
            )
        try:
            self._write(self._fd, block)
        except OSError as error:
            self._cut_back(self._fd)
            raise disk_error(error, f"cannot write to {self.path}") from error
        self.size += len(block)

    @staticmethod
    def _write(fd: int, block: bytes) -> None:
        rest = memoryview(block)
        while rest:
            written = os.write(fd, rest)  # less than asked for when the disk fills up
            if written == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rest = rest[written:]

    def _cut_back(self, fd: int) -> None:
        # Readers skip a cut-off end; the write's own error is the one to tell.
        with suppress(OSError):
            if os.fstat(fd).st_size > self.size:
                os.ftruncate(fd, self.size)

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)
