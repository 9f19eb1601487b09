"""Sentences and numbers of predictions, as people read them; what is predicted is called so."""

from __future__ import annotations

from collections.abc import Iterator

from ...records.units import milliseconds
from .answer import Answer
from .choice import Choice, Prediction
from .work import Network


def bit_rate(bytes_per_second: float) -> str:
    """Return a bandwidth as network people say it: ``25 Gbit/s``, ``394 Mbit/s``."""
    bits = 8 * bytes_per_second
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"


def latency(ns: float) -> str:
    """Return a latency: ``30 µs``, ``1.2 ms``."""
    return f"{ns / 1e6:.3g} ms" if ns >= 1e6 else f"{ns / 1e3:.3g} µs"


def network_text(network: Network) -> str:
    """Return what joins the ranks, in words."""
    hosts = "" if network.per_host <= 1 else f", {network.per_host} ranks a host"
    return f"{bit_rate(network.bandwidth)}, {latency(network.latency_ns)} a message{hosts}"


def step_ms(value: float) -> str:
    """Return a time in ms, without the unit."""
    return milliseconds(value * 1e6)


def within(one: Prediction) -> str:
    """Return the 95 % interval of a prediction in ms."""
    return f"{step_ms(one.low_ms)} to {step_ms(one.high_ms)}"


def error_text(one: Prediction) -> str:
    """Return how much of the gradients is lost."""
    if not one.lossy:
        return "0"
    return "unknown" if one.error is None else f"{one.error:.2g}"


def cap_text(cap: float | None) -> str:
    """Return a limit of bucket sizes in MB, without the unit."""
    return "unknown" if cap is None else f"{cap:g}"


def buckets_text(cap: float | None) -> str:
    """Return the same in a sentence."""
    return "buckets of unknown size" if cap is None else f"buckets of {cap:g} MB"


def headline(answer: Answer) -> str:
    """Return what was measured, and what the simulator makes of it."""
    today = answer.today
    ranks = "1 rank" if today.ranks == 1 else f"{today.ranks} ranks"
    return (
        f"Measured: {today.model}, {today.hook}, {buckets_text(today.bucket_cap_mb)}, {ranks} on "
        f"{today.backend}: {step_ms(today.step_ms)} ms a step, the median of {today.steps:,} "
        f"steps. Replayed: {step_ms(answer.replayed.step_ms)} ms."
    )


def network_lines(answer: Answer) -> Iterator[str]:
    """Yield what is known of the run's network, and of the one that was asked for."""
    today = answer.today
    low, high = sorted((today.low.bandwidth, today.high.bandwidth))
    yield (
        f"Network, as this run's collectives saw it: {network_text(today.network)}; 95 %: "
        f"{bit_rate(low)} to {bit_rate(high)}."
    )
    if answer.is_elsewhere:
        yield f"Predicted for {place_text(answer, answer.baseline.choice)}."


def place_text(answer: Answer, choice: Choice) -> str:
    """Return ranks and network of a choice."""
    ranks = choice.ranks or answer.today.ranks
    network = answer.network(choice)
    hosts = choice.per_host or network.per_host
    said = f"{'1 rank' if ranks == 1 else f'{ranks:,} ranks'}"
    said += f" on {bit_rate(network.bandwidth)}, {latency(network.latency_ns)} a message"
    return said if hosts <= 1 else f"{said}, {hosts} ranks a host"


def change_text(answer: Answer, choice: Choice) -> str:
    """Return what a choice changes: ``fp16 in place of allreduce, buckets of 5 MB``."""
    today = answer.today
    said = []
    if answer.hook(choice) != today.hook:
        said.append(f"{answer.hook(choice)} in place of {today.hook}")
    if answer.cap(choice) != today.bucket_cap_mb:
        of = "" if today.bucket_cap_mb is None else f" in place of {today.bucket_cap_mb:g} MB"
        said.append(f"{buckets_text(answer.cap(choice))}{of}")
    return ", ".join(said) or "nothing"
