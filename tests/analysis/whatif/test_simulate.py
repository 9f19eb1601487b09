"""A step of few buckets by hand, what must hold of any, and that it is soon done.

The hand-computed cases have two ranks and a network of 1 byte a ns without latency, so that an
all-reduce of S bytes takes 2 (2-1)/2 S = S ns of the link.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooktrace.analysis.whatif.simulate import ranks_of_a_job, simulate, simulate_many
from hooktrace.analysis.whatif.work import (
    BucketWork,
    Machine,
    Network,
    RoundWork,
    SimulatedStep,
)

from .steps import bucket, work

PLENTY = Machine(workers=2, cores=8)
WIRE = Network(latency_ns=0, bandwidth=1e9)


def expect(step: SimulatedStep, **expected: list[float] | float) -> None:
    for name, value in expected.items():
        assert np.asarray(getattr(step, name)).tolist() == value, name


def gathered(last: int, size: float) -> BucketWork:
    return BucketWork(last, 0, (RoundWork(0, "all_gather", size),), 0)


def test_two_buckets_overlap_backward() -> None:
    # 0:   ready, launched, 100 on the link alone until 100
    # 150: second ready, 80 on the link until 230, backward ended at 200
    step = simulate(work([0, 150], [bucket(0, 100), bucket(1, 80)], end=200, rest=50), PLENTY, WIRE)
    expect(
        step,
        ready_ns=[0, 150],
        launched_ns=[0, 150],
        done_ns=[100, 230],
        backward_ns=200,
        exposed_ns=30,
        step_ns=280,
        round_bucket=[0, 1],
        issued_ns=[0, 150],
        started_ns=[0, 150],
        met_ns=[0, 150],
        arrived_ns=[100, 230],
    )


def test_all_hidden_is_not_exposed() -> None:
    step = simulate(work([0], [bucket(0, 100)], end=500, rest=7), PLENTY, WIRE)
    expect(step, done_ns=[100], backward_ns=500, exposed_ns=0, step_ns=507)


def test_one_worker_takes_one_after_the_other() -> None:
    machine = Machine(workers=1, cores=8)
    step = simulate(work([0, 10, 20], [bucket(i, 100) for i in range(3)]), machine, WIRE)
    expect(step, issued_ns=[0, 10, 20], started_ns=[0, 100, 200], arrived_ns=[100, 200, 300])


def test_a_callback_holds_its_worker() -> None:
    # One worker: 100 of wire and 50 of decompress; the second begins at 150, not at 100.
    machine = Machine(workers=1, cores=8)
    buckets = [bucket(0, 100, after=50), bucket(1, 100, after=50)]
    step = simulate(work([0, 10], buckets), machine, WIRE)
    expect(step, started_ns=[0, 150], arrived_ns=[100, 250], done_ns=[150, 300])


def test_transfers_have_the_link_one_after_another() -> None:
    # 0-100: the first; 100-200: the second, which was issued at 40.
    step = simulate(work([0, 40], [bucket(0, 100), bucket(1, 100)]), PLENTY, WIRE)
    expect(step, arrived_ns=[100, 200], exposed_ns=160)


def test_the_link_is_taken_in_the_order_of_issue() -> None:
    # A gather of two ranks is half its bytes' time late: the reduction issued after it has the link
    # from 10 to 50, and then waits, 60 left, until the gather's are over at 150.
    step = simulate(work([0, 10], [gathered(0, 100), bucket(1, 100)]), PLENTY, WIRE)
    expect(step, arrived_ns=[150, 210])


def test_gathers_under_way_at_once_keep_the_link_busy() -> None:
    # 50 late each, but the first alone has to wait for it: 50 + 4 * 100.
    step = simulate(work([0] * 4, [gathered(i, 100) for i in range(4)]), PLENTY, WIRE)
    expect(step, arrived_ns=[150, 250, 350, 450])


def test_latency_is_not_shared() -> None:
    # Two messages of 10: 20 of latency each, at the same time; then 100 each, one after another.
    network = Network(latency_ns=10, bandwidth=1e9)
    step = simulate(work([0, 0], [bucket(0, 100), bucket(1, 100)]), PLENTY, network)
    expect(step, arrived_ns=[120, 220])


def test_a_link_of_one_direction_at_a_time() -> None:
    shared = Network(latency_ns=0, bandwidth=1e9, shared=True)
    expect(simulate(work([0], [bucket(0, 100)]), PLENTY, shared), arrived_ns=[200])


def test_the_third_collective_waits_for_a_worker() -> None:
    # Two workers: the third of 50 has none until the first ends at 100, and the link at 200.
    step = simulate(work([0, 0, 0], [bucket(0, 100), bucket(1, 100), bucket(2, 50)]), PLENTY, WIRE)
    expect(step, started_ns=[0, 0, 100], arrived_ns=[100, 200, 250])


def test_compressing_delays_backward() -> None:
    # The first hook: called at 0, 5 of its own and 30 of compressing; the second gradient comes 100
    # of computing later, at 135, and its hook returns at 170; backward computes another 20.
    machine = Machine(cores=8, call_ns=5)
    buckets = [bucket(0, 50, before=30), bucket(1, 50, before=30)]
    step = simulate(work([0, 100], buckets, end=120), machine, WIRE)
    expect(
        step,
        ready_ns=[0, 135],
        launched_ns=[35, 170],
        issued_ns=[35, 170],
        done_ns=[85, 220],
        backward_ns=190,
        # Backward but for the last hook ended at 190 - 35 = 155.
        exposed_ns=65,
    )


def test_a_bucket_waits_for_those_before_it() -> None:
    # The first bucket's last gradient comes after the second bucket's.
    step = simulate(work([0, 10, 50], [bucket(2, 10), bucket(1, 10)]), PLENTY, WIRE)
    expect(step, ready_ns=[50, 50], launched_ns=[50, 50])


def test_buckets_of_several_rounds_take_turns() -> None:
    # Two buckets of two rounds of 100, 10 before each round, 5 after the last.
    # 0: first hook, compresses until 10, round 1 10-110, callback 110-120, round 2 120-220,
    #    callback 220-225: done; the same worker compresses the second bucket 225-235,
    #    round 1 235-335, callback until 345, round 2 345-445, done at 450.
    # The second hook was called at 10 + 50 = 60 and waits until all is done; backward ends then.
    buckets = [bucket(i, 100, 100, before=10, after=5) for i in range(2)]
    step = simulate(work([0, 50], buckets, end=70), PLENTY, WIRE)
    expect(
        step,
        ready_ns=[0, 60],
        launched_ns=[10, 450],
        issued_ns=[10, 120, 235, 345],
        started_ns=[10, 120, 235, 345],
        arrived_ns=[110, 220, 335, 445],
        done_ns=[225, 450],
        backward_ns=470,
        # Backward but for the last hook ended at 470 - (450 - 60) = 80.
        exposed_ns=370,
    )
    # The training thread compresses where nothing is under way.
    step = simulate(work([0, 300], buckets), PLENTY, WIRE)
    expect(step, ready_ns=[0, 310], issued_ns=[10, 120, 320, 430], done_ns=[225, 535])
    # A hook of one round may be declared as one of several.
    step = simulate(work([0, 0], [bucket(0, 100), bucket(1, 100)], serial=True), PLENTY, WIRE)
    expect(step, arrived_ns=[100, 200])


def test_threads_share_the_cores() -> None:
    # One core. 0-100: backward computes; the transfer of 60 ends at 60 (wire_cores is 0).
    # 60: 40 of backward are left, the callback takes 100: both at half speed until 60 + 80 = 140,
    # when the callback has 60 left: alone until 200.
    machine = Machine(cores=1)
    step = simulate(work([0], [bucket(0, 60, after=100)], end=100), machine, WIRE)
    expect(step, arrived_ns=[60], backward_ns=140, done_ns=[200])
    # On two cores nobody waits.
    step = simulate(work([0], [bucket(0, 60, after=100)], end=100), Machine(cores=2), WIRE)
    expect(step, arrived_ns=[60], backward_ns=100, done_ns=[160])


def test_transfers_take_cores_too() -> None:
    # One core, a transfer at full rate wants all of another: both get half. Backward of 100 and a
    # transfer of 60: at 120 the transfer is there, backward has 100 - 60 = 40 left.
    machine = Machine(cores=1, wire_cores=1)
    step = simulate(work([0], [bucket(0, 60)], end=100), machine, WIRE)
    expect(step, arrived_ns=[120], backward_ns=160)


def test_threads_that_wake_up_need_cores() -> None:
    # On one core: 400 of waking up wants 1.6 cores and backward 1, so all goes on at 1 / 2.6 until
    # 400 * 2.6 = 1040, when backward has done 400 of 1000; on many cores nothing is in the way.
    network = replace(WIRE, overhead_ns=400)
    step = work([0], [bucket(0, 100)], end=1000)
    one = simulate(step, Machine(cores=1), network)
    assert [*one.arrived_ns, one.backward_ns] == pytest.approx([1140, 1640])
    expect(simulate(step, PLENTY, network), arrived_ns=[500], backward_ns=1000)
    # Of one rank nothing is sent.
    alone = work([0], [bucket(0, 60)], ranks=1)
    expect(simulate(alone, Machine(cores=1), network), arrived_ns=[0])


def test_threads_that_wake_up_wait_for_busy_cores() -> None:
    # On one core: of 400 of waking up and 600 of waiting a share of 0.4 wants the 1.6 cores, which
    # is 0.64, and backward 1. So all goes on at 1 / 1.64, and waking up at 0.4 of that, until 1640,
    # when backward has done 1000 of 2000. With cores to spare nobody waits.
    network, step = replace(WIRE, overhead_ns=400), work([0], [bucket(0, 100)], end=2000)
    one = simulate(step, Machine(cores=1, turn_ns=600), network)
    assert [*one.arrived_ns, one.backward_ns] == pytest.approx([1740, 2640])
    expect(simulate(step, replace(PLENTY, turn_ns=600), network), arrived_ns=[500])
    # Nor does who has nothing to wake up for.
    expect(simulate(step, Machine(cores=1, turn_ns=600), WIRE), arrived_ns=[100])


def test_nothing_to_send() -> None:
    # Of one rank no message goes; the hook's own work stays.
    step = simulate(work([0], [bucket(0, 100, before=3, after=4)], ranks=1), PLENTY, WIRE)
    expect(step, arrived_ns=[3], done_ns=[7], step_ns=7)
    # Zero bytes still take their two messages.
    step = simulate(work([0], [bucket(0, 0)]), PLENTY, Network(latency_ns=10, bandwidth=1e9))
    expect(step, arrived_ns=[20])
    # A hook without a collective: its result is there when it returns.
    step = simulate(work([0, 10], [bucket(0, after=7), bucket(1, after=7)]), PLENTY, WIRE)
    expect(step, ready_ns=[0, 17], launched_ns=[7, 24], done_ns=[7, 24], issued_ns=[])
    # Also where it waits for its turn behind one that has two.
    step = simulate(work([0, 0], [bucket(0, 50, 50), bucket(1, after=7)]), PLENTY, WIRE)
    expect(step, launched_ns=[0, 107], done_ns=[100, 107], backward_ns=107)


def test_no_bucket_and_no_gradient() -> None:
    step = simulate(work([0, 10], [], end=30, rest=5), PLENTY, WIRE)
    expect(step, ready_ns=[], done_ns=[], arrived_ns=[], backward_ns=30, exposed_ns=0, step_ns=35)
    assert simulate(work([], [], rest=5), PLENTY, WIRE).step_ns == 5
    assert simulate_many([]) == []


def test_ranks_that_differ() -> None:
    """The slowest rank is late by its jitter, and all wait for it; one alone waits for nobody."""
    alike = simulate(work([0], [bucket(0, 100)], end=50, rest=1000, ranks=10_000), PLENTY, WIRE)
    differ = work([0], [bucket(0, 100)], end=50, rest=1000, ranks=10_000, jitter=0.05)
    step = simulate(differ, PLENTY, WIRE)
    # The largest of 10,000 normal deviates is 3.85 on average, of a log-normal one a little more.
    assert step.step_ns - alike.step_ns == pytest.approx(0.05 * 3.85 * 1000, rel=0.1)
    assert step.met_ns[0] == pytest.approx(0.05 * 3.85 * 1000, rel=0.1)
    assert simulate(differ, PLENTY, WIRE).step_ns == step.step_ns
    alone = work([0], [bucket(0, 100)], end=50, rest=1000, ranks=1, jitter=0.05)
    assert simulate(alone, PLENTY, WIRE).step_ns == 1050


def test_the_slowest_of_few_and_of_many() -> None:
    random = np.random.default_rng(0)
    sigma = np.sqrt(np.log1p(0.1**2))
    for ranks in (2, 4, 64):
        drawn = np.exp(sigma * random.standard_normal((100_000, ranks)) - sigma**2 / 2).max(axis=1)
        samples = ranks_of_a_job(ranks, 0.1)
        assert np.mean([slowest for _, slowest in samples]) == pytest.approx(drawn.mean(), rel=0.01)
        assert all(middle <= 1 for middle, _ in samples)
    assert ranks_of_a_job(1, 0.1) == ranks_of_a_job(64, 0.0) == [[1.0]]


def test_many_at_once_are_each_as_alone() -> None:
    """Padding, batches and rows of ranks change nothing, whatever is beside a case."""
    cases = [
        (
            work(
                [10.0 * i for i in range(count)],
                [bucket(i, *[50 + i] * rounds, before=3, after=4) for i in range(count)],
                end=10 * count,
                rest=100,
                jitter=jitter,
            ),
            Machine(workers=workers, cores=1.5, wire_cores=0.5),
            Network(5, 1e9),
        )
        for count in (0, 1, 5, 40)
        for rounds in (1, 2)
        for jitter in (0.0, 0.1)
        for workers in (1, 3)
    ]
    for case, step in zip(cases, simulate_many(cases), strict=True):
        alone = simulate(*case)
        for name in ("step_ns", "exposed_ns", "ready_ns", "done_ns", "arrived_ns", "round_bucket"):
            assert np.array_equal(getattr(step, name), getattr(alone, name)), name


buckets = st.lists(st.tuples(*[st.floats(0, 100)] * 4), min_size=1, max_size=5)
machines = st.builds(
    Machine,
    workers=st.just(1),
    cores=st.sampled_from([0.5, 1.0, 8.0]),
    wire_cores=st.sampled_from([0.0, 0.5]),
)


@settings(deadline=None, max_examples=60)
@given(buckets, machines, st.floats(1, 5))
def test_better_is_never_slower_on_one_worker(
    drawn: list[tuple[float, float, float, float]], machine: Machine, better: float
) -> None:
    """More bandwidth, less latency, more cores, of buckets of one round."""
    step = work(
        list(np.cumsum([gap for gap, _, _, _ in drawn])),
        [
            bucket(i, size, before=before, after=after)
            for i, (_, size, before, after) in enumerate(drawn)
        ],
    )
    network = Network(20, 1e9)
    plain, *others = simulate_many(
        [
            (step, machine, network),
            (step, machine, replace(network, bandwidth=1e9 * better)),
            (step, machine, replace(network, latency_ns=20 / better)),
            (step, replace(machine, cores=machine.cores * better), network),
        ]
    )
    assert all(other.step_ns <= plain.step_ns * (1 + 1e-9) + 1e-5 for other in others)


def test_where_better_is_slower() -> None:
    """Not always: buckets of several rounds are compressed by whichever thread is there."""
    # At 1 byte a ns the first bucket is under way until 60. The second's hook, at 50, leaves it to
    # the worker, which compresses it from 60 to 160 while backward computes; the third's gradient
    # comes at 200, its result at 210.
    step = work(
        [0, 50, 200], [bucket(0, 60), bucket(1, 10, before=100), bucket(2, 10)], serial=True
    )
    expect(simulate(step, PLENTY, WIRE), ready_ns=[0, 50, 200], done_ns=[60, 170, 210])
    # At 2 bytes a ns the first bucket is done at 30, so that the second's hook compresses on the
    # training thread from 50 to 150; the third's gradient comes at 300.
    fast = simulate(step, PLENTY, replace(WIRE, bandwidth=2e9))
    expect(fast, ready_ns=[0, 50, 300], done_ns=[30, 155, 305])
