"""init splits by the unit that the data show; a column that may be a category stays one, and a person is told."""

import numpy as np
import pytest

MACHINES, ROWS = 200, 10


def machines(**named):
    r = np.random.default_rng(7)
    of = r.permutation(np.repeat(np.arange(MACHINES), ROWS))
    about = {
        "age": r.integers(0, 90, MACHINES),
        "site": np.array(list("abcdefgh"))[r.integers(0, 8, MACHINES)],
        "power": r.integers(10, 99, MACHINES) * 10,
        "line": r.integers(0, 3, MACHINES),
    }
    load = r.normal(size=len(of)).round(3)
    y = (1.5 * r.normal(size=MACHINES)[of] + load + r.normal(size=len(of)) > 0).astype(int)
    return {n: v[of] for n, v in named.items()} | {n: v[of] for n, v in about.items()} | {"load": load, "y": y}


def choice(draft, column):
    return next(choice for choice in draft.choices if choice.column == column)


NUMBERS = np.random.default_rng(1).permutation(9000)[:MACHINES]


@pytest.mark.parametrize(
    ("name", "values"), [("machine_id", NUMBERS), ("mrn", np.char.add("M", NUMBERS.astype(str))), ("x7", NUMBERS)]
)
def test_a_unit_is_the_key_under_any_name(drafted, name, values):
    draft = drafted(machines(**{name: values}))
    assert draft.split.config == {"key": name} and choice(draft, name).use == "key"
    assert f"by {name}: 200 of them, in 2,000 rows: 'age', 'site', 'power' and 1 more are the same" in draft.split.text
    assert not draft.doubts


def test_numbers_that_may_be_a_category_stay_a_feature_and_are_a_doubt(drafted):
    columns = machines(x7=NUMBERS)
    draft = drafted({name: columns[name] for name in ("x7", "load", "y")})
    assert "key" not in draft.split.config and choice(draft, "x7").use == "feature"
    said = "x7 may name what several rows belong to: the labels of one x7 are more alike than chance gives"
    assert said in draft.doubts[0]
    assert draft.doubts[0].endswith("If new rows will be of others: split: {key: x7}")
