"""Small errors put into hooktrace's hooks, to see that the comparisons notice them.

    Mutant(module, old, new) --applied()--> the module's source with the edit, compiled; each
    function's code object is replaced by the edited one's, and put back at the end

Whoever imported a function has the mutant too, since the function stays the same object.  An edit
whose text is no longer in the source fails: the mutant must follow the code.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass

from hooktrace.staging.hook import StagedHook

__all__ = ["MUTANTS", "Mutant"]


@dataclass(frozen=True)
class Mutant:
    """One edit of one module of ``hooktrace.hooks``; ``family`` says which comparison sees it."""

    family: str
    module: str
    old: str
    new: str

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Have the error in all hooks of the module for the time of the ``with`` block.

        Raises ``ValueError`` unless the text to be replaced is there exactly once.
        """
        original = importlib.import_module(f"hooktrace.hooks.{self.module}")
        source = inspect.getsource(original)
        if source.count(self.old) != 1:
            raise ValueError(f"{self.module}.py has {source.count(self.old)} times {self.old!r}")
        edited = types.ModuleType(original.__name__)
        edited.__package__ = original.__package__
        code = compile(source.replace(self.old, self.new), f"mutant {self.new}", "exec")
        exec(code, edited.__dict__)
        theirs = _functions(edited)
        before = {name: f.__code__ for name, f in _functions(original).items()}
        try:
            for name, function in _functions(original).items():
                function.__code__ = theirs[name].__code__
            yield
        finally:
            for name, function in _functions(original).items():
                function.__code__ = before[name]


def _functions(module: types.ModuleType) -> dict[str, types.FunctionType]:
    """Return the functions that a module defines, its methods and staged hooks, by name."""
    found: dict[str, types.FunctionType] = {}
    for owner in (module, *[v for v in vars(module).values() if inspect.isclass(v)]):
        for value in vars(owner).values():
            function = value.__wrapped__ if isinstance(value, StagedHook) else value
            if isinstance(function, types.FunctionType) and function.__module__ == module.__name__:
                found[function.__qualname__] = function
    return found


_DIVISION = "factors.q.div_(group.size())"
_FEEDBACK = "residual[: buffer.numel()].add_(buffer)"
_SEED = "manual_seed(int(self.rng.randint(1_000_000_000)))"
_OTHER_SEED = "manual_seed(int(self.rng.randint(1_000_000_000)) + dist.get_rank())"
_FILLED = "if is_new:\n        state.randomize([q for"

MUTANTS: dict[str, Mutant] = {
    "error feedback dropped": Mutant(
        "power", "powersgd_state", _FEEDBACK, _FEEDBACK.replace("add_", "copy_")
    ),
    "division of Q forgotten": Mutant("power", "powersgd", _DIVISION, "factors.q"),
    "ranks draw different seeds": Mutant("power", "powersgd_settings", _SEED, _OTHER_SEED),
    "mean forgotten": Mutant(
        "power", "powersgd", "factors.uncompressed.div_(group.size())", "factors.uncompressed"
    ),
    "P not orthogonal": Mutant(
        "power", "powersgd", "orthogonalize(each.p, state.orthogonalization_epsilon)", "pass"
    ),
    "warm start ignored": Mutant("power", "powersgd", _FILLED, _FILLED.replace("is_new", "True")),
    "batched: error feedback dropped": Mutant(
        "batched", "powersgd_state", _FEEDBACK, _FEEDBACK.replace("add_", "copy_")
    ),
    "batched: division of Q forgotten": Mutant(
        "batched", "powersgd", "    q.div_(group.size())\n    #", "    #"
    ),
    "batched: ranks draw different seeds": Mutant(
        "batched", "powersgd_settings", _SEED, _OTHER_SEED
    ),
    "batched: P not orthogonal": Mutant(
        "batched", "powersgd", "orthogonalize(p[None], state.orthogonalization_epsilon)", "pass"
    ),
    "batched: padding's residual dropped": Mutant(
        "batched", "powersgd", "residual[numel:].sub_(rest[numel - rows * side :])", "pass"
    ),
    "quantised: another rank's scale": Mutant(
        "quantised", "quantization", "_of_rows(scales[rank], start", "_of_rows(scales[0], start"
    ),
    "quantised: mean forgotten": Mutant(
        "quantised", "quantization", "total.div_(divisor)", "total"
    ),
    "quantised: zero point forgotten": Mutant("quantised", "quantization", ".sub_(zero)", ""),
    "quantised: truncated, not rounded": Mutant(
        "quantised", "quantization", ".round_()", ".trunc_()"
    ),
    "gathered: mean forgotten": Mutant("gathered", "default", "total.div_(group.size())", "total"),
    "gathered: all ranks but one forgotten": Mutant(
        "gathered", "default", "total.add_(row)", "pass"
    ),
    "allreduce: mean forgotten": Mutant(
        "default", "default", "bucket.buffer().div_(group.size())", "bucket.buffer()"
    ),
    "fp16: mean forgotten": Mutant(
        "default", "default", ".to(dtype).div_(group.size())", ".to(dtype)"
    ),
    "wrapper: not cast": Mutant("default", "wrappers", "buffer.to(dtype)", "buffer.clone()"),
}
"""By what is wrong."""
