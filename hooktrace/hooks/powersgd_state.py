"""The state of the PowerSGD hooks: what they remember of one model, by bucket and by parameter.

    bucket --claim--> is it of this model?   --recall--> residual, P and Q of its parameters
           --residual_for, factors, square_factors--> tensors that the hook updates in place

Residuals, P and Q live as long as the layout: nothing of the size of a bucket is allocated in a
step.  They belong to parameters, by their position among all that DDP's first backward pass brings:
DDP makes other buckets of the same parameters when it rebuilds them and when a job is resumed, but
each job's first pass brings the parameters in the same order, unless ``find_unused_parameters`` is
another, or, with it, ``bucket_cap_mb``.  They are kept together by bucket.
When the buckets are others than before they are taken apart and put together anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch

from ..staging.slots import GradBucketLike, kind_of
from .powersgd_factors import Factors, Shape, cut, does_not_fit, restart_like
from .powersgd_saved import from_plain, refuse_others, to_plain
from .powersgd_settings import PowerSGDSettings

_OF_THIS_JOB = ("_factors", "_misfits", "_model", "_positions", "_restarts")
"""What is not pickled, but begins anew."""

_PASSES_BEFORE_REBUILD = 3  # with a static graph the buckets of the third backward pass are new


class ParameterOrder:
    """The parameters of one model, in the order in which its first backward pass met them.

    They are known by weak reference: none is kept alive.
    """

    def __init__(self) -> None:
        self._parameters: dict[int, tuple[int, weakref.ref[torch.Tensor]]] = {}
        self._met = 0
        self._complete = False
        self._kinds: set[object] = set()

    def owns(self, bucket: GradBucketLike) -> bool:
        """Return whether the bucket is of the same model as those before it."""
        parameters = bucket.parameters()
        _, known = self._parameters.get(id(parameters[0]), (0, None))
        is_known = known is not None and known() is parameters[0]
        if self._complete:
            return is_known
        if not is_known:
            if self._place(bucket) != self._met:
                return False
            for parameter in parameters:
                self._parameters[id(parameter)] = len(self._parameters), weakref.ref(parameter)
        self._met = (bucket.index() if is_known else self._met) + 1
        self._complete = bucket.is_last()
        return True

    def _place(self, bucket: GradBucketLike) -> int:
        """Return which bucket of the first pass an unknown one is.

        Of a static graph all say 0 (``staging/slots.py``).  Which pass it is cannot be asked
        here: of several rounds, the calls after the first run on another thread than backward's.
        """
        index, kind = bucket.index(), kind_of(bucket)
        if index == 0 and not bucket.is_last() and kind not in self._kinds:
            index = self._met
        self._kinds.add(kind)
        return index

    def positions(self, bucket: GradBucketLike) -> list[int]:
        """Return the positions of the bucket's parameters among the model's."""
        return [self._parameters[id(parameter)][0] for parameter in bucket.parameters()]


@dataclass(slots=True)
class ParameterMemory:
    """What is remembered of one parameter: residual (numel,) and Q (m, r), as far as there are any.

    ``shape``: (n, m) of the matrix, ``None`` where the parameter is not compressed.
    """

    numel: int
    residual: torch.Tensor | None = None
    shape: Shape | None = None
    q: torch.Tensor | None = None


_NOTHING = ParameterMemory(numel=-1)


@dataclass(slots=True, eq=False, repr=False)
class PowerSGDState(PowerSGDSettings):
    """Settings and memory of ``powerSGD_hook`` and ``batched_powerSGD_hook``, for one model.

    ``process_group``: to average over, ``None`` for the default group.
    ``matrix_approximation_rank``: columns of P and Q; compression falls and fidelity grows with it,
    usually 1 to 4.
    ``start_powerSGD_iter``: steps with a plain all-reduce before compression begins.  With error
    feedback or warm start at least 2, since DDP rebuilds its buckets after the first step.
    ``min_compression_rate``: an n x m gradient is compressed where
    ``(n + m) * rank * min_compression_rate < n * m``; all others are averaged as they are.
    ``use_error_feedback``: add what compression lost to the next step's gradient.
    ``warm_start``: start from the last step's Q instead of a random one.
    ``orthogonalization_epsilon``: added to a column's norm before it is divided by it.  Zero
    columns need none here: they give zeros.
    ``random_seed``: for the random Q; the same on all ranks.
    ``compression_stats_logging_frequency``: steps between two log lines with the statistics.
    ``batch_tensors_with_same_shape``: stack matrices of one shape for one batched product, which
    pays on a GPU; on a CPU, where it does not, it only decides how the random Q is drawn.

    As in torch, ``iter`` counts steps, ``error_dict``, ``p_memory_dict`` and ``q_memory_dict`` hold
    the memory by bucket index, and ``total_numel_before_compression`` and
    ``total_numel_after_compression`` count elements; unlike there, a residual is one tensor that is
    updated in place.  Pickling leaves the process group out: the copy uses the default group until
    ``process_group`` is set.  A job that is resumed with the saved state and model goes on as if it
    had not stopped: bit for bit on two ranks, where the parameters' sizes are multiples of 16 (a
    BLAS's sums depend on alignment).  Not so with ``warm_start=False``, where random numbers are
    drawn for each bucket and DDP begins again with other buckets, nor for
    ``batched_powerSGD_hook``, which averages plainly until DDP has its buckets back.

    Raises ``ValueError`` for settings that cannot work.
    """

    error_dict: dict[int, torch.Tensor] = field(default_factory=dict, init=False)
    p_memory_dict: dict[int, torch.Tensor] = field(default_factory=dict, init=False)
    q_memory_dict: dict[int, torch.Tensor] = field(default_factory=dict, init=False)
    _by_parameter: dict[int, ParameterMemory] = field(default_factory=dict, init=False)
    _squares: dict[int, list[int]] = field(default_factory=dict, init=False)
    _factors: dict[int, Factors] = field(default_factory=dict, init=False)
    _restarts: dict[int, torch.Tensor] = field(default_factory=dict, init=False)
    _positions: dict[int, list[int]] = field(default_factory=dict, init=False)
    _misfits: dict[int, int] = field(default_factory=dict, init=False)
    _model: ParameterOrder = field(default_factory=ParameterOrder, init=False)

    def __getstate__(self) -> dict[str, Any]:
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _OF_THIS_JOB}
        return kept | {"process_group": None, "_by_parameter": self._taken_apart()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        begun: dict[str, Any] = {name: {} for name in _OF_THIS_JOB}
        for name, value in (state | begun | {"_model": ParameterOrder()}).items():
            setattr(self, name, value)

    def state_dict(self) -> dict[str, Any]:
        """Return what pickling keeps, for ``torch.load(weights_only=True)``: tensors, no copies."""
        return to_plain(self.__getstate__(), self)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on where a state was saved; settings stay this one's.

        Raises ``ValueError`` for settings under which other things are remembered, and for
        residuals of another rank, or of a job of more or fewer.
        """
        refuse_others(saved, self)
        kept = {name: getattr(self, name) for name in ("process_group", "_model")}
        self.__setstate__(self.__getstate__() | from_plain(saved, ParameterMemory))
        for name, value in kept.items():
            setattr(self, name, value)

    def claim(self, bucket: GradBucketLike) -> None:
        """Check that the bucket belongs to the model that this state has served so far.

        Raises ``ValueError`` for another model's: its residuals and factors would be mixed up.
        """
        if not self._model.owns(bucket):
            raise ValueError(
                "the PowerSGDState belongs to another model already; "
                "make one PowerSGDState for each model"
            )

    def recall(self, bucket: GradBucketLike) -> None:
        """Put the memory of the bucket's parameters together, if it was kept in other buckets."""
        index, positions = bucket.index(), self._model.positions(bucket)
        if self._positions.get(index, positions) != positions:
            self._by_parameter = self._taken_apart()
            self._factors, self._positions = {}, {}
            self.error_dict, self.p_memory_dict, self.q_memory_dict = {}, {}, {}
        self._positions[index] = positions
        if positions[0] not in self._by_parameter:
            return
        found = [self._by_parameter.pop(position, _NOTHING) for position in positions]
        if [memory.numel for memory in found] != [g.numel() for g in bucket.gradients()]:
            raise does_not_fit(index)
        shapes = dict.fromkeys(memory.shape for memory in found)
        qs = [m.q for shape in shapes for m in found if m.shape == shape and m.q is not None]
        residuals = [m.residual for m in found if m.residual is not None]
        for parts, kept in ((residuals, self.error_dict), (qs, self.q_memory_dict)):
            kept.pop(index, None)
            if parts:
                kept[index] = torch.cat([part.flatten() for part in parts])

    def _taken_apart(self) -> dict[int, ParameterMemory]:
        """Return what is remembered, by parameter; what no bucket has asked for yet included."""
        apart = dict(self._by_parameter)
        for index, known in self._factors.items():
            positions = self._positions[index]
            residuals: Any = [None] * len(positions)
            if known.residual is not None:
                residuals = known.residual.split(known.numels)
            for position, numel, residual in zip(positions, known.numels, residuals, strict=True):
                apart[position] = ParameterMemory(numel=numel, residual=residual)
            for group in known.groups:
                for i, q in zip(group.positions, group.q, strict=True):
                    memory = apart[positions[i]]
                    memory.shape, memory.q = group.shape, q if self.warm_start else None
        return apart

    def residual_for(self, index: int, buffer: torch.Tensor, numel: int) -> torch.Tensor | None:
        """Return the residual of a bucket with this step's gradients added; ``None`` without.

        ``buffer``: the flat gradients.  ``numel``: length of the residual, from the buffer's on.
        """
        if not self.use_error_feedback:
            return None
        residual = self.error_dict.get(index)
        if residual is None:
            residual = self.error_dict[index] = buffer.new_zeros(numel)
        if residual.device != buffer.device:  # it was loaded to another one
            residual = self.error_dict[index] = residual.to(buffer.device)
        if residual.numel() != numel:
            raise does_not_fit(index)
        residual[: buffer.numel()].add_(buffer)
        return residual

    def factors(
        self, bucket: GradBucketLike, residual: torch.Tensor | None
    ) -> tuple[Factors, bool]:
        """Return how a bucket is compressed, and whether its Q must be filled anew."""
        index, buffer = bucket.index(), bucket.buffer()
        known = self._factors.get(index)
        q = self.q_memory_dict.get(index) if self.warm_start else None
        fits = (
            known is not None
            and known.residual is residual
            and sum(known.numels) == buffer.numel()
            and known.wire.dtype is buffer.dtype
            and (q is None or q is known.q)
        )
        if not fits:
            known = self._factors[index] = cut(
                bucket,
                residual,
                q,
                rank=self.matrix_approximation_rank,
                min_compression_rate=self.min_compression_rate,
            )
        assert known is not None
        self.p_memory_dict[index], self.q_memory_dict[index] = known.p, known.q
        return known, q is None

    def forget_factors(self, index: int) -> None:
        """Without warm start, P and Q are worth nothing after the step."""
        if not self.warm_start:
            self.p_memory_dict.pop(index, None)
            self.q_memory_dict.pop(index, None)

    def knows_square(self, bucket: GradBucketLike, side: int) -> bool:
        """Return whether what is remembered of a bucket as one square is of the same parameters.

        It is not in the first backward passes of a resumed job, or of a model in another DDP, until
        that has rebuilt its buckets.  Raises ``ValueError`` where it still is not after that, and
        for another model's memory.
        """
        if not self.use_error_feedback and not self.warm_start:
            return True  # nothing is remembered from step to step
        index, positions = bucket.index(), self._model.positions(bucket)
        q = self.q_memory_dict.get(index)
        fits = self._squares.setdefault(index, positions) == positions
        if fits and q is not None and len(q) != side:
            raise does_not_fit(index)
        self._misfits[index] = 0 if fits else self._misfits.get(index, 0) + 1
        if self._misfits[index] > _PASSES_BEFORE_REBUILD:
            raise does_not_fit(index)
        return fits

    def square_factors(
        self, index: int, buffer: torch.Tensor, side: int, rank: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool]:
        """Return P and Q of a bucket that is one square, and whether Q must be filled anew.

        Each is of shape (side, rank).  Before the last comes a start for a Q that died.
        """
        p, q = self.p_memory_dict.get(index), self.q_memory_dict.get(index)
        is_new = p is None or q is None
        if p is None or q is None:
            p, q = buffer.new_empty(side, rank), buffer.new_empty(side, rank)
        p, q = p.to(buffer.device), q.to(buffer.device)
        self.p_memory_dict[index], self.q_memory_dict[index] = p, q
        restart = self._restarts.get(index)
        if restart is None or _kind(restart[0]) != _kind(q):
            restart = self._restarts[index] = restart_like(q, side, rank)
        return p, q, restart, is_new


def _kind(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, torch.device]:
    return tensor.shape, tensor.dtype, tensor.device
