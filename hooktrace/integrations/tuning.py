"""Inside a job that ``hooktrace tune`` has started: its steps, and the hooks that take turns.

    rank 0's environment --Plan--> each rank
    DDP made, a root of FSDP2 settled --> Turns; with hooks, a traced one a label takes its place
    a forward pass begins --step--> stamp; a turn is over: rank 0 says whose is the next one
      --change--> its hook; what was seen, to a file      --or that it is the end--> SystemExit
    steps that a hook has taken --Part--> record files, a folder a label
    an optimizer steps, no model was found --> the job ends: nothing can be tuned

A start without hooks only looks: nothing of ours is registered, so that it tells what the job takes
as it is.  A step is a forward pass whose gradients will be averaged; on a device its begin is an
event there.  A model that a part of the ranks share has none: the others do not come to where its
turns end.

Successive halving (Jamieson and Talwalkar, AISTATS 2016): after FEWEST rounds, twice as many, ...
the slower half leaves.  Only what was slower than the fastest in each round so far does: by chance
alone that happens once in 2^FEWEST times.
"""

from __future__ import annotations

import os
import random
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgspec

from ..exporters import base
from ..exporters.record_file import RecordFileExporter
from ..hooks.catalogue import candidates
from ..hooks.sharded import SHARDED_HOOKS
from . import patches, sharded
from .ending import MEASURED

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from ..records import Batch
    from ..staging.hook import Hook
    from ..tracing.tracer import Tracer

WHERE = "_HOOKTRACE_TUNE_WHERE"
"""Of the environment: what the paths of the files begin with that this machine's ranks write."""
OWN = "as-it-is"
"""The label of what the job has: its script's hook, or torch's own average."""
CANDIDATES = {one.name: one for one in candidates()}
SHARDED = {one.label: one for one in SHARDED_HOOKS if one.takes_place_of == "reduce_scatter"}
HOOKS = {"DDP": [*CANDIDATES], "fully_shard": [*SHARDED]}
"""What can take turns, by what a model is under."""
TURN, LEFT_OUT = 8, 3
"""Steps of a turn; those at its begin that do not count: caches, warm starts."""
FEWEST, SURVIVORS = 5, 3
"""Rounds below which nothing is said of a hook; hooks, beside the job's own, that never leave."""
_DO_MORE = ("optimizer_overlap_hooks", "ddp_zero_hook", "mixed_precision_hooks")
"""Modules of torch whose hooks step an optimizer, or cast parameters."""
_ALONE = 100
"""Steps of optimizers, without a model; some train a part by itself before they make it."""

_questions = count()
"""What rank 0 was asked for turns of this process, the same on all ranks."""


class Plan(msgspec.Struct, frozen=True):
    """What is asked of one start of a job.

    - ``rounds``, ``seconds``: the job ends once it has made so many, in so much time or more.
    - ``limit_s``: it ends after so many seconds of training, whatever it has made.
    - ``model``: the number of the one that is tuned, ``None`` to look only.
    - ``hooks``: labels of what takes turns with ``OWN``.
    - ``cap``: the ``bucket_cap_mb`` of all DDP models, ``None`` for their own.
    - ``is_last``: the tuning is over then.
    """

    rounds: int
    seconds: float
    limit_s: float
    model: int | None = None
    hooks: Sequence[str] = ()
    cap: float | None = None
    is_last: bool = False


def plan() -> Plan:
    """Return what is asked of this job, of rank 0; raises as DDP does without a process group."""
    asked = _of_rank_0("plan", lambda: os.environ[MEASURED])
    return msgspec.json.decode(asked, type=Plan)


def _of_rank_0(what: str, said: Callable[[], str]) -> str:
    """Return what rank 0 says; ``said`` is called there only.  All ranks ask for the same."""
    import torch.distributed as dist

    from ..staging.job import job_store

    store = job_store("hooktrace/tune")
    if dist.get_rank() == 0:
        store.set(what, said())
    return str(store.get(what).decode())


