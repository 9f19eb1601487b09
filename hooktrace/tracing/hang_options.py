"""What a tracer is to do about hangs: its options, checked when it is made.

Tracer(hang_after_s=..., on_hang=...) --> HangOptions --> hangs.py, once there is anything to watch
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from ..records.errors import is_seconds

OnHang = Literal["record", "warn", "dump", "abort"]


class HangOptions(NamedTuple):
    """``after_s``: seconds that a bucket may wait; ``None`` for ten and what is usual."""

    after_s: float | None
    action: OnHang

    def checked(self) -> HangOptions:
        """Return them; raises ``ValueError`` for what cannot work."""
        if self.after_s is not None and not is_seconds(self.after_s):
            raise ValueError(
                f"hang_after_s={self.after_s} is no time to wait; pass seconds, or None for ten "
                "and what is usual"
            )
        if self.action not in get_args(OnHang):
            raise ValueError(
                f"on_hang={self.action!r} is not known; pass {', '.join(get_args(OnHang))}"
            )
        return self
