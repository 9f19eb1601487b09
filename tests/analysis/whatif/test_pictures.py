"""The sweep as a picture: all lines, marks, and the run's place, where it is on the axis."""

from __future__ import annotations

import re
from dataclasses import replace

from hooktrace.analysis.whatif.pictures import crossing_lines, legend, setting, sweep_picture

from .sweeps import made_up


def test_lines_crossings_and_where_the_run_is() -> None:
    """A line a hook in the legend's order; the run's place is predicted, and called so."""
    text = sweep_picture(made_up()).__html__()
    assert len(re.findall(r'class="sweep hook-\d"', text)) == 4
    assert text.count('class="crossing"') == 2
    assert text.count('class="here-dot"') == 1
    assert "this run's network, 400 Mbit/s".replace("'", "&#x27;") in text
    assert "measured" not in text.lower()
    assert legend(made_up())[0] == ("hook-0", "allreduce, as it is")
    slow, middle, fast = crossing_lines(made_up())
    assert slow.startswith("powersgd-rank4 up to 2.")
    assert middle.startswith("fp16 up to 6.")
    assert fast == "allreduce beyond"


def test_a_network_beyond_the_axis_has_no_place() -> None:
    """Loopback is faster than 400 Gbit/s on some machines: nothing is drawn at the edge."""
    text = sweep_picture(made_up(80e9)).__html__()
    assert "here" not in text


def test_a_named_network_is_not_the_runs() -> None:
    """It is called what it is."""
    text = sweep_picture(made_up(is_named=True)).__html__()
    assert "the network that was named, 400 Mbit/s" in text
    assert "this run" not in text
    assert setting(made_up()) == "2 ranks, 60 µs a message"


def test_where_nothing_crosses_the_fastest_is_named() -> None:
    """It need not be the run's own."""
    one = made_up()
    only = replace(one, hooks=one.hooks[:2], step_ms=one.step_ms[:2] * [[3.0], [1.0]])
    assert crossing_lines(only) == ["fp16 on all of them"]
