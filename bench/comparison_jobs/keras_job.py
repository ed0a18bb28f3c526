"""The job in plain Keras: train on months of flights, judge on the last one, replace the champion if it is not worse.

    python examples/flights/prepare.py
    python bench/comparison_jobs/keras_job.py examples/flights/data 2013-01 2013-02 2013-03 --store STORE

It reads every month each time, has no intervals, no checkpoint to resume from, and no check of the data.
"""

import argparse
import json
import shutil
from pathlib import Path

import keras
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import tensorflow as tf

NUMBERS, WORDS = ["dep_delay", "distance"], ["carrier", "origin", "dest"]


def read(folder, months):
    tables = [pq.read_table(Path(folder) / f"{month}.parquet") for month in months]
    columns = {name: [] for name in [*NUMBERS, *WORDS, "label"]}
    for part in tables:
        part = part.filter(pc.is_valid(part["arr_delay"]))
        columns["label"].append(pc.greater(part["arr_delay"], 15).to_numpy(zero_copy_only=False).astype("float32"))
        for name in NUMBERS:
            columns[name].append(part[name].to_numpy().astype("float32"))
        for name in WORDS:
            columns[name].append(part[name].to_numpy(zero_copy_only=False).astype(str))
    columns = {name: np.concatenate(parts) for name, parts in columns.items()}
    columns["distance"] = np.log1p(columns["distance"])
    label = columns.pop("label")
    return columns, label


def build(columns):
    inputs, features = {}, []
    for name in NUMBERS:
        inputs[name] = keras.Input((1,), name=name)
        scale = keras.layers.Normalization()
        scale.adapt(columns[name][:, None])
        features.append(scale(inputs[name]))
    for name in WORDS:
        inputs[name] = keras.Input((1,), name=name, dtype="string")
        lookup = keras.layers.StringLookup()
        lookup.adapt(columns[name])
        ids = keras.layers.Embedding(lookup.vocabulary_size(), 8)(lookup(inputs[name]))
        features.append(keras.layers.Flatten()(ids))
    hidden = keras.layers.Concatenate()(features)
    for units in (64, 32):
        hidden = keras.layers.Dense(units, "relu")(hidden)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile("adam", "binary_crossentropy", metrics=[keras.metrics.AUC(num_thresholds=2000, name="auc")])
    return model


def batches(columns, label, shuffle):
    data = tf.data.Dataset.from_tensor_slices(({n: v[:, None] for n, v in columns.items()}, label))
    if shuffle:
        data = data.shuffle(len(label), seed=0)
    return data.batch(512).prefetch(2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("months", nargs="+")
    parser.add_argument("--store", type=Path, required=True)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(0)
    columns, label = read(arguments.folder, arguments.months[:-1])
    judged = batches(*read(arguments.folder, arguments.months[-1:]), shuffle=False)
    model = build(columns)
    model.fit(batches(columns, label, shuffle=True), epochs=2, verbose=2)
    found = model.evaluate(judged, return_dict=True, verbose=0)
    pointer = arguments.store / "champion.json"
    champion = json.loads(pointer.read_text()) if pointer.exists() else None
    if champion:
        before = keras.saving.load_model(arguments.store / champion["path"]).evaluate(
            judged, return_dict=True, verbose=0
        )
        print(f"champion: {before}, candidate: {found}")
        if found["auc"] < before["auc"] - 0.005:
            print("kept the champion")
            return
    version = f"{champion['number'] + 1 if champion else 1}"
    arguments.store.mkdir(parents=True, exist_ok=True)
    model.save(arguments.store / f"{version}.keras")
    model.export(arguments.store / version, verbose=False)
    aside = pointer.with_suffix(".part")
    aside.write_text(json.dumps({"number": int(version), "path": f"{version}.keras", **found}))
    shutil.move(aside, pointer)
    print(f"promoted version {version}: {found}")


if __name__ == "__main__":
    main()
