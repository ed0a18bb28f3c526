"""Windows by count and by time; dated paths; a gap is an error that names what is missing."""

from calendar import monthrange
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config import load
from headway.errors import ConfigError
from headway.sources.config import SourceConfig
from headway.sources.spans import files, parse_date, select_window, spans

DAYS = [f"2013-01-{day:02d}" for day in range(1, 32)]
MONTHS = [f"{year}-{month:02d}" for year in (2012, 2013) for month in range(1, 13)]


@pytest.mark.parametrize(
    ("known", "window", "until", "first", "last", "count"),
    [
        (DAYS, "7d", "latest", "2013-01-25", "2013-01-31", 7),
        (DAYS, "7d", "2013-01-10", "2013-01-04", "2013-01-10", 7),
        (DAYS, "2w", "2013-01", "2013-01-18", "2013-01-31", 14),
        (DAYS, "1m", "latest", "2013-01-01", "2013-01-31", 31),
        (DAYS, 5, "latest", "2013-01-27", "2013-01-31", 5),
        (DAYS, "5", "2013-01", "2013-01-27", "2013-01-31", 5),
        (DAYS, None, "2013-01-03", "2013-01-01", "2013-01-03", 3),
        (MONTHS, "12m", "latest", "2013-01", "2013-12", 12),
        (MONTHS, "1y", "2013-02", "2012-03", "2013-02", 12),
        (MONTHS, "90d", "2013-03", "2013-01", "2013-03", 3),
        (MONTHS, None, "2012", "2012-01", "2012-12", 12),
        (["2012", "2013"], "2y", "latest", "2012", "2013", 2),
        ([f"2013-01-01T{hour:02d}" for hour in range(24)], "6h", "2013-01-01T10", "2013-01-01T05", "2013-01-01T10", 6),
    ],
)
def test_a_window_ends_with_until_and_is_as_long_as_it_says(known, window, until, first, last, count):
    chosen = select_window(known, window, until)
    assert (chosen[0], chosen[-1], len(chosen)) == (first, last, count)


@pytest.mark.parametrize(
    ("lacking", "window", "until", "named"),
    [
        ({"2013-01-28"}, "7d", "latest", "2013-01-28"),
        ({"2013-01-28"}, 7, "latest", "2013-01-28"),
        ({"2013-01-28"}, None, "latest", "2013-01-28"),
        ({"2013-01-25", "2013-01-26"}, "7d", "latest", "2013-01-25, 2013-01-26"),
        ({"2013-01-31"}, "7d", "2013-01-31", "2013-01-31"),
        (set(), "40d", "latest", "2012-12-23"),
        (set(DAYS[10:20]), "31d", "latest", "2013-01-15 and 5 more"),
    ],
)
def test_a_missing_span_is_an_error_that_names_it_unless_gaps_are_allowed(lacking, window, until, named):
    known = [day for day in DAYS if day not in lacking]
    with pytest.raises(ConfigError, match=named):
        select_window(known, window, until)
    chosen = select_window(known, window, until, "allow")
    assert chosen and set(chosen) <= set(known)


@pytest.mark.parametrize(
    ("known", "window", "until", "said"),
    [
        (["a", "b"], "30d", "latest", "named by their dates"),
        (["a", "b"], "x", "latest", "is not a window"),
        (["a", "b"], None, "e", "no span 'e'"),
        (["a", "b"], 3, "b", "--window 2 or less"),
        (DAYS, "0d", "latest", "at least 1"),
        (DAYS, 0, "latest", "at least 1"),
        (DAYS, -1, "latest", "at least 1"),
        (DAYS, 40, "latest", "--window 31 or less"),
        (DAYS, "3d", "2014-01-01", "no span '2014-01-01'"),
        (MONTHS, "3m", "2013-01-05", "no span '2013-01-05'"),
    ],
)
def test_a_window_that_cannot_be_says_why(known, window, until, said):
    with pytest.raises(ConfigError, match=said) as error:
        select_window(known, window, until)
    assert error.value.where.startswith("--") and error.value.fix


def test_names_that_are_no_dates_have_no_gaps():
    assert select_window(["a", "c", "x-1"], 3) == ["a", "c", "x-1"]
    assert select_window(["a", "c", "x-1"], 1, "c") == ["c"] and select_window(["a", "c"], None, "a") == ["a"]
    assert select_window(["2013", "2013-03"], 2) == ["2013", "2013-03"]


@given(
    st.dates().map(str)
    | st.sampled_from(["2013", "2013-02", "2013-02-30", "2013-1", "201301", "0000", "2013-01-01T24"])
)
def test_dates_are_read_back_from_their_names(name):
    found = parse_date(name)
    assert (
        (str(found) == name)
        if found is not None
        else name in ("2013-02-30", "2013-1", "201301", "0000", "2013-01-01T24")
    )


