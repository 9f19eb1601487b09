"""Where a job's hub is, in a file beside its records that only their owner reads.

hub --write--> <logdir>/plugins/hooktrace/channel.json --read--> hooktrace ctl, hooktrace top
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from ...records.errors import UsageError
from ...records.files import record_path
from ..channel.messages import HubAddress

_NAME = "channel.json"


def address_path(run: str | os.PathLike[str]) -> Path:
    """Return where the file of a run's directory is."""
    return record_path(run, 0).parent / _NAME


def write_address(run: Path, address: HubAddress) -> None:
    """Write the file, readable by its owner only, in one move.  Raises ``OSError``."""
    path = address_path(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(prefix=f"{_NAME}.", dir=path.parent, delete=False) as file:
        file.write(msgspec.json.encode(address))
    Path(file.name).replace(path)


def remove_address(run: Path) -> None:
    """Remove the file, if it is this process's."""
    with suppress(OSError, msgspec.DecodeError):
        path = address_path(run)
        if msgspec.json.decode(path.read_bytes(), type=HubAddress).member.pid == os.getpid():
            path.unlink()


def read_address(run: str | os.PathLike[str]) -> HubAddress:
    """Return where a run's hub is.  Raises ``UsageError`` where the file does not say."""
    path = address_path(run)
    try:
        return msgspec.json.decode(path.read_bytes(), type=HubAddress)
    except FileNotFoundError:
        raise UsageError(
            f"{path} is not there: the job has ended, or rank 0 writes no records there; pass the "
            "directory of its RecordFileExporter, or --connect"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}); ask as the user whose job it is, or pass --connect"
        ) from None
