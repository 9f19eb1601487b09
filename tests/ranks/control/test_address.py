"""The file that says where the hub is: its owner's alone, and gone with the job."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.ranks.channel.messages import HubAddress, Member
from hooktrace.ranks.control.address import (
    address_path,
    read_address,
    remove_address,
    write_address,
)
from hooktrace.records.errors import UsageError

ADDRESS = HubAddress(
    places=(("10.0.0.1", 4000),), token="ab" * 16, member=Member(0, os.getpid(), "a", "a")
)


def test_it_is_its_owners_whatever_was_there_and_is_removed_by_who_wrote_it(tmp_path: Path) -> None:
    """Also where a file of another mode, or an earlier job's, has its name."""
    path = address_path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o666)
    write_address(tmp_path, replace(ADDRESS, member=replace(ADDRESS.member, pid=1)))
    remove_address(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    write_address(tmp_path, ADDRESS)
    assert read_address(tmp_path) == ADDRESS
    assert [file.name for file in path.parent.iterdir()] == ["channel.json"]
    remove_address(tmp_path)
    remove_address(tmp_path)
    assert not path.exists()


@pytest.mark.parametrize(("content", "said"), [(None, "is not there"), ("{", "cannot be read")])
def test_what_cannot_be_read_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        address_path(tmp_path).parent.mkdir(parents=True)
        address_path(tmp_path).write_text(content)
    with pytest.raises(UsageError, match=f"channel.json {said}.*--connect"):
        read_address(tmp_path)