@pytest.fixture
def tree(tmp_path):
    for name in (
        "2013/01/05/a.csv",
        "2013/01/05/b.csv",
        "2013/01/06/a.csv",
        "2013/1/7/a.csv",
        "2013/02/30/a.csv",
        "x/01/05/a.csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a\n1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("{year}/{month}/{day}", ["2013-01-05", "2013-01-06", "2013-01-07"]),
        ("{year}/{month}/{day}/*.csv", ["2013-01-05", "2013-01-06", "2013-01-07"]),
        ("{year}/{month}/{day}/b.csv", ["2013-01-05"]),
        ("{year}", ["2013"]),
    ],
)
def test_dated_paths_name_their_spans(tree, path, names):
    config = SourceConfig(format="csv", path=f"{tree}/{path}")
    assert spans(config) == names and all(files(config, name) for name in names)


def test_a_dates_parts_may_stand_in_the_path_twice(tmp_path):
    for name in ("2013/01/2013-01-05T06.csv", "2013/01/2013-02-05T06.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    config = SourceConfig(format="csv", path=f"{tmp_path}/{{year}}/{{month}}/{{year}}-{{month}}-{{day}}T{{hour}}.csv")
    assert spans(config) == ["2013-01-05T06"]
    assert [file.path for file in files(config, "2013-01-05T06")] == [str(tmp_path / "2013/01/2013-01-05T06.csv")]


@pytest.mark.filterwarnings("error")
def test_a_bracket_in_a_glob_is_no_set_in_a_set(tmp_path):
    (tmp_path / "a[1.csv").write_text("a\n1\n")
    (tmp_path / "b").mkdir()
    assert spans(SourceConfig(format="csv", path=f"{tmp_path}/a[[]{{span}}.csv")) == ["1"]


@pytest.mark.parametrize(
    ("path", "said"),
    [("{month}/x.csv", "without {year}"), ("{year}/{day}", "without {month}"), ("{span}/{year}", "both {span}")],
)
def test_patterns_that_name_no_date_are_refused(path, said):
    with pytest.raises(ConfigError) as error:
        load(SourceConfig, {"format": "csv", "path": path}, where="x")
    assert said in str(error.value)


ALL_DAYS = [str(date.fromordinal(day)) for day in range(date(2011, 12, 1).toordinal(), date(2013, 3, 1).toordinal())]


@given(st.dates(date(2012, 3, 1), date(2013, 2, 28)), st.integers(1, 2))
def test_months_follow_the_calendar_on_every_day(until, months):
    lengths = [monthrange(d.year, d.month)[1] for d in (until.replace(day=1), until.replace(day=1) - timedelta(1))]
    chosen = select_window(ALL_DAYS, f"{months}m", str(until))
    assert 28 * months <= len(chosen) <= 31 * months
    whole = until + timedelta(1)
    if whole.day == 1:  # a whole month, and not a day of another
        assert len(chosen) == sum(lengths[:months])
    elif whole.day <= 28:
        begin = date.fromisoformat(chosen[0])
        assert (begin.day, (until.month - begin.month) % 12) == (whole.day, months)
    after = select_window(ALL_DAYS, f"{months}m", str(min(whole, date(2013, 2, 28))))
    assert after[0] >= chosen[0]  # a later end never begins earlier


@pytest.mark.parametrize(
    ("until", "first"),
    [
        ("2013-01-30", "2012-12-31"),
        ("2013-01-29", "2012-12-30"),
        ("2012-03-30", "2012-03-01"),
        ("2012-03-29", "2012-03-01"),
        ("2012-03-28", "2012-02-29"),
    ],
)
def test_a_month_that_ends_on_a_late_day(until, first):
    assert select_window(ALL_DAYS, "1m", until)[0] == first


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("_landing/{span}", ["x/a.csv", "x/deep/b.csv"]),
        ("_landing/{span}/*.csv", ["x/a.csv"]),
        ("_landing/{span}/*/*.csv", ["x/deep/b.csv"]),
        ("_landing/{span}/*/*/*/*.csv", []),
        ("_landing/{span}/_temporary/0/*/*.csv", ["x/_temporary/0/x/part.csv"]),
        ("_land*/x/a.csv", ["x/a.csv"]),
        ("*/x/a.csv", []),
    ],
)
def test_what_the_path_does_not_name_itself_is_hidden_at_any_depth(tmp_path, path, taken):
    folder = tmp_path / "_landing"
    for name in ("x/a.csv", "x/deep/b.csv", "x/_temporary/0/x/part.csv", "x/.crc/0/1/c.csv", "x/_d.csv", "_old/a.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a\n1\n")
    config = SourceConfig(format="csv", path=f"{tmp_path}/{path}")
    if taken:
        assert [Path(f.path).relative_to(folder).as_posix() for f in files(config, spans(config)[0])] == taken
        assert spans(config) == (["x"] if "{span}" in path else ["all"])
    else:
        with pytest.raises(ConfigError, match="hidden files match") as error:
            files(config, spans(config)[0])
        assert "write the part that begins with '_'" in str(error.value)
