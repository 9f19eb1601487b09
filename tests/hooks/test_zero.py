"""The hooks of ZeRO are torch's."""

from torch.distributed.algorithms.ddp_comm_hooks import ddp_zero_hook

from hooktrace import hooks


def test_they_are_torchs_own() -> None:
    """Under the same names, as those of all other hooks."""
    for name in ("hook_with_zero_step", "hook_with_zero_step_interleaved"):
        assert getattr(hooks, name) is getattr(ddp_zero_hook, name)
