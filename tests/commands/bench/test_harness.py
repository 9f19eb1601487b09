"""Things that are measured beside each other take turns."""

from __future__ import annotations

from functools import partial
from itertools import islice

from hooktrace.commands.bench.harness import in_turns


def test_each_round_has_all_sides_in_an_order_of_its_own() -> None:
    """Whatever the order, each side's number stands in its place."""
    called: list[int] = []

    def side(number: int) -> int:
        called.append(number)
        return 10 * number

    found = list(islice(in_turns([partial(side, number) for number in range(3)]), 20))
    assert found == [[0, 10, 20]] * 20
    orders = {tuple(called[i : i + 3]) for i in range(0, 60, 3)}
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    assert len(orders) > 3
