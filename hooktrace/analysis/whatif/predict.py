"""Predictions, each with an interval: what is simulated, and by how much that may be off.

    Choice --case_of--> step at medians --simulate--> step_ms
           --draws: calibrated steps, network, costs of the hook, each drawn again--> spread
           + the replay of the run itself beside what it measured
           + how fast the machine computes some minutes later --> low_ms, high_ms

Draw i of all predictions is of the same resampled run, on a machine that is as fast, so that what
two of them share cancels in their difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...records.intervals import union_ns
from ...records.units import percent
from .calibration import Calibration
from .choice import Choice, Prediction
from .fit_network import NetworkFit
from .simulate import simulate_many
from .step_tables import Case
from .step_work import buckets_for, case_of, costs_for
from .words import latency
from .work import Compute, Floats, Network, SimulatedStep

DRAWS = 40
MODEL_ERROR = 0.1
"""Of exposed time that was not measured: what a simulation has wrong of it, one standard deviation
(docs/what-if.md has the table that it comes from)."""
OTHER_HOOK = 0.25
"""Of the work of a hook that the run did not have: what trials of it have wrong, likewise."""
TURN = 0.35
"""Of what threads of a collective wait for cores that are busy, likewise."""
OTHER_RUN = 0.025
"""Of a step: what another run differs by whatever its hook, one standard deviation, at least.

Measured: runs of 30 steps of 60 to 130 ms, each three times within some minutes on a virtual
machine of 4 cores where nothing else ran, differ by 3.9 %, so medians of three do by 2.3 %."""
_LOSS_UNKNOWN = (
    "What lossy hooks lose is unknown, so none is advised of which it is: the gradients that they "
    "were tried on, or what came back of them, held NaN or inf, or nothing but zeros."
)
_BLOCKS = 4
_NORMAL = 1.96
_MISFIT_TOLD = 0.02


@dataclass(frozen=True, slots=True)
class _Draw:
    """One resampled run; ``cost``: in standard deviations of each hook's costs.

    ``turn``: by what ``Machine.turn_ns`` is multiplied.
    """

    compute: Compute
    network: Network
    cost: float
    turn: float


def predict(
    calibration: Calibration, fit: NetworkFit, choices: Sequence[Choice]
) -> list[Prediction]:
    """Return the predictions of some choices, with 95 % intervals.

    Raises ``UsageError`` for a hook that was not tried, or a cap that holds nothing.
    """
    asked = [Choice(), *choices]
    draws = _draws(calibration, fit)
    simulated = simulate_many(
        [case for one in asked for case in _cases(calibration, fit, one, draws)]
    )
    of = 1 + len(draws)
    steps = [simulated[i * of : (i + 1) * of] for i in range(len(asked))]
    misfit = steps[0][0].step_ns / calibration.step_ns - 1
    generator, other_run = np.random.default_rng(1), _other_run(calibration.steps_ns)
    shared = generator.standard_normal(len(draws)) * abs(misfit)
    compute = calibration.compute
    computing_ns = (compute.end_ns + compute.rest_ns) * _other_run(calibration.rests_ns)
    slower_ns = generator.standard_normal(len(draws)) * computing_ns
    found = []
    for choice, own in zip(asked, steps, strict=True):
        off = np.hypot(other_run, _model_error(own[0], steps[0][0]))
        noise = shared + generator.standard_normal(len(draws)) * off
        noise_ns = noise * own[0].step_ns + slower_ns
        found.append(_prediction(calibration, fit, choice, own, noise_ns=noise_ns, misfit=misfit))
    return found[1:]


def _model_error(own: SimulatedStep, base: SimulatedStep) -> float:
    """Return what the simulation may have wrong of a step, as a share of it.

    It grows with the exposed time that was not there, or was there in another way, and with what is
    on the wire during backward: how much of a core that takes is known least.
    """
    apart = abs(own.step_ns - base.step_ns)
    hidden = abs(_hidden_ns(own) - _hidden_ns(base))
    off = MODEL_ERROR * np.hypot(min(own.exposed_ns, apart), hidden) / own.step_ns
    return float(off)


def _other_run(times_ns: Floats) -> float:
    """Return what another run of the same would differ by, as a share: as parts of this one do.

    Where others use the machine, a minute is not as the next one.  ``times_ns``: of steps, or of
    the computing between them, which a slow network hides in steps.
    """
    middle = float(np.median(times_ns)) if len(times_ns) else 0.0
    if len(times_ns) < 2 * _BLOCKS or middle <= 0:
        return OTHER_RUN
    parts = [float(np.median(part)) for part in np.array_split(times_ns, _BLOCKS)]
    return max(OTHER_RUN, float(np.std(parts, ddof=1)) / middle)


def _hidden_ns(step: SimulatedStep) -> float:
    """Return for how long something was on the wire during backward."""
    begin, end = step.met_ns, np.minimum(step.arrived_ns, step.backward_ns)
    pairs = zip(begin.astype(int).tolist(), end.astype(int).tolist(), strict=True)
    return float(union_ns((a, b) for a, b in pairs if b > a))


def replay(calibration: Calibration, fit: NetworkFit) -> Prediction:
    """Return the prediction of the run's own configuration, to be held beside what it measured."""
    return predict(calibration, fit, [Choice()])[0]


