"""Hangs of the runs before: of a job that was started again its newest files know nothing.

folder, its files of older runs --earlier_hangs--> EarlierHang: the sentence, and in which file
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from ...records import HangRecord
from ...records.codec import UNREADABLE, decode_line
from ...records.files import ranks_files
from ...records.hang import hang_kind
from ...records.reader import read_blocks

_BEGINNING = b'{"kind":"hang"'


class EarlierHang(msgspec.Struct, frozen=True):
    """What an older run's file says of its last hang; ``over``: that it was over too."""

    file: str
    sentence: str
    since_wall_ns: int
    over: bool


def earlier_hangs(folder: Path) -> list[EarlierHang]:
    """Return the last hang of each older run in a folder, the newest run first.

    Of each run the lowest rank's files are read: every rank gets the record.  What cannot be read
    says nothing.
    """
    older: dict[int, dict[int, list[Path]]] = {}
    for name, path in ranks_files(folder):
        if name.age:
            older.setdefault(name.age, {}).setdefault(name.rank, []).append(path)
    found = [_last_of(ranks[min(ranks)]) for _, ranks in sorted(older.items())]
    return [one for one in found if one is not None]


def _last_of(paths: list[Path]) -> EarlierHang | None:
    records = [(path, record) for path in paths for record in _hangs_in(path)]
    if not records:
        return None
    path, last = records[-1]
    over = last.ended_after_ns is not None
    said = next((r for _, r in reversed(records) if r.ended_after_ns is None), last)
    remedy = hang_kind(said.kind).remedy_of(said.unit)
    sentence = said.message.partition("\n")[0].removesuffix(f"; {remedy}")
    return EarlierHang(path.name, sentence, said.since_wall_ns, over)


def _hangs_in(path: Path) -> list[HangRecord]:
    found = []
    with suppress(OSError):
        for block in read_blocks(path):
            for line in block.splitlines() if _BEGINNING in block else ():
                if line.startswith(_BEGINNING):
                    with suppress(*UNREADABLE, ValueError):
                        found.append(decode_line(line))
    return [record for record in found if isinstance(record, HangRecord)]
