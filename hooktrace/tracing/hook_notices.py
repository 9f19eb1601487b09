"""Anomalies of a hook as a whole: where it runs so that its buckets cannot be seen.

compiled reducer's call --note_compiled(key)--+
DDP's backward passes without a call ---------+--> one AnomalyRecord of each kind --> tracer
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING

from ..capture.layout import LayoutTracker
from ..ranks.job import current_rank
from ..records import AnomalyRecord
from .tracer import Tracer
from .unsynchronised import watch_for_missed_calls

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel


class HookNotices:
    """Records what is to be said of one traced hook, each kind once.

    ``model``: the name of the first model that the hook serves.  ``key``: what ``note_compiled``
    takes, since a compiled graph cannot hold this object.
    """

    def __init__(self, tracer: Tracer, layout: LayoutTracker, model: str) -> None:
        self._tracer = tracer
        self._layout = layout
        self._model = model
        self._compiled = False
        self.key = next(_keys)
        _by_key[self.key] = self

    def watch(self, ddp: DistributedDataParallel) -> None:
        """Record it when backward passes of ``ddp`` do not call the hook; holds neither."""
        unsynchronised = weakref.WeakMethod(self._not_synchronised)

        def report(passes: int) -> None:
            if (record := unsynchronised()) is not None:
                record(passes)

        watch_for_missed_calls(ddp, self._layout, report)

    def compiled(self) -> None:
        """Record that the hook runs under the compiled python reducer."""
        if not self._compiled:
            self._compiled = True
            self._note(
                "compiled_reducer",
                "runs under the compiled python reducer, where it is part of a compiled graph and "
                "nothing can be stamped; set torch._dynamo.config.optimize_ddp = True to time its "
                "buckets",
            )

    def _not_synchronised(self, passes: int) -> None:
        self._note(
            "not_synchronised",
            f"was not called in {passes} backward passes in which DDP was to synchronise, so the "
            "ranks train apart; call ddp(...) and not ddp.module(...), and run the forward pass of "
            "the last micro-batch outside no_sync()",
        )

    def _note(self, kind: str, what: str) -> None:
        if not self._tracer.recording:
            return
        self._tracer.start()
        last = self._layout.models[-1] if self._layout.models else None
        self._tracer.push(
            AnomalyRecord(
                kind=kind,
                model=self._model,
                hook=self._layout.hook,
                generation=last.generation if last else 0,
                step=max(0, last.step) if last else 0,
                bucket=-1,
                stage="hook",
                time_ns=self._tracer.clock(),
                rank=current_rank(),
                message=f"hook {self._layout.hook!r} of {self._model} {what}",
            )
        )


_keys = itertools.count()
_by_key: weakref.WeakValueDictionary[int, HookNotices] = weakref.WeakValueDictionary()


def note_compiled(key: int) -> bool:
    """Record that the hook with this key runs in a compiled graph."""
    _by_key[key].compiled()
    return True


# So that it runs once, while the graph is made.  This is torch.compiler.assume_constant_result
# without its import of torch._dynamo, which takes a second.
note_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]
