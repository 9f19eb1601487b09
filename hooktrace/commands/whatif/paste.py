"""The code that makes a choice: lines to paste into a training script, which run as they are.

Choice --Candidate of its label--> DistributedDataParallel(...), instrument(...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...analysis.whatif.answer import Answer
from ...analysis.whatif.choice import Choice
from ...hooks.candidates import Candidate, candidates

_BEGINS = "compresses from step 1,000 on"
"""``start_powerSGD_iter`` as it is without a word."""


def code_of(answer: Answer, choice: Choice) -> str:
    """Return the lines; ``model`` and ``ddp`` are the script's."""
    return "\n".join(_lines(answer, choice))


def _lines(answer: Answer, choice: Choice) -> Iterator[str]:
    wanted = answer.hook(choice)
    one = next((one for one in candidates() if one.label == wanted), None)
    changed = None if wanted == answer.today.hook else one
    if changed is not None:
        yield "from hooktrace import hooks, instrument"
    if choice.bucket_cap_mb is not None:
        yield f"ddp = DistributedDataParallel(model, bucket_cap_mb={choice.bucket_cap_mb:g})"
    if changed is not None:
        yield from _instrument(changed)


def _instrument(one: Candidate) -> Iterator[str]:
    name = f"hooks.{one.entry.hook_name}"
    if one.hook_options:
        name += f".bind({_arguments(one.hook_options)})"
    if one.entry.state_name is None:
        yield f"instrument(ddp, {name})"
        return
    options = _arguments({**one.entry.state_options, **one.state_options})
    yield f"state = hooks.{one.entry.state_name}(None, {options})  # {_BEGINS}"
    yield f"instrument(ddp, {name}, state)"


def _arguments(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
