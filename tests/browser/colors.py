"""Colours as people with deuteranopia see them, and how far apart two colours are.

    "#rrggbb" --linear RGB--> (deuteranopia) --> CIE Lab under D65 --> CIEDE2000

Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision
Deficiency, IEEE TVCG 15 (2009): deuteranomaly of severity 1.0, applied to linear RGB.  CIEDE2000:
Sharma, Wu, Dalal: The CIEDE2000 Color-Difference Formula, Color Research and Application 30 (2005).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]

_DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
_WHITE = _XYZ.sum(axis=1)


def lab(color: str, *, deuteranopia: bool = False) -> _Floats:
    """Return L*, a*, b* of a colour like ``#0072b2``."""
    coded = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    if deuteranopia:
        linear = np.clip(_DEUTERANOPIA @ linear, 0.0, 1.0)
    share = (_XYZ @ linear) / _WHITE
    x, y, z = np.where(share > 216 / 24389, np.cbrt(share), (share * 24389 / 27 + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one: _Floats, other: _Floats) -> float:
    """Return CIEDE2000 of two colours in Lab; its 1 is about what an eye just sees."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean_c = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(mean_c**7 / (mean_c**7 + 25.0**7)))
    (c1, h1), (c2, h2) = (
        (math.hypot(a * (1 + g), b), math.degrees(math.atan2(b, a * (1 + g))) % 360)
        for a, b in ((a1, b1), (a2, b2))
    )
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    mean_h = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    mean_l, c = (l1 + l2) / 2, (c1 + c2) / 2
    t = (
        1
        - 0.17 * math.cos(math.radians(mean_h - 30))
        + 0.24 * math.cos(math.radians(2 * mean_h))
        + 0.32 * math.cos(math.radians(3 * mean_h + 6))
        - 0.20 * math.cos(math.radians(4 * mean_h - 63))
    )
    of_l = (l2 - l1) / (1 + 0.015 * (mean_l - 50) ** 2 / math.sqrt(20 + (mean_l - 50) ** 2))
    of_c = (c2 - c1) / (1 + 0.045 * c)
    of_h = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * c * t)
    rotation = -2 * math.sqrt(c**7 / (c**7 + 25.0**7))
    rotation *= math.sin(math.radians(60 * math.exp(-(((mean_h - 275) / 25) ** 2))))
    return math.sqrt(of_l**2 + of_c**2 + of_h**2 + rotation * of_c * of_h)