def rounds(
    labels: Sequence[str], plan: Plan, seconds: Callable[[], float],
    times: Mapping[str, Sequence[float]],
) -> Iterator[str]:  # fmt: skip
    """Yield whose turn is next; ``seconds`` since the first step, ``times`` of turns so far."""
    alive, halved_at = [*labels], FEWEST
    draw = random.Random()  # not the script's own
    for over in count():
        if over >= plan.rounds and seconds() >= plan.seconds:
            return
        if over == halved_at:
            halved_at *= 2
            others = sorted({*alive} - {OWN}, key=lambda one: median(times[one]))
            for one in others[max(SURVIVORS, (len(others) + 1) // 2) :]:
                if all(a > b for a, b in zip(times[one], times[others[0]], strict=True)):
                    alive.remove(one)
        for label in draw.sample(alive, len(alive)):
            if seconds() >= plan.limit_s:
                return
            yield label


class Turns:
    """The steps of a model, from when its labels begin to take turns; ``said``: of it, to a file.

    ``change`` gives gradients to another label's hook.  The file's ``times``: the mean step of each
    turn, ns, by label; ``peaks``: the most bytes of a device's memory in any.  The first turn is
    ``OWN``'s, and not among them.
    """

    made: ClassVar[int] = 0
    """Models so far, the same on all ranks: a model's number is how many were made before."""
    largest: ClassVar[tuple[int, int]] = (0, 0)
    """Bytes and number of the model whose steps count: of those that were called the largest."""

    def __init__(
        self, model: nn.Module, asked: Plan, said: Mapping[str, Any],
        labels: Iterable[str] = (OWN,), change: Callable[[str], object] = lambda _: None,
    ) -> None:  # fmt: skip
        sizes = [p.numel() * p.element_size() for p in model.parameters() if p.requires_grad]
        self._size = sum(sizes), said["number"]
        self._device = next(model.parameters()).device
        self._exit_code = 1
        self._steps = self._turns(asked, {**said, "sizes": sizes}, [*labels], change)

    def step(self) -> None:
        """Take note of a step that begins; a script that goes on after the last one is ended."""
        Turns.largest = max(Turns.largest, self._size)
        if self._size == Turns.largest and next(self._steps, "over") == "over":
            os._exit(self._exit_code)

    def _turns(
        self, asked: Plan, said: Mapping[str, Any], labels: Sequence[str],
        change: Callable[[str], object],
    ) -> Iterator[None]:  # fmt: skip
        """Go on by a step each time, then end the job as a script ends, closing what it has to."""
        import torch
        import torch.distributed as dist

        began_s, device, has_peak = time.monotonic(), self._device, self._device.type != "cpu"
        turns, times, peaks = list[str](), dict[str, list[float]](), dict[str, int]()
        seen = {
            "rank": dist.get_rank(), "ranks": dist.get_world_size(), "last": asked.is_last,
            "cap": None, "hook": None, "refused": {}, **said,
            "turns": turns, "times": times, "peaks": peaks,
        }  # fmt: skip
        order = chain([OWN], rounds(labels, asked, lambda: time.monotonic() - began_s, times))

        def next_label() -> str:
            return _of_rank_0(f"turn{next(_questions)}", lambda: next(order, ""))

        for label in iter(next_label, ""):
            turns.append(label)
            change(label)
            _write(seen)  # a job may end in any way
            if has_peak:
                torch.accelerator.reset_peak_memory_stats(device)
            for step in range(TURN):
                if step == LEFT_OUT:
                    begin = _stamp(device)
                yield
            if len(turns) > 1:  # DDP settles its buckets in the first one
                spent = _ns_between(begin, _stamp(device))
                times.setdefault(label, []).append(spent / (TURN - LEFT_OUT))
                if has_peak:
                    peak = torch.accelerator.max_memory_allocated(device)
                    peaks[label] = max(peak, peaks.get(label, 0))
        _write(seen)
        with suppress(RuntimeError):
            dist.barrier()  # or rank 0 takes the store away from those who still ask it
        self._exit_code = 0
        raise SystemExit(0)


def _stamp(device: torch.device) -> Any:
    from ..staging.devices import EventPool, has_events

    return EventPool().record(device) if has_events(device) else time.perf_counter_ns()


def _ns_between(first: Any, last: Any) -> float:
    if isinstance(last, int):
        return float(last - first)
    last.synchronize()
    return float(first.elapsed_time(last) * 1e6)


def _asked(ranks: int) -> Plan | None:
    """Count a new model that so many ranks share; returns the plan if its steps are of interest."""
    import torch.distributed as dist

    if dist.get_world_size() < 2:
        refuse("the job has one rank, which sends nothing; start it with two or more")
    if ranks != dist.get_world_size():
        return None
    Turns.made += 1
    asked = plan()
    return asked if asked.model in (None, Turns.made) else None


_steps: weakref.WeakKeyDictionary[nn.Module, Callable[[], None]] = weakref.WeakKeyDictionary()
"""Called with each step of a model; on it they would go into its copies."""
_tracers: list[Tracer] = []
"""Of the hooks that take turns in a DDP model."""


def _patch_ddp(module: ModuleType) -> None:
    """Have models made with the plan's limit of bucket sizes."""
    base.is_measured = True
    patches.make_with_cap(module.DistributedDataParallel, lambda: plan().cap)
    patches.when_made(module.DistributedDataParallel, _made)


def _made(ddp: DistributedDataParallel) -> None:
    """Take note of a model that was just made; without hooks that take turns it stays as it is."""
    from ..tracing.hookless import has_buckets

    asked = _asked(ddp.process_group.size())
    if asked is None:
        return
    if not has_buckets(ddp):
        refuse(
            "the compiled python reducer has no buckets, so no hook can be tuned; set "
            "torch._dynamo.config.optimize_ddp = True"
        )
    is_listed = getattr(ddp, "bucket_bytes_cap_list", None)  # torch 2.15
    cap = None if is_listed else round(ddp.bucket_bytes_cap / 2**20, 3)
    said = {"number": Turns.made, "kind": "DDP", "model": type(ddp.module).__name__, "cap": cap}
    ddp.register_forward_pre_hook(_begin_step, prepend=True)
    if asked.model is None:
        _steps[ddp] = Turns(ddp, asked, said).step
    else:
        from .models import know

        # Or the job would train until the time of this start is over.
        _steps[ddp] = lambda: refuse(
            f"no hook can take the place of what averages {said['model']}; the output of the job "
            "says why, after 'a DDP model is not traced'"
        )
        know(ddp, partial(take, asked, said))


def _begin_step(ddp: DistributedDataParallel, *_: Any) -> None:
    import torch

    from .models import average

    is_step = torch.is_grad_enabled() and ddp.require_backward_grad_sync
    if not is_step or ddp not in _steps:  # a copy of the model has this hook too
        return
    if ddp._join_config.enable:
        refuse(
            "the job trains within DDP.join(), where ranks need not make the same steps; give all "
            "as many batches, and tune it without join(), or with join(enable=False)"
        )
    average(ddp)  # before the first step, so that it is the first of a turn
    _steps[ddp]()


def take(
    asked: Plan, said: Mapping[str, Any], ddp: DistributedDataParallel, own: tuple[Hook, Any],
    call: Callable[..., None],
) -> tuple[Hook, Any]:  # fmt: skip
    """Have the plan's hooks take turns with a DDP model's own hook and state; returns the first's.

    ``call``: given those that take the model's buckets from then on.
    """
    from ..tracing.ddp_average import ddp_allreduce
    from ..tracing.trace import trace
    from ..tracing.tracer import Tracer

    hook, state = own
    hook = getattr(hook, "__wrapped__", hook) if getattr(hook, "is_traced", False) else hook
    name = str(getattr(hook, "__qualname__", type(hook).__qualname__))
    where = str(getattr(hook, "__module__", ""))
    if getattr(hook, "has_effects", False) or where.endswith(_DO_MORE):
        refuse(
            f"the job's own hook, {name}, does more than average gradients, so others cannot "
            "stand in for it; tune the job without it"
        )
    ready, refused = {OWN: (hook, state)}, dict[str, str]()
    for label in asked.hooks:
        one = CANDIDATES[label]
        try:
            one.hook.check_model(ddp.module)
            made = one.make_state(ddp.process_group, **one.check_options)
            one.hook.check_state(made)
            ready[label] = one.hook, made
        except (TypeError, ValueError) as error:
            refused[label] = str(error)
    while _tracers:  # the script has replaced its hook
        _tracers.pop().close()
    for label, (plain, its_state) in ready.items():
        # Probes come in the first step of each turn, which does not count.
        _tracers.append(Tracer([Part(label)], error_every=TURN))
        traced = trace(plain, model=type(ddp.module).__name__, tracer=_tracers[-1])
        traced.learn(ddp)
        traced.notices.stop_watching()  # it is not called for a round, by no fault of the script's
        ready[label] = traced, its_state
    seen = {**said, "hook": None if hook is ddp_allreduce else name, "refused": refused}
    _steps[ddp] = Turns(ddp, asked, seen, ready, lambda label: call(*ready[label])).step
    return ready[OWN]


def _called(root: nn.Module) -> None:
    """Take note of a sharded model, a root of which is called for the first time."""
    import torch

    from ..fsdp.torch_groups import groups_of

    model = sharded.outermost(root)
    if model in _steps:  # each of its units is a root
        return
    _steps[model] = lambda: None
    groups = list(groups_of(model))
    asked = _asked(min((one.ranks for one in groups), default=0))
    if asked is None:
        return
    said = {"number": Turns.made, "kind": "fully_shard", "model": sharded.name_of(model)}
    turns = (Turns if asked.model is None else _take_sharded)(model, asked, said)

    def begin_step(*_: Any) -> None:
        if torch.is_grad_enabled() and groups[0].reduces:
            turns.step()

    model.register_forward_pre_hook(begin_step, prepend=True)
    begin_step()


def _take_sharded(model: nn.Module, asked: Plan, said: Mapping[str, Any]) -> Turns:
    """Have the plan's reduce-scatters take turns, while the model is called for the first time."""
    from ..fsdp.hooks import ScatterHook
    from ..fsdp.trace import trace
    from ..tracing.tracer import Tracer

    hooks = {OWN: None} | {label: SHARDED[label].make() for label in asked.hooks}
    switches: list[tuple[int, str]] = []

    def label_of(step: int) -> str:
        return next((label for first, label in reversed(switches) if first <= step), OWN)

    def change(label: str) -> None:
        switches.append((traced.next_step, label))
        traced.reduce_by(hooks[label])

    tracer = Tracer([Part(label, label_of) for label in hooks], error_every=TURN)
    # It never runs: with a hook units are checked, and records name one for all steps.
    several = ScatterHook()
    several.name = "hooks in turns"
    traced = trace(model, tracer=tracer, name=said["model"], reduce_scatter=several)
    traced.reduce_by(None)
    traced.in_forward(model)
    return Turns(model, asked, said, hooks, change)


def _end_others(optimizers: ModuleType) -> None:
    """End a job that trains without a model that can be tuned; ``optimizers``: torch's module."""
    steps = count(1)

    def stepped(*_: Any) -> None:
        if Turns.made:
            handle.remove()
        elif next(steps) > _ALONE:
            refuse(
                "the job trains, and no model of it is under DDP, or under fully_shard, on all of "
                "its ranks, so there is no hook to tune; pass a command that trains one"
            )

    handle = optimizers.register_optimizer_step_post_hook(stepped)


PATCHES = {
    patches.DDP: _patch_ddp,
    patches.FSDP: lambda fsdp: sharded.watch(fsdp, _called),
    "torch.optim.optimizer": _end_others,
}
"""What is done to torch's modules, once they are imported."""


class Part(RecordFileExporter):
    """Writes record files of one label: its steps, by ``label_of`` each, and all other records."""

    measures_the_job = True
    """So that it is used where the script's own exporters are not (``exporters/base.py``)."""

    def __init__(self, label: str, label_of: Callable[[int], str] | None = None) -> None:
        super().__init__(Path(os.environ[WHERE]).parent / label)
        self._is_own = lambda step: label_of is None or label_of(step) == label

    def export(self, batch: Batch) -> None:
        """Append what is this label's."""
        steps = tuple(one for one in batch.steps if self._is_own(one[0].step))
        super().export(msgspec.structs.replace(batch, steps=steps))


def _write(seen: dict[str, Any]) -> None:
    """Write this rank's file for ``hooktrace tune``, which finds it whole or not at all."""
    from ..staging.job import current_rank

    path = Path(f"{os.environ[WHERE]}-rank{current_rank():05d}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(seen))
    part.replace(path)


def refuse(why: str) -> NoReturn:
    """End a job that cannot be tuned."""
    _write({"why_not": why})
    raise SystemExit(0)
