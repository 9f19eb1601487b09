"""What simulated hooks are called: nothing that they are not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch

from hooktrace.probes.compare import measure
from hooktrace.probes.diagnosis import Diagnosis
from hooktrace.probes.probe_result import ProbeResult, StepChecksums
from hooktrace.probes.weights import cause_of
from tests.probes.causes import CAUSES, CONDITIONS, COUNT, Condition, Hook
from tests.probes.test_diagnosis import slot_3

pytestmark = pytest.mark.usefixtures("one_thread")

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SIZES = (2, 4, 8, 64)
STEPS = 6
RANK = 1
EPS = torch.finfo(torch.float32).eps


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Keep small matrices from waiting for threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def probes(cause: str, condition: str, dtype: torch.dtype, size: int) -> Iterator[ProbeResult]:
    """Yield what rank 1 probes, step by step."""
    hook, random = Hook(dtype), torch.Generator().manual_seed(size)
    slot = slot_3()
    slot.torch_dtype, slot.numel = dtype, COUNT
    slot.parameters = (("a.weight", (COUNT,)),)
    before: StepChecksums | None = None
    checksums: torch.Tensor | None = None
    for step in range(STEPS):
        given = CONDITIONS[condition].make(random, size, step).to(dtype)
        result = CAUSES[cause].function(given.double(), hook).expand(size, COUNT).to(dtype)
        checked = ProbeResult(slot=slot, step=step, rank=RANK, local=False)
        checked.sums = measure(result[RANK], given.double().mean(0), [COUNT])
        checked.finite = torch.tensor([True])
        checked.samples, checked.result_sample = given.float(), result[RANK].float()
        checked.before, checked.checksums = before, checksums
        before = StepChecksums(step, {3: torch.zeros(2)})
        checksums = (result != result[0]).any(1).long()[:, None]
        yield checked


def names(cause: str, condition: str, dtype: torch.dtype, size: int) -> set[str]:
    """Return what a hook is called for the ranks that it adds up; the rest is another matter."""
    diagnosis = Diagnosis()
    found = [a.kind for p in probes(cause, condition, dtype, size) for a in diagnosis.of_probe(p)]
    return set(found) - {"replicas_diverge", "nonfinite_gradient", "nonfinite_result"}


def allowed(cause: str, condition: Condition) -> set[str]:
    """Return what a hook may be called without a word of it being untrue."""
    kinds = {CAUSES[cause].name} - {""}
    if condition.alike > 0.9 and kinds & {"not_communicated", "ranks_missing"}:
        kinds = kinds | {"not_averaged"}  # the very same numbers
    if condition.alike > 0.9 and cause == "a tenth averaged":
        kinds = {"not_communicated"}  # the tenth is less than 16 bits tell
    return kinds


def table() -> Iterator[tuple[str, str, torch.dtype, int]]:
    """Yield every cause under every condition, with dtypes and sizes in turn."""
    combined = list(product(DTYPES, SIZES))
    for place, (cause, condition) in enumerate(product(CAUSES, CONDITIONS)):
        yield cause, condition, *combined[(5 * place + place // len(CONDITIONS)) % 16]


@pytest.mark.slow
def test_no_hook_is_called_what_it_is_not() -> None:
    """Of every cause under every condition a third, with all dtypes and numbers of ranks."""
    wrong = [
        (*case, found)
        for case in list(table())[::3]
        if not (found := names(*case)) <= allowed(case[0], CONDITIONS[case[1]])
    ]
    assert wrong == []


@pytest.mark.parametrize("condition", [name for name, one in CONDITIONS.items() if one.clear])
def test_what_is_wrong_is_found(condition: str) -> None:
    """Where ranks' gradients differ and change, and numbers have the bits to show it."""
    found = {
        (cause, size): names(cause, condition, dtype, size)
        for place, (cause, what) in enumerate(CAUSES.items())
        if what.found
        for dtype, size in [(DTYPES[place % 2 * 3], SIZES[place % 4])]
    }
    assert len(found) >= 12
    assert {case: {CAUSES[case[0]].name} for case in found} == found


@pytest.mark.parametrize("condition", ["alike", "alike to a millionth", "nearly alike"])
@pytest.mark.parametrize(("dtype", "size"), [*zip(DTYPES, SIZES, strict=True)], ids=str)
def test_ranks_with_the_same_data_hide_no_sum(
    condition: str, dtype: torch.dtype, size: int
) -> None:
    """Whatever the single weights are, they add up to the world size."""
    for cause in ("sum", "sum, 8 bits"):
        assert names(cause, condition, dtype, size) == {"not_averaged"}
    assert names("average", condition, dtype, size) == set()


@pytest.mark.parametrize(
    "changed",
    [
        lambda given: given[:1],
        lambda given: given[:, :15],
        lambda given: given * math.inf,
        lambda given: given * 0,
        lambda given: given * torch.tensor([1, 1, 1, 1e-9])[:, None],
    ],
    ids=["one rank", "few elements", "inf", "zeros", "a rank that rounding swallows"],
)
def test_what_tells_nothing(changed: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A factor of 3 of anything else is one."""
    random, usual = torch.Generator().manual_seed(0), CONDITIONS["half alike"]
    given = usual.make(random, 4, 0)
    assert cause_of(given.mean(0) * 3, given, EPS).kind == "factor"
    given = changed(given)
    assert cause_of(given.mean(0) * 3, given, EPS).kind == "unknown"
