"""headway import-tfx, as it is typed: examples as ExampleGen writes them, and the numbers that tf.Transform documents."""

import json

import numpy as np
import pytest
import yaml

SCHEMA = """\
feature { name: "fare" type: FLOAT presence { min_fraction: 1.0 } shape { dim { size: 1 } } float_domain { min: 0 } }
feature { name: "miles" type: FLOAT value_count { min: 1 max: 1 } }
feature { name: "hour" type: INT presence { min_fraction: 1.0 } shape { dim { size: 1 } } }
feature { name: "company" type: BYTES value_count { min: 1 max: 1 } }
feature { name: "tips" type: FLOAT presence { min_fraction: 1.0 } shape { dim { size: 1 } } not_in_environment: "SERVING" }
feature { name: "note" type: BYTES deprecated: true }
"""
TRANSFORM = """\
import tensorflow as tf
import tensorflow_transform as tft

_FILLED = ["miles"]


def preprocessing_fn(inputs):
    outputs = {"fare_z": tft.scale_to_z_score(inputs["fare"])}
    for key in _FILLED:
        outputs[key + "_z"] = tft.scale_to_z_score(tf.sparse.to_dense(inputs[key], default_value=0))
    outputs["fare_01"] = tft.scale_to_0_1(tf.math.log1p(inputs["fare"]))
    outputs["hour_bucket"] = tft.bucketize(inputs["hour"], 4)
    outputs["company_id"] = tft.compute_and_apply_vocabulary(inputs["company"], top_k=3, num_oov_buckets=2)
    outputs["gauss"] = tft.scale_to_gaussian(inputs["fare"])
    outputs["generous"] = tf.where(inputs["tips"] > 0.2 * inputs["fare"], 1, 0)
    return outputs
"""
ROWS = {"train": 400, "eval": 200}


@pytest.fixture(scope="module")
def rows():
    r = np.random.default_rng(3)
    tables = {}
    for split, count in ROWS.items():
        fare = r.exponential(10, count).astype(np.float32)
        hour = r.integers(0, 24, count)
        tables[split] = {
            "fare": fare,
            "miles": np.where(r.random(count) < 0.1, np.nan, fare / 3).astype(np.float32),
            "hour": hour,
            "company": r.choice(["a", "b", "b", "c", "c", "c", "d", ""], count),
            "tips": np.where(r.random(count) < hour / 24, fare * 0.3, 0).astype(np.float32),
            "note": np.array(["x"] * count),
        }
    return tables


@pytest.fixture(scope="module")
def tfx(tf, rows, tmp_path_factory):
    """The folder of a TFX pipeline: a schema, a transform, and gzipped TFRecords of tf.Examples."""
    folder = tmp_path_factory.mktemp("tfx")
    (folder / "schema.pbtxt").write_text(SCHEMA)
    (folder / "transform.py").write_text(TRANSFORM)
    for split, columns in rows.items():
        (folder / "examples" / "3" / f"Split-{split}").mkdir(parents=True)
        file = folder / "examples" / "3" / f"Split-{split}" / "data_tfrecord-00000-of-00001.gz"
        with tf.io.TFRecordWriter(str(file), tf.io.TFRecordOptions(compression_type="GZIP")) as writer:
            for i in range(ROWS[split]):
                example = tf.train.Example()
                for name, values in columns.items():
                    feature = example.features.feature[name]
                    if name in ("company", "note"):
                        feature.bytes_list.value.append(values[i].encode())
                    elif name == "hour":
                        feature.int64_list.value.append(int(values[i]))
                    elif not np.isnan(values[i]):  # CsvExampleGen leaves a missing value's feature empty
                        feature.float_list.value.append(float(values[i]))
                    else:
                        feature.SetInParent()
                writer.write(example.SerializeToString())
    return folder


def given(tfx, folder, label="tips > 0.2 * fare"):
    return [
        "import-tfx", "--schema", tfx / "schema.pbtxt", "--examples", tfx / "examples" / "3", "--transform",
        tfx / "transform.py", "--label", label, "--to", folder,
    ]  # fmt: skip


def test_what_was_not_translated_is_listed_and_nothing_is_overwritten(typed, tfx, tmp_path):
    told = json.loads(typed(*given(tfx, tmp_path / "p"), "--json", check=0).stdout)
    [remark] = told["not_translated"]
    assert remark["problem"] == "output 'gauss': tft.scale_to_gaussian has no counterpart"
    assert remark["line"] == TRANSFORM[: TRANSFORM.index("gauss")].count("\n") + 1
    pipeline = yaml.safe_load((tmp_path / "p" / "pipeline.yaml").read_text())
    assert pipeline["label"] == "tips > 0.2 * fare" and pipeline["split"]["mode"] == "path"
    assert pipeline["columns"]["fare"] == "standardize" and "note" not in pipeline["columns"]
    assert "scale_to_gaussian" in (tmp_path / "p" / "pipeline.yaml").read_text()
    assert "--force overwrites it" in typed(*given(tfx, tmp_path / "p"), check=2).stderr


