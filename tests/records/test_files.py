"""Which files are records, and of which rank."""

from __future__ import annotations

from pathlib import Path

from hooktrace.records.files import find_records


def test_which_files_are_found(tmp_path: Path) -> None:
    """The logdir or the folder itself; parts in order; earlier runs and other files are not."""
    folder = tmp_path / "plugins" / "hooktrace"
    folder.mkdir(parents=True)
    names = ["rank00001.jsonl", "rank00000.part10.jsonl", "rank00000.part2.jsonl"]
    others = ["rank00000.1.jsonl", "rank0.json", "rankx.jsonl", "notes.txt"]
    for name in [*names, *others, "rank00000.jsonl"]:
        (folder / name).write_text("")
    for where in (tmp_path, folder):
        found = find_records(where)
        assert list(found) == [0, 1]
        assert [p.name for p in found[0]] == [
            "rank00000.jsonl",
            "rank00000.part2.jsonl",
            "rank00000.part10.jsonl",
        ]
    assert find_records(tmp_path / "nowhere") == {}


def test_no_job_has_a_rank_of_twenty_digits(tmp_path: Path) -> None:
    """Readers count ranks one by one."""
    (tmp_path / f"rank{'9' * 20}.jsonl").write_text("")
    assert find_records(tmp_path) == {}
