"""The stages' colours are told apart, also by people with deuteranopia, in light and in dark."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from hooktrace.analysis import tensorboard_plugin
from hooktrace.analysis.document.html import STYLE
from hooktrace.analysis.run.scene import KINDS

SHEET = (Path(tensorboard_plugin.__file__).parent / "static/style.css").read_text()
BLOCKS = {"LIGHT": ":root {", "DARK": ':root[data-theme="dark"] {'}
APART = 0.08
"""Of any two stages and of each to the ground, in Oklab: some times what is just seen side by side,
as bars of a few px are."""

OF_OTHER = 0.05
"""Of time in no stage to the ground: it is itself a ground, which the stages lie on."""

_DEUTERANOPIA = np.array([
    [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]
])  # fmt: skip
"""Of linear RGB (Machado, Oliveira, Fernandes, IEEE TVCG 15, 2009)."""

_CONES = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
_OKLAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip


def oklab(color: str, *, deuteranopia: bool) -> npt.NDArray[np.float64]:
    """Return a colour like ``#0072b2`` in Ottosson's Oklab, where distances are what eyes see."""
    coded = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    if deuteranopia:
        linear = np.clip(_DEUTERANOPIA @ linear, 0.0, 1.0)
    found: npt.NDArray[np.float64] = _OKLAB @ np.cbrt(_CONES @ linear)
    return found


def colors(theme: str) -> tuple[dict[str, str], list[str]]:
    """Return the colour of each kind of time, and the two grounds of a theme."""
    block = SHEET.split(BLOCKS[theme])[1].split("}")[0]
    shown = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block))
    assert "--wait: repeating-linear-gradient(135deg, var(--wire)" in SHEET  # hatched
    found = {name: shown[name] for name in KINDS if name != "wait"}
    return found, [shown["background"], shown["lane"]]


@pytest.mark.parametrize("theme", ["LIGHT", "DARK"])
@pytest.mark.parametrize("deuteranopia", [True, False])
def test_stages_are_told_apart(theme: str, deuteranopia: bool) -> None:
    """From each other and from the grounds; time in no stage is itself nearly a ground."""
    kinds, (background, lane) = colors(theme)
    shown = {**kinds, "ground 0": background, "ground 1": lane}
    seen = {name: oklab(color, deuteranopia=deuteranopia) for name, color in shown.items()}
    for one, other in combinations(seen, 2):
        least = OF_OTHER if one == "other" and "ground" in other else APART
        assert "ground" in one or np.linalg.norm(seen[one] - seen[other]) >= least, (one, other)


def test_the_report_has_the_tabs_colours() -> None:
    """On screens of both kinds, and on paper, which is light."""
    screen, paper = STYLE.split("@media print")
    light, dark = screen.split("@media(prefers-color-scheme:dark)")
    for part, theme in ((light, "LIGHT"), (dark, "DARK"), (paper, "LIGHT")):
        kinds, _ = colors(theme)
        shown = dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", part))
        assert {name: shown[name] for name in kinds if name != "other"} == {
            name: color for name, color in kinds.items() if name != "other"
        }