def test_without_a_transform_columns_are_as_init_takes_them_and_the_schema_says_the_label(typed, tfx, tmp_path):
    told = typed(
        "import-tfx", "--schema", tfx / "schema.pbtxt", "--examples", tfx / "examples", "--to", tmp_path / "q", check=0
    )
    pipeline = yaml.safe_load((tmp_path / "q" / "pipeline.yaml").read_text())
    assert pipeline["label"] == "tips" and pipeline["columns"] == {"*": "auto", "note": "ignore"}
    assert "not the same" not in told.stdout


def test_a_label_that_preprocessing_fn_computes_is_an_error_that_says_how(typed, tfx, tmp_path):
    told = typed(*given(tfx, tmp_path / "p", "generous"), check=2).stderr
    assert "transform.py:15: the label 'generous', an output of preprocessing_fn" in told
    assert "tf.where(columns['tips'] > 0.2 * columns['fare'], 1, 0)" in told and "--label" in told


def test_without_a_label_it_is_an_error_that_names_columns(typed, tfx, tmp_path):
    told = typed("import-tfx", "--examples", tfx / "examples", "--to", tmp_path / "q", check=2).stderr
    assert "which column is to be predicted?" in told and "note, tips" in told and not (tmp_path / "q").exists()


@pytest.mark.long
def test_the_pipeline_runs_and_its_numbers_are_those_that_tft_documents(tf, typed, tfx, rows, tmp_path):
    folder = tmp_path / "p"
    typed(*given(tfx, folder), check=0)
    done = json.loads(typed("run", folder, "--json", "--set", "training.steps=60", check=0).stdout)
    assert done["state"] == "promoted"
    (model,) = folder.glob("store/models/p/1/saved_model")
    train, held = rows["train"], rows["eval"]
    transform = tf.saved_model.load(str(model)).signatures["transform"]
    specs = transform.structured_input_signature[1]
    absent = {"miles": np.isnan(held["miles"])}
    raw = {name: values for name, values in held.items() if name in specs}
    raw |= {f"{name}__present": ~absent.get(name, np.full(ROWS["eval"], False)) for name in raw}
    result = transform(**{name: tf.constant(values, specs[name].dtype) for name, values in raw.items()})
    given_ = {name: value.numpy() for name, value in result.items()}
    (layout,) = folder.glob("store/stages/transform/*/transform.json")
    fitted = json.loads(layout.read_text())["fitted"]
    # z-score: mean and variance of the train rows, of all values where missing ones are filled
    np.testing.assert_allclose(
        given_["fare"], (held["fare"] - train["fare"].mean()) / train["fare"].std(), rtol=2e-4, atol=1e-5
    )
    filled, later = np.nan_to_num(train["miles"]), np.nan_to_num(held["miles"])
    np.testing.assert_allclose(given_["miles_z"], (later - filled.mean()) / filled.std(), rtol=2e-4, atol=1e-5)
    log, later = np.log1p(train["fare"]), np.log1p(held["fare"])
    np.testing.assert_allclose(given_["fare_01"], (later - log.min()) / (log.max() - log.min()), rtol=2e-4, atol=1e-5)
    # buckets: a value on a boundary belongs to the upper one; tft's boundaries are within its epsilon of 0.01 of the ranks
    order = np.sort(train["hour"])
    for i in range(3):
        edge = held["hour"][given_["hour"] <= i].max()
        below, upto = (np.searchsorted(order, edge, side) / len(order) for side in ("left", "right"))
        assert below - 0.01 <= (i + 1) / 4 <= upto + np.mean(order == edge + 1) + 0.01
    # vocabulary: ids by falling frequency, the rest in num_oov_buckets by hash; an empty text is no word of tft's
    words, counts = np.unique(train["company"], return_counts=True)
    first = words[np.argsort(-counts, kind="stable")][:3]
    for place, word in enumerate(first):
        assert set(given_["company"][held["company"] == word]) == {place}
    assert set(given_["company"][~np.isin(held["company"], first)]) <= {3, 4}
    size = next(entry["size"] for entry in fitted if entry["column"]["name"] == "company")
    assert size == 3 + 2 + 1  # the last is of a missing value
