"""What all ranks together say of each step, or of each bucket of each step: tables that add up.

    table of one rank + table of another --merged--> table of both, by step or by (step, bucket)

Each column is a sum over the ranks, or a minimum or maximum.  Five columns are a race: the latest
rank, its time and what its clock may be off by, the time of the next one, and the latest that any
of the others may have been.  They say of any set of ranks what ``timeline.last_rank``
says of all at once.  A table's size is that of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..timeline import Ints

Numbers = npt.NDArray[Any]
_NEVER = np.iinfo(np.int64).min // 2
_ALWAYS = np.iinfo(np.int64).max // 2
_RULES: dict[str, tuple[np.ufunc, float]] = {
    **dict.fromkeys(("first", "done_least"), (np.minimum, _ALWAYS)),
    "wire_least": (np.minimum, np.inf),
    "unsure": (np.maximum, 0),
    "exposed_most": (np.maximum, 0.0),
}
_SUM: tuple[np.ufunc, float] = (np.add, 0)
"""How two ranks' values become one, and the value of nobody: of all other columns their sum."""
_RACE = {"last": _NEVER, "last_unsure": 0, "last_rank": -1, "next": _NEVER, "others_latest": _NEVER}
"""Of the race, the values of nobody."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by name, a row for each of ``keys``, which ascend."""

    keys: Ints
    columns: dict[str, Numbers]

    def merged(self, other: Table) -> Table:
        """Return the table of both's ranks."""
        keys = self.keys
        if not np.array_equal(keys, other.keys):
            keys = np.union1d(keys, other.keys)
        one, two = self._at(keys), other._at(keys)
        rules = {name: _RULES.get(name, _SUM)[0] for name in one if name not in _RACE}
        found = {name: rule(one[name], two[name]) for name, rule in rules.items()}
        return Table(keys, found | (_raced(one, two) if "last" in one else {}))

    def _at(self, keys: Ints) -> dict[str, Numbers]:
        if len(keys) == len(self.keys):
            return self.columns
        places = np.searchsorted(keys, self.keys)
        return {
            name: _spread(name, values, places, len(keys)) for name, values in self.columns.items()
        }


def _spread(name: str, values: Numbers, places: Ints, count: int) -> Numbers:
    nobody = _RACE[name] if name in _RACE else _RULES.get(name, _SUM)[1]
    found = np.full(count, nobody, values.dtype)
    found[places] = values
    return found


def entered(rank: int, called: Ints, unsure: Ints) -> dict[str, Numbers]:
    """Return the race of one rank alone, with times and what they may be off by, ns."""
    nobody = np.full(len(called), _NEVER)
    return {
        "last": called,
        "last_unsure": unsure,
        "last_rank": np.full(len(called), rank),
        "next": nobody,
        "others_latest": nobody,
    }


def _raced(one: dict[str, Numbers], two: dict[str, Numbers]) -> dict[str, Numbers]:
    """Return who is last of both; of two at the same time the lower rank, as ``argmax`` has it."""
    tie = (one["last"] == two["last"]) & (one["last_rank"] < two["last_rank"])
    first = (one["last"] > two["last"]) | tie

    def of(name: str, winner: bool) -> Numbers:
        return np.where(first == winner, one[name], two[name])

    loser = of("last", False)
    return {
        **{name: of(name, True) for name in ("last", "last_unsure", "last_rank")},
        "next": np.maximum(of("next", True), loser),
        "others_latest": np.maximum(
            np.maximum(one["others_latest"], two["others_latest"]),
            loser + of("last_unsure", False),
        ),
    }
