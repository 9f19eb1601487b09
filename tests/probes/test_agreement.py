"""One word for all ranks, whoever comes when, with ranks that are threads and a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import HashStore

from hooktrace.probes.agreement import Consent, key_of

LONG, SHORT = timedelta(seconds=30), timedelta(milliseconds=20)


def never() -> bool:
    """Nobody has left."""
    return False


def ask(consents: list[Consent], place: str, states: list[str]) -> list[bool]:
    """Return each rank's answer; all ask at the same time."""
    answers: dict[int, bool] = {}

    def one(rank: int) -> None:
        answers[rank] = consents[rank].given(place, states[rank], LONG, never)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(len(consents))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[rank] for rank in range(len(consents))]


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


def test_none_goes_where_one_has_issued_more() -> None:
    """Its host is ahead, or its tracer was switched off for a while; nobody waits for the end."""
    _, consents = ranks(3)
    assert ask(consents, "4/0", ["10", "12", "10"]) == [False] * 3
    assert all("has issued more" in one.refusal for one in consents)


def test_none_goes_where_one_does_not_come_in_time() -> None:
    """The late one hears it, however late it comes."""
    _, consents = ranks(2)
    assert not consents[0].given("4/0", "10", SHORT, never)
    assert not consents[1].given("4/0", "10", LONG, never)


def test_the_last_word_is_no_word() -> None:
    """A rank that gives up at the very moment when the last one comes goes on as all do."""
    store, consents = ranks(2)

    def last_one_comes() -> bool:
        assert consents[1].given("4/0", "10", LONG, never)
        return True

    assert consents[0].given("4/0", "10", LONG, last_one_comes)
    assert store.get("group/4/0/word") == b"go"


@pytest.mark.parametrize("leaves", [never, lambda: True])
def test_nobody_waits_for_one_that_has_left(leaves: Callable[[], bool]) -> None:
    """Where it has said so before; otherwise until the timeout."""
    _, consents = ranks(2)
    assert not consents[0].given("4/0", "10", SHORT if leaves is never else LONG, leaves)


def test_one_that_never_comes_leaves_nothing_behind() -> None:
    """It says so each time; the others are told, and the store does not grow."""
    store, consents = ranks(2)
    for step in range(10):
        consents[0].refuse(f"{step}/0", "no memory")
        assert not consents[1].given(f"{step}/0", "10", LONG, never)
        assert consents[1].refusal == "no memory"
    assert store.num_keys() <= 3 * 3


def test_one_that_fails_after_all_have_come_is_seen() -> None:
    """By those who go on and look; before it nobody has refused."""
    _, consents = ranks(2)
    assert ask(consents, "4/0", ["10", "10"]) == [True, True]
    assert not consents[0].is_refused("4/0")
    consents[1].refuse("4/0", "no memory")
    assert consents[0].is_refused("4/0")


def test_models_that_are_alike_go_by_their_order() -> None:
    """Others have keys of their own."""
    keys = [key_of("probes", known) for known in ("alike", "alike", "other", "alike")]
    assert len(set(keys)) == 4
    assert [key.rpartition("/")[2] for key in keys] == ["1", "2", "1", "3"]
