"""The groups of rows that can be measured, each a module with ``run(quick=...)``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ...records.errors import UsageError
from .table import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One module of this package.

    ``what`` is its heading in the table.  ``is_default``: measured where no group is asked for.
    """

    module: str
    what: str
    is_default: bool = True

    def run(self, *, quick: bool) -> Iterable[Row]:
        """Measure; rows come as they are known.  ``quick`` takes fewer samples."""
        module: Any = import_module(f".{self.module}", __package__)
        rows: Iterable[Row] = module.run(quick=quick)
        return rows


GROUPS = {
    "per-bucket": Group(module="per_bucket", what="added by tracing to a step of 40 small buckets"),
    "training-thread": Group(
        module="training_thread", what="processor time of the training thread in backward, 2 ranks"
    ),
    "drain": Group(module="drain", what="processor time of the drain, 25 buckets a step"),
    "whole-step": Group(
        module="whole_step", what="a step of 12.6 M parameters, 2 ranks, all exporters"
    ),
    "wire": Group(module="wire", what="all-reduce of 8 MB, 2 ranks, against torch.profiler"),
    "probes": Group(module="probes", what="a probe of the error, an 8 MB bucket, 2 ranks"),
    "memory": Group(module="memory", what="a tracer that is left on"),
    "record-file": Group(module="record_file", what="record files that are left on"),
    "start-up": Group(module="start_up", what="import and commands, new interpreters"),
    "hooks": Group(
        module="hooks", what="step time with a standard hook / with torch's own", is_default=False
    ),
    "timeline": Group(
        module="timeline", what="Comm Timeline of a million stages, in Chromium", is_default=False
    ),
    "report": Group(
        module="large_report", what="a report on a large job's files", is_default=False
    ),
}
"""By the name that ``hooktrace bench --only`` takes, in the order of the table."""


def chosen(names: Iterable[str]) -> dict[str, Group]:
    """Return the named groups, the default ones where there is no name.

    Raises ``UsageError`` for a name that there is not.
    """
    wanted = list(dict.fromkeys(names)) or [name for name in GROUPS if GROUPS[name].is_default]
    unknown = [name for name in wanted if name not in GROUPS]
    if unknown:
        raise UsageError(
            f"there is no group of rows {unknown[0]!r}; pass --only {', '.join(GROUPS)}"
        )
    return {name: GROUPS[name] for name in wanted}
