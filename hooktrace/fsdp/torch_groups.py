"""The parameter groups of a sharded model: what torch has no public way to ask.

    fully_shard(model) --groups_of--> ParameterGroup: its unit, what it communicates with

torch's private names of FSDP2 stand here, and those of its waits in ``torch_waits.py``.  Its own
setters (``set_custom_all_gather`` and the like) refuse modules of several groups and cannot be
asked what was set, so the groups' attributes are read and set, as those setters do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from ..staging.units import UnitInfo

AllReduceHook = Callable[[torch.Tensor], None]

_ATTRIBUTES = ("_all_gather_comm", "_reduce_scatter_comm", "_all_reduce_hook", "fsdp_params")


class Share(NamedTuple):
    """What this rank has of a parameter: ``numel`` elements, then padding up to ``padded``."""

    name: str
    numel: int
    padded: int
    is_trained: bool


class Comms(NamedTuple):
    """What a group communicates with.

    ``all_gather`` gathers its parameters, ``reduce_scatter`` reduces and scatters its gradients.
    ``all_reduce_hook``: what is called with them then, after an all-reduce over replicas.
    """

    all_gather: Any
    reduce_scatter: Any
    all_reduce_hook: AllReduceHook | None


class ParameterGroup:
    """One of torch's parameter groups, which it communicates together."""

    def __init__(self, group: Any, unit: UnitInfo) -> None:
        self.of_torch = group
        self.unit = unit

    @property
    def comms(self) -> Comms:
        """What it communicates with."""
        group = self.of_torch
        return Comms(group._all_gather_comm, group._reduce_scatter_comm, group._all_reduce_hook)

    @comms.setter
    def comms(self, comms: Comms) -> None:
        group = self.of_torch
        group._all_gather_comm, group._reduce_scatter_comm, group._all_reduce_hook = comms

    def will_call(self, hook: AllReduceHook) -> bool:
        """Return whether the next gradients are reduced over replicas, and given to ``hook`` then.

        ``set_requires_all_reduce(False)`` keeps them, and another hook may have been set.
        """
        group = self.of_torch
        return group._all_reduce_hook is hook and bool(getattr(group, "all_reduce_grads", False))

    @property
    def reduces(self) -> bool:
        """Whether the next backward pass reduces its gradients (set_requires_gradient_sync)."""
        return bool(getattr(self.of_torch, "reduce_grads", True))

    @property
    def shares(self) -> list[Share]:
        """This rank's share of each parameter, in the order in which they lie in its part."""
        names = [name for name, _ in self.unit.parameters]
        return [
            Share(
                name,
                one.sharded_size.numel(),
                one.padded_sharded_param_size.numel(),
                one.sharded_param.requires_grad,
            )
            for name, one in zip(names, self.of_torch.fsdp_params, strict=True)
        ]

    def all_trained(self, numel: int) -> tuple[str, ...] | None:
        """Return whose gradients these are, ``numel`` of the whole unit: of all that are trained.

        ``None``: some of them were not used, and nobody knows which.
        """
        trained = [share for share in self.shares if share.is_trained]
        is_all = sum(share.padded for share in trained) * self.ranks == numel
        return tuple(share.name for share in trained) if is_all else None

    @property
    def replicas(self) -> Any:
        """The process group that its gradients are all-reduced over; ``None`` without replicas."""
        return getattr(self.of_torch.mesh_info, "replicate_process_group", None)

    @property
    def ranks(self) -> int:
        """The number of ranks that its parameters are sharded over."""
        return int(getattr(self.of_torch.mesh_info, "shard_mesh_size", 1))


def changed(set_before: Iterable[tuple[ParameterGroup, Comms]]) -> list[ParameterGroup]:
    """Return the groups that communicate with others now; asked of all of them twice a step."""
    found = []
    for one, (gather, scatter, hook) in set_before:
        group = one.of_torch
        if (
            group._all_gather_comm is not gather
            or group._reduce_scatter_comm is not scatter
            or group._all_reduce_hook is not hook
        ):
            found.append(one)
    return found


def waits_for_script(states: Iterable[Any]) -> bool:
    """Return whether backward passes of one of torch's states are still to be finalised by hand.

    A script may do that from torch 2.15 on.
    """
    name = "manual_backward_finalization_active"
    return any(getattr(state._state_ctx, name, None) for state in states)


def states_of(modules: Iterable[nn.Module]) -> list[Any]:
    """Return torch's states of sharded modules, each once."""
    return list(dict.fromkeys(module._get_fsdp_state() for module in modules))  # type: ignore[operator]


def sharded_modules(root: nn.Module) -> dict[nn.Module, str]:
    """Return the modules in ``root`` that ``fully_shard`` was called for, outer ones first.

    With their names, ``<root>`` of the root itself.
    """
    kind: Any = FSDPModule  # a mixin, which is no module to type checkers
    named = root.named_modules()
    return {one: name or "<root>" for name, one in named if isinstance(one, kind)}


def groups_of(root: nn.Module) -> Iterator[ParameterGroup]:
    """Yield the parameter groups of all modules in ``root``, each once, outer modules first.

    ``fully_shard([a, b])`` makes one unit of two modules, named after both.  Raises
    ``RuntimeError`` where this version of torch has other names for them.
    """
    names: dict[Any, list[str]] = {}
    for module, name in sharded_modules(root).items():
        names.setdefault(module._get_fsdp_state(), []).append(name)  # type: ignore[operator]
    prefixes = {id(module): name for name, module in root.named_modules()}
    for state, of_modules in names.items():
        found = getattr(state, "_fsdp_param_groups", None)
        if found is None or any(not hasattr(g, a) for g in found for a in _ATTRIBUTES):
            raise RuntimeError(
                f"torch {torch.__version__} keeps FSDP's parameter groups elsewhere than the "
                "versions that hooktrace knows; use torch 2.13"
            )
        for position, group in enumerate(found):
            label = ", ".join(of_modules) + (f"[{position}]" if len(found) > 1 else "")
            yield ParameterGroup(group, UnitInfo(label, _parameters(group, prefixes)))


def _parameters(group: Any, prefixes: dict[int, str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = []
    for one in group.fsdp_params:
        owner = one._module_info  # whatever is registered there now, sharded or whole
        prefix = prefixes.get(id(owner.module), "")
        name = f"{prefix}.{owner.param_name}" if prefix else owner.param_name
        found.append((name, tuple(one.sharded_param.shape)))
    return tuple(found)
