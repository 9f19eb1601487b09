"""What the record of an anomaly says."""

from __future__ import annotations

from hooktrace.probes.diagnosis import Diagnosis
from tests.probes.test_diagnosis import gradients, probed


def test_messages_name_hook_bucket_step_and_remedy() -> None:
    """As all anomalies do."""
    samples = gradients()
    (found,) = Diagnosis().of_probe(probed(-samples.mean(0), samples))
    assert (found.model, found.hook, found.generation, found.step, found.bucket) == (
        "net", "my_hook", 1, 7, 3,
    )  # fmt: skip
    assert found.message == (
        "hook 'my_hook', bucket 3, step 7: the result points away from the average: "
        "it is -1 times it; look for a minus sign"
    )