def _cases(
    calibration: Calibration, fit: NetworkFit, choice: Choice, draws: Sequence[_Draw]
) -> list[Case]:
    costs = costs_for(calibration, choice)
    is_own = costs.label == calibration.hook
    spread = costs.spread if is_own else float(np.hypot(costs.spread, OTHER_HOOK))
    return [
        case_of(calibration, choice, fit.network),
        *(
            case_of(
                calibration, choice, draw.network, compute=draw.compute,
                scale=float(np.exp(spread * draw.cost)), turn=draw.turn,
            )
            for draw in draws
        ),
    ]  # fmt: skip


def _prediction(
    calibration: Calibration,
    fit: NetworkFit,
    choice: Choice,
    steps: Sequence[SimulatedStep],
    *,
    noise_ns: Floats,
    misfit: float,
) -> Prediction:
    middle, drawn = steps[0], np.array([one.step_ns for one in steps[1:]])
    # About the prediction itself: what draws differ by, and not where they lie.
    draws = middle.step_ns + (drawn - np.mean(drawn)) + noise_ns
    off = _NORMAL * float(np.std(draws))
    costs = costs_for(calibration, choice)
    work, _, _ = case_of(calibration, choice, fit.network)
    return Prediction(
        choice=choice,
        step_ms=middle.step_ns / 1e6,
        low_ms=max(0.0, middle.step_ns - off) / 1e6,
        high_ms=(middle.step_ns + off) / 1e6,
        exposed_ms=middle.exposed_ns / 1e6,
        wire_bytes=sum(one.wire_bytes for bucket in work.buckets for one in bucket.rounds),
        error=costs.error,
        lossy=costs.lossy,
        simulated=middle,
        doubts=tuple(_doubts(calibration, fit, choice, misfit)),
        work=work,
        buckets=tuple(tuple(rows) for rows in buckets_for(calibration, choice)),
        draws_ms=draws / 1e6,
    )


def _doubts(calibration: Calibration, fit: NetworkFit, choice: Choice, misfit: float) -> list[str]:
    found = []
    if abs(misfit) > _MISFIT_TOLD:
        found.append(
            f"Replayed, the run's own step is {percent(abs(misfit))} "
            f"{'longer' if misfit > 0 else 'shorter'} than measured."
        )
    costs = costs_for(calibration, choice)
    if costs.lossy and costs.error is None:
        found.append(_LOSS_UNKNOWN)
    if choice.network is not None and choice.has_own_latency:
        found.append(
            f"--network names no latency, so a message takes {latency(choice.network.latency_ns)}, "
            "as in this run; name another, as 25gbit,30us."
        )
    if not fit.latency_known and (choice.network is None or choice.has_own_latency):
        found.append(f"The run's network is {fit.why}.")
    if calibration.backend != "gloo":
        found.append(
            f"The run's backend is {calibration.backend}; what is modelled of its order and its "
            "workers is gloo's."
        )
    return found


def _draws(calibration: Calibration, fit: NetworkFit) -> list[_Draw]:
    """Return resampled runs: calibrated steps, settled steps and network fits drawn again."""
    generator = np.random.default_rng(0)
    ready = np.stack([one.ready_ns for one in calibration.samples])
    rests = calibration.rests_ns if len(calibration.rests_ns) else np.zeros(1)
    networks = fit.samples or (fit.network,)
    return [
        _Draw(
            _resampled(calibration.compute, ready, rests, generator),
            networks[int(generator.integers(len(networks)))],
            float(generator.standard_normal()),
            float(np.exp(TURN * generator.standard_normal())),
        )
        for _ in range(DRAWS)
    ]


def _resampled(
    compute: Compute, ready: Floats, rests: Floats, generator: np.random.Generator
) -> Compute:
    """Return the medians of as many samples as there are, drawn with replacement."""
    rows = np.median(ready[generator.integers(len(ready), size=len(ready))], axis=0)
    rest = float(np.median(rests[generator.integers(len(rests), size=len(rests))]))
    end = compute.end_ns - compute.ready_ns[-1] + rows[-1]
    return replace(compute, ready_ns=rows, end_ns=float(end), rest_ns=rest)
