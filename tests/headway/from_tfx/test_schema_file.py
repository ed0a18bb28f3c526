"""TFX's schema.pbtxt: what is kept, where, and what is listed with its line."""

import pytest

from headway.errors import ConfigError, DataError
from headway.from_tfx.example_folders import examples_path
from headway.from_tfx.schema_file import read_schema
from headway.schema.pbtxt import from_text, to_text

SCHEMA = """\
# by SchemaGen
feature {
  name: "company"
  type: BYTES
  domain: "companies"
  presence { min_fraction: 0.9 min_count: 7 }
  value_count { min: 1 max: 1 }
  distribution_constraints { min_domain_mass: 0.95 }
  drift_comparator { infinity_norm { threshold: 0.01 } }
  skew_comparator { infinity_norm { threshold: 0.02 } }
}
feature { name: "fare" type: FLOAT shape { dim { size: 1 } } presence { min_fraction: 1.0 } float_domain { min: 0 } }
feature { name: "day" type: INT shape { } int_domain { is_categorical: true min: 1 max: 7 } }
feature { name: "tips" type: FLOAT not_in_environment: "SERVING" }
feature { name: "vector" type: FLOAT shape { dim { size: 1 } dim { size: 4 } } }
feature { name: "tags" type: BYTES value_count { min: 0 max: 9 } }
feature { name: "old" type: INT deprecated: true }
feature { name: "planned" type: INT lifecycle_stage: PLANNED }
feature { name: "a/b" type: INT
  unique_constraints { min: 3 }
}
feature { name: "nested" type: STRUCT struct_domain { feature { name: "inner" type: INT } } }
feature { name: "when" type: BYTES time_domain { string_format: "%d/%m/%Y" } }
feature { name: "flag" type: BYTES bool_domain { true_value: "Y" false_value: "N" } }
feature { name: "ids" type: INT value_count { min: 0 } }
feature { name: "weights" type: FLOAT value_count { min: 0 } }
sparse_feature {
  name: "bag"
  index_feature { name: "ids" }
  value_feature { name: "weights" }
}
string_domain { name: "companies" value: "A { }" value: "B" }
default_environment: "TRAINING"
default_environment: "SERVING"
dataset_constraints { min_examples_count: 100 }
"""


@pytest.fixture
def imported(tmp_path):
    (tmp_path / "schema.pbtxt").write_text(SCHEMA)
    return read_schema(str(tmp_path / "schema.pbtxt"))


def test_types_shapes_bounds_and_domains_are_kept(imported):
    schema = from_text(to_text(imported.schema), where="again")
    shapes = {column.name: (column.type, column.shape) for column in schema.columns}
    assert shapes == {
        "company": ("bytes", ()), "fare": ("float32", ()), "day": ("int64", ()), "tips": ("float32", ()),
        "vector": ("float32", (4,)), "tags": ("bytes", (None,)), "old": ("int64", ()), "planned": ("int64", ()),
        "a_per_b": ("int64", ()), "when": ("bytes", ()), "flag": ("bytes", ()), "ids": ("int64", (None,)),
        "weights": ("float32", (None,)),
    }  # fmt: skip
    assert schema.ranges == {"fare": (0.0, None), "day": (1.0, 7.0)}
    assert schema.domains == {"company": ("A { }", "B"), "flag": ("Y", "N")}
    assert schema.required == ("company", "fare")
    assert imported.sparse >= {"company", "tips", "tags"} and "fare" not in imported.sparse
    assert imported.label == "tips" and imported.categories == ["day"] and imported.rename == {"a/b": "a_per_b"}
    assert imported.ignored == {
        "old": "deprecated", "planned": "lifecycle_stage: PLANNED", "ids": "a part of the sparse_feature 'bag'",
        "weights": "a part of the sparse_feature 'bag'",
    }  # fmt: skip


def test_limits_go_into_validation(imported):
    company = imported.validation["columns"]["company"]
    assert company["max_missing"] == pytest.approx(0.1) and company["max_unseen"] == pytest.approx(0.05)
    assert company["drift"] == {"l_infinity": 0.01} and imported.validation["min_train_rows"] == 100


def test_what_has_no_counterpart_is_listed_by_line(imported):
    lines = SCHEMA.splitlines()
    said = {(remark.line, remark.problem.partition(":")[0].partition(" is ")[0]) for remark in imported.remarks}
    at = {
        text: next(i for i, line in enumerate(lines, 1) if text in line)
        for text in ("min_count: 7", "drift_comp", '"a/b"')
    }
    at |= {
        text: next(i for i, line in enumerate(lines, 1) if text in line)
        for text in ("unique_con", "time_domain", "STRUCT", '"bag"')
    }
    assert said == {
        (at["min_count: 7"], "feature 'company'"),
        (at["drift_comp"], "feature 'company'"),
        (at['"a/b"'], "feature 'a/b'"),
        (at["unique_con"], "feature 'a/b'"),
        (at["time_domain"], "feature 'when'"),
        (at["STRUCT"], "feature 'nested'"),
        (at['"bag"'], "sparse_feature 'bag'"),
    }


def test_a_file_that_is_no_schema_is_an_error_with_its_line_and_a_newer_one_is_read(tmp_path):
    file = tmp_path / "s.pbtxt"
    file.write_text('feature {\n  name: "x"\n  type: WORDS\n}\n')
    with pytest.raises(DataError, match=r"s\.pbtxt:3: not a schema of TFX"):
        read_schema(str(file))
    file.write_text('feature {\n  name: "x"\n  type: INT\n  from_the_future: 3\n}\n')
    imported = read_schema(str(file))
    assert imported.schema.names() == ["x"] and imported.remarks[0].line == 4
    file.write_text("# nothing\n")
    with pytest.raises(ConfigError, match="names no feature"):
        read_schema(str(file))
    with pytest.raises(DataError, match="there is no such file"):
        read_schema(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (
            ["Split-train/data_tfrecord-00000-of-00001.gz", "Split-eval/data_tfrecord-00000-of-00001.gz"],
            "Split-{split}/*",
        ),
        (["7/Split-train/a.gz", "7/Split-eval/a.gz"], "7/Split-{split}/*"),
        (
            ["span-1/Split-train/a.gz", "span-1/Split-eval/a.gz", "span-2/Split-train/a.gz"],
            "span-{span}/Split-{split}/*",
        ),
        (["data_tfrecord-0.gz"], "*"),
    ],
)
def test_outputs_of_example_gen_are_recognized(tmp_path, files, path):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert examples_path(f"{tmp_path}/") == f"{tmp_path}/{path}"


def test_a_folder_that_is_none_or_holds_several_outputs_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="there is no such folder"):
        examples_path(str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="the folder is empty"):
        examples_path(str(tmp_path))
    for name in ("9", "10"):
        (tmp_path / name / "Split-train").mkdir(parents=True)
        (tmp_path / name / "Split-train" / "a.gz").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"several executions(.|\n)*newest: .*/10"):
        examples_path(str(tmp_path))
