"""Operations that do not go with a column's type are refused by the type alone, before anything runs."""

import pytest
from pydantic import TypeAdapter

from headway.errors import ConfigError
from headway.schema.columns import Column
from tfcore.transform.config import ColumnTransform, TransformConfig, check_chain, check_chains, fitting

ONE = {"hash": {"buckets": 4}, "image": {"height": 2, "width": 2}, "clip": {"min": 0}}
KINDS = [("bytes", ()), ("int64", ()), ("float32", ()), ("bytes", (None,)), ("int64", (3,))]


def _chain(value):
    return TypeAdapter(TransformConfig).validate_python(value)


@pytest.mark.parametrize(("kind", "shape"), KINDS)
@pytest.mark.parametrize(
    "op", ["standardize", "min_max", "log", "clip", "bucketize", "vocabulary", "hash", "image", "identity"]
)
def test_chains_accepted_by_the_check_run_and_the_rest_is_refused(kind, shape, op):
    column = Column(name="c", type=kind, nullable=True, shape=shape)
    chain = _chain({op: ONE.get(op, {})})
    if op in fitting(column):
        check_chain(column, chain, where="columns.c")
        return
    with pytest.raises(ConfigError) as error:
        check_chain(column, chain, where="columns.c")
    assert error.value.where == "columns.c" and "column 'c' holds" in error.value.problem
    assert all(name in error.value.fix for name in fitting(column))


def test_only_features_with_operations_of_their_own_are_looked_at():
    text = Column(name="s", type="bytes", nullable=True)
    log = {"s": ColumnTransform(transform=_chain("log"))}
    check_chains([text.model_copy(update={"role": "key"})], log, where="p.yaml")
    check_chains([text], {"s": ColumnTransform()}, where="p.yaml")
    with pytest.raises(ConfigError, match="log needs numbers, and column 's' holds text") as error:
        check_chains([text], log, where="p.yaml")
    assert error.value.where == "p.yaml: columns.s" and "s: {type: float, transform: log}" in error.value.fix
