"""The rows of a benchmark, and the table that they are printed in.

    samples --> Row: median, its 95 % interval, budget --line_of--> one line of text

Machines are shared and noisy, so a sample is a ratio or a difference of two things measured side by
side in one run, and a row says how well its median is known.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import KW_ONLY, asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from ...records.cores import usable_cores
from ...records.summary import percentile


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number: the median of at least one of ``values``, in ``unit``.

    ``budget`` is the largest value that is ok, ``None`` where the number is only for information.
    ``note`` says what the number is made of.
    """

    what: str
    values: Sequence[float]
    unit: str
    _: KW_ONLY
    budget: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The median."""
        return percentile(self.values, 0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds of the median's 95 % confidence interval."""
        return interval_of_median(self.values)

    @property
    def verdict(self) -> str:
        """``ok``, ``over``, ``noise`` where the median may as well be within, or ``-``."""
        if self.budget is None:
            return "-"
        if self.value <= self.budget:
            return "ok"
        return "noise" if self.interval[0] <= self.budget else "over"

    def numbers(self) -> dict[str, object]:
        """Return all that is known, for JSON; ``low`` and ``high`` are the quartiles."""
        least, most = self.interval
        return asdict(self) | {
            "value": self.value,
            "low": percentile(self.values, 0.25),
            "high": percentile(self.values, 0.75),
            "least": least,
            "most": most,
            "samples": len(self.values),
            "verdict": self.verdict,
        }


def interval_of_median(values: Sequence[float], deviations: float = 1.96) -> tuple[float, float]:
    """Return the confidence interval of the median, whatever the distribution.

    ``deviations``: 1.96 for 95 %, 2.58 for 99 %.  A value is below the median with probability 1/2,
    so the number of those below it is binomial: for 95 % between n/2 - 1.96 sqrt(n)/2 and
    n/2 + 1.96 sqrt(n)/2 of n (H. A. David, H. N. Nagaraja, Order Statistics, 2003, section 7.1).
    The samples are taken as independent.
    """
    ordered = sorted(values)
    spread = deviations * math.sqrt(len(ordered))
    below = max(0, math.floor((len(ordered) - spread) / 2) - 1)
    return ordered[below], ordered[len(ordered) - 1 - below]


_COLUMNS = "{:<62}{:>8}{:>18}{:>8}  {:<10}{:<6}{}"
HEADING = _COLUMNS.format("what", "median", "its 95 %", "budget", "unit", "", "").rstrip()


def line_of(row: Row) -> str:
    """Return the row as one line."""
    least, most = map(_number, row.interval)
    return _COLUMNS.format(
        row.what,
        _number(row.value),
        f"{least} to {most}",
        "" if row.budget is None else _number(row.budget),
        row.unit,
        row.verdict,
        row.note,
    ).rstrip()


def _number(value: float) -> str:
    """Return three digits, of a larger number all before the point, and at most three after it."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{round(value, 3):.3g}"


def machine_facts() -> dict[str, str]:
    """Return where and when the numbers were measured; ``load`` is that of the minute before."""
    return {
        "cpu": _cpu_model(),
        "cores": str(usable_cores()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "date": date.today().isoformat(),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
