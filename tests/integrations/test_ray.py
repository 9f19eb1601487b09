"""Ray Train itself, in the frameworks' environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.distributed.harness import REPOSITORY
from tests.integrations.frameworks import needs_frameworks, run

pytestmark = [pytest.mark.slow, needs_frameworks]


def test_the_example(tmp_path: Path) -> None:
    """Its workers report how long they wait for gradients, and what the hook loses."""
    script = REPOSITORY / "tests" / "integrations" / "scripts" / "ray_on_loopback.py"
    said = run([script, REPOSITORY / "examples" / "ray_train.py"], tmp_path)
    (exposed,) = re.findall(r"hooktrace/exposed_seconds (\S+)", said)
    (error,) = re.findall(r"hooktrace/error (\S+)", said)
    assert 0 <= float(exposed) < 60
    assert 0 < float(error) < 0.01
