"""The dashboard of sharded models (FSDP2): what training waits for, by unit and kind."""

from __future__ import annotations

from hooktrace.records import metrics as m

from .queries import OF_MODEL, Dashboard, Panel, Query, last, rate

__all__ = ["UNITS"]

_TIMED_STEPS = rate(m.BUSY, "_count")
_ALL_STEPS = rate(m.STEPS)
_KIND = "job, model, collective, phase"
_UNIT = f"{_KIND}, unit"
_MOST = 12


def _a_step(metric: m.Metric, by: str, steps: str = _TIMED_STEPS) -> str:
    """Return a counter's growth a step of a rank, in the mean."""
    each = f"sum by (job, model) ({steps})"
    return f"sum by ({by}) ({rate(metric)}) / on (job, model) group_left () {each}"


def _top(metric: m.Metric) -> str:
    return f"topk({_MOST}, {_a_step(metric, _UNIT)})"


_BY_UNIT = "{{model}} {{unit}} {{collective}} ({{phase}})"
_BY_KIND = "{{model}} {{collective}} ({{phase}})"
_UNTIMED = "Warm-up, probed and incomplete steps are not in it."
_OTHER = f"Units from the {m.MAX_UNITS + 1}th on are one, called other."

UNITS = Dashboard(
    "hooktrace-units",
    "hooktrace: units of sharded models",
    "What training waits for under FSDP2, by unit (a module whose parameters are communicated "
    "together) and by what is done with it; empty of models under DDP.",
    (
        Panel(
            "What training waits for, by kind",
            "Exposed time of a step, mean over ranks and steps, stacked: how long training stood "
            "still for all-gathers of parameters in the forward and in the backward pass, for "
            "reduce-scatters and for all-reduces over replicas. On gloo all of a collective is "
            f"exposed. A kind is missing where it is not known how long it was waited for. "
            f"{_UNTIMED}",
            "s",
            (Query(_a_step(m.UNIT_EXPOSED, _KIND), _BY_KIND),),
            "stacked",
        ),
        Panel(
            "Units that are waited for most",
            f"Exposed time of a step, mean over ranks: the {_MOST} with the most. A rank that "
            "comes late makes the others wait for whichever unit is next, so a unit that leads "
            f"here may be only the first of its pass. {_OTHER} {_UNTIMED}",
            "s",
            (Query(_top(m.UNIT_EXPOSED), _BY_UNIT),),
        ),
        Panel(
            "Units that take longest",
            f"Time of a step from begun to done, mean over ranks: the {_MOST} with the most. It "
            "includes waiting for a late rank, and is no cost where computing hides it. "
            f"{_OTHER} {_UNTIMED}",
            "s",
            (Query(_top(m.UNIT_DURATION), _BY_UNIT),),
        ),
        Panel(
            "What is sent, by kind",
            "Bytes of a step and rank that FSDP communicates (payload), and what hooks made of it "
            "(sent): of all-gathers this rank's parameters. Payload given to collectives, not "
            "bytes on the cable. Of a hook that is not staged nobody knows what was sent.",
            "bytes",
            (
                Query(_a_step(m.UNIT_PAYLOAD, _KIND, _ALL_STEPS), _BY_KIND + " payload"),
                Query(_a_step(m.UNIT_WIRE, _KIND, _ALL_STEPS), _BY_KIND + " sent"),
            ),
        ),
        Panel(
            "What each unit loses",
            "The last probed error of each unit's collective, of the rank with the largest: of one "
            "step, which may be some thousand steps old where units are probed in turn. Of an "
            f"all-gather it is what the parameters lose on their way. {_OTHER}",
            "none",
            (
                Query(last("max", m.UNIT_ERROR, _UNIT), _BY_UNIT),
                Query(
                    f"1 - min by ({_UNIT}) ({m.UNIT_COSINE.prometheus_name}{{{OF_MODEL}}})",
                    _BY_UNIT + ", 1 - cosine",
                ),
            ),
        ),
    ),
)  # fmt: skip
