"""What weights say of a hook, on samples made for the purpose."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.probes.diagnosis import Diagnosis
from hooktrace.probes.probe_result import ProbeResult, StepChecksums, error_record
from hooktrace.records import AnomalyRecord
from tests.probes.fakes import bucket_of, slot_of

RANKS, COUNT = 4, 512


def slot_3() -> Any:
    """Return the slot of bucket 3 of a model, of two parameters."""
    slot = slot_of(bucket_of((2, 2), (2,)))
    slot.index, slot.rebuild, slot.model.rank = 3, 1, 0
    slot.parameters = (("a.weight", (2, 2)), ("a.bias", (2,)))
    return slot


def checked(result: torch.Tensor, gradients: torch.Tensor, **more: Any) -> ProbeResult:
    """Return what rank 1 found in a finite probe."""
    given: dict[str, Any] = {"slot": slot_3(), "step": 7, "rank": 1, "local": False}
    made = ProbeResult(**given | more)
    made.sums = torch.ones(2, 7, dtype=torch.float64) * gradients.double().mean(0).square().sum()
    made.finite = torch.tensor([True, True])
    made.samples, made.result_sample = gradients, result
    return made


def diagnosed(
    weights: list[float], *, same_results: bool = False, **more: Any
) -> list[AnomalyRecord]:
    """Return what is found of a hook with these weights at five steps of one bucket."""
    diagnosis, slot, found = Diagnosis(), slot_3(), []
    for step in range(7, 12):
        torch.manual_seed(step)
        samples = torch.randn(COUNT) + torch.randn(RANKS, COUNT)
        made = checked(torch.tensor(weights) @ samples, samples, slot=slot, step=step, **more)
        made.before = StepChecksums(step - 1, {3: torch.zeros(2, dtype=torch.int64)})
        own = torch.arange(RANKS)[:, None]
        made.checksums = torch.zeros(RANKS, 2, dtype=torch.int64) + (0 if same_results else own)
        found += list(diagnosis.of_probe(made))
    return [a for a in found if a.kind != "replicas_diverge"]


OWN = [0.0, 1.0, 0.0, 0.0]


def test_what_is_said_of_ranks() -> None:
    """The next probe's checksums say whether the others got the same; by their names in the job."""
    assert "2 times rank 1's own gradient" in diagnosed([0.0, 2.0, 0.0, 0.0])[0].message
    missing = diagnosed(OWN, same_results=True, ranks=(4, 5, 6, 7))
    assert "the gradients of rank(s) 4, 6, 7 are not in the result" in missing[0].message


def test_what_only_the_third_step_shows_is_told_of_the_first_one_too() -> None:
    """With its own step, as all anomalies are; of a hook that is local by design nothing is."""
    assert diagnosed([1.0] * 4, local=True) == diagnosed(OWN, local=True) == []
    found = diagnosed([1.0] * 4)
    assert [a.step for a in found] == [7, 10, 11]
    one = found[0]
    assert (one.model, one.hook, one.rebuild, one.bucket) == ("net", "my_hook", 1, 3)
    assert one.message == (
        "hook 'my_hook', bucket 3, step 7: the result is 4 times the average: a sum; "
        "divide by the world size"
    )


def test_the_worst_parameters_come_first() -> None:
    """By relative error; one without a reference has none, nor has a probe that failed."""
    made = checked(torch.ones(1), torch.ones(RANKS, 1))
    made.sums = torch.tensor(
        [[1.0, 4.0, 4.0, 3.0, 0.5, 1.0, 1.0], [9.0, 9.0, 1.0, 0.0, 3.0, 2.0, 1.0]],
        dtype=torch.float64,
    )
    record = error_record(made)
    assert record is not None
    assert [(w.name, w.relative_l2) for w in record.worst] == [("a.bias", 1.0), ("a.weight", 0.5)]
    assert record.relative_l2 == pytest.approx((10 / 13) ** 0.5)
    assert (record.max_absolute, record.flipped_share) == (3.0, 0.5)
    made.sums = None
    assert error_record(made) is None
    assert list(Diagnosis().of_probe(made)) == []
