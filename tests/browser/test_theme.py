"""The stages' colours are told apart, also by people with deuteranopia, in light and in dark."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from hooktrace.analysis import tensorboard_plugin
from hooktrace.analysis.document.html import STYLE
from hooktrace.analysis.run.scene import KINDS

from .colors import difference, lab

SHEET = (Path(tensorboard_plugin.__file__).parent / "static/style.css").read_text()
BLOCKS = {"LIGHT": ":root {", "DARK": ':root[data-theme="dark"] {'}
APART = 15.0
"""CIEDE2000 of any two stages and of each to the ground: some times what is just seen side by side,
as bars of a few px are."""

OF_OTHER = 10.0
"""Of time in no stage to the ground: it is itself a ground, which the stages lie on."""


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
    kinds, grounds = colors(theme)
    seen = {name: lab(color, deuteranopia=deuteranopia) for name, color in kinds.items()}
    below = [lab(color, deuteranopia=deuteranopia) for color in grounds]
    near = {
        (one, other): round(difference(seen[one], seen[other]), 1)
        for one, other in combinations(seen, 2)
        if difference(seen[one], seen[other]) < APART
    }
    assert not near
    for name, color in seen.items():
        least = OF_OTHER if name == "other" else APART
        assert min(difference(color, ground) for ground in below) >= least, name


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((22.7233, 20.0904, -46.6940), (23.0331, 14.9730, -42.5619), 2.0373),
        ((50.0, 0.0, 0.0), (50.0, -1.0, 2.0), 2.3669),
    ],
)
def test_the_difference_is_that_of_its_paper(
    one: tuple[float, ...], other: tuple[float, ...], expected: float
) -> None:
    assert difference(np.array(one), np.array(other)) == pytest.approx(expected, abs=1e-4)


def test_red_and_green_are_confused_and_grey_is_not_changed() -> None:
    """What makes the simulation one of deuteranopia."""
    red, green = "#b06000", "#708000"
    far = difference(lab(red), lab(green))
    near = difference(lab(red, deuteranopia=True), lab(green, deuteranopia=True))
    assert near < far / 3
    assert lab("#808080", deuteranopia=True) == pytest.approx(lab("#808080"), abs=0.01)


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
