"""One word for all ranks, whoever comes when, with ranks that are threads and a store in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from torch._C._distributed_c10d import HashStore

from hooktrace.probes.agreement import Consent

LONG, SHORT = timedelta(seconds=30), timedelta(milliseconds=20)


def never() -> bool:
    return False


def ask(consents: list[Consent], place: str, states: list[str]) -> list[bool]:
    """Return each rank's answer; all ask at the same time."""
    with ThreadPoolExecutor(len(consents)) as ranks_of:
        asked = [
            ranks_of.submit(one.given, place, state, LONG, never)
            for one, state in zip(consents, states, strict=True)
        ]
    return [answer.result() for answer in asked]


def ranks(size: int) -> tuple[HashStore, list[Consent]]:
    """Return a store, and what each rank asks through it."""
    store = HashStore()
    return store, [Consent(store, "group", size, cleans=rank == 0) for rank in range(size)]


def test_all_go_where_all_are_at_one_place() -> None:
    """Time and again, and what is over leaves nothing behind in the store."""
    store, consents = ranks(3)
    for step in range(10):
        assert ask(consents, f"{step}/0", [str(7 * step)] * 3) == [True] * 3
    assert store.num_keys() <= 3 * 3
    assert not consents[0].is_refused("9/0")
    consents[1].refuse("9/0", "no memory")
    assert consents[0].is_refused("9/0"), "one that fails after all have come is seen"


def test_none_goes_where_one_is_elsewhere_or_does_not_come_in_time() -> None:
    """Nobody waits for the end, nor for one that has left; the late one hears it."""
    _, consents = ranks(3)
    assert ask(consents, "4/0", ["10", "12", "10"]) == [False] * 3
    assert all("has issued more" in one.refusal for one in consents)
    assert not consents[0].given("5/0", "10", SHORT, never)
    assert not consents[1].given("5/0", "10", LONG, never)
    assert not consents[0].given("6/0", "10", LONG, lambda: True)


def test_the_last_word_is_no_word() -> None:
    """A rank that gives up at the very moment when the last one comes goes on as all do."""
    _, consents = ranks(2)

    def last_one_comes() -> bool:
        assert consents[1].given("4/0", "10", LONG, never)
        return True

    assert consents[0].given("4/0", "10", LONG, last_one_comes)


def test_one_that_never_comes_leaves_nothing_behind() -> None:
    """It says so each time; the others are told, and the store does not grow."""
    store, consents = ranks(2)
    for step in range(10):
        consents[0].refuse(f"{step}/0", "no memory")
        assert not consents[1].given(f"{step}/0", "10", LONG, never)
        assert consents[1].refusal == "no memory"
    assert store.num_keys() <= 3 * 3
