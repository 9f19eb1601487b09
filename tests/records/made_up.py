"""Any records: what hypothesis makes of their declarations."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from hooktrace.records import BucketRecord, StepRecord

_TIMES = st.integers(min_value=0, max_value=2**50)
_OF_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("ready_ns", "launched_ns", "done_ns", "start_ns", "end_ns"), _TIMES),
    **dict.fromkeys(("first_ready_ns", "last_ready_ns"), _TIMES),
    "model": st.sampled_from(["net", "other"]),
    "rebuild": st.integers(0, 2),
    "bucket": st.integers(0, 3),
    "shape": st.lists(st.integers(0, 9), max_size=3).map(tuple),
}
"""Times whose differences are times too; names and numbers few enough to come twice; sizes."""


def values(declared: Any, **of_fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for all values that a type's declaration allows; ``of_fields``: its own."""
    return _of(inspect.type_info(declared), _OF_FIELDS | of_fields)


def _of(
    info: inspect.Type, own: dict[str, st.SearchStrategy[Any]] = _OF_FIELDS
) -> st.SearchStrategy[Any]:
    found: st.SearchStrategy[Any] = st.none()
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            of_fields = {f.name: own[f.name] if f.name in own else _of(f.type) for f in fields}
            found = st.builds(cls, **of_fields)
        case inspect.UnionType(types=types):
            found = st.one_of(map(_of, types))
        case inspect.IntType(ge=least, le=most, lt=beyond):
            limit = most if most is not None else (2**60 if beyond is None else beyond - 1)
            found = st.integers(-(2**60) if least is None else least, limit)
        case inspect.FloatType(ge=least, le=most):
            found = st.floats(least, most, allow_nan=False, allow_infinity=False)
        case inspect.VarTupleType(item_type=item):
            found = st.lists(_of(item), max_size=2).map(tuple)
        case inspect.TupleType(item_types=items):
            found = st.tuples(*map(_of, items))
        case inspect.DictType(key_type=key, value_type=value):
            found = st.dictionaries(_of(key), _of(value), max_size=2)
        case inspect.LiteralType(values=known):
            found = st.sampled_from(known)
        case inspect.StrType():
            found = st.text() | st.sampled_from(['"</script>', "a\nb\u2028", "\\", ""])
        case inspect.BoolType():
            found = st.booleans()
        case _:
            assert isinstance(info, inspect.NoneType), f"no values are known for {info}"
    return found


STEPS = st.lists(
    st.tuples(values(StepRecord), st.lists(values(BucketRecord), max_size=3).map(tuple)),
    max_size=3,
)
