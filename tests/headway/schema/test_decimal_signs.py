"""Which decimal sign the numbers of a column, and of a table, are written with."""

import pyarrow as pa
import pytest

from headway.schema.decimal_signs import in_groups, sign_of, sign_of_table


@pytest.mark.parametrize(
    ("texts", "sign"),
    [
        (["0,549", "12,125"], ","),  # no thousands begin with 0
        (["1,5", "1.234,0"], ","),
        (["1.234.567"], ","),
        (["1,234.5"], "."),
        (["12.5%"], "."),
        (["0.549 €"], "."),
        (["1,234", "567"], "either"),
        (["1.234 €", "300.000 €"], "either"),
        (["12,5", "12.5"], "either"),
        (["1", "a"], None),
        (["192.168.0.1"], None),
        (["1,2,3"], None),
        ([], None),
    ],
)
def test_the_decimal_sign_of_a_column(texts, sign):
    assert sign_of(pa.array(texts, pa.string())) == sign


def test_columns_of_a_table_agree_on_one_sign_or_none_is_known():
    comma, open_, point = (pa.chunked_array([values]) for values in (["1,5"], ["1,234"], ["1,234.5"]))
    real, whole = (pa.chunked_array([pa.array(values, pa.float64())]) for values in ([66.76, None], [1.0, None]))
    assert sign_of_table([comma, open_, whole]) == ","
    assert sign_of_table([open_, real]) == sign_of_table([point, whole]) == "."
    assert sign_of_table([open_]) == sign_of_table([comma, real]) == "either"


def test_points_before_three_digits_each_may_be_thousands():
    assert in_groups(pa.chunked_array([["1.234", "12.000", "850"]]))
    assert not in_groups(pa.chunked_array([["1.234", "1.5"]]))
    assert not in_groups(pa.chunked_array([["850"]]))
