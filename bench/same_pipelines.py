"""The pipelines of same.py, and the data in their folders. Every file follows from a fixed seed and the number of rows."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from common import raw_flights

SPANS = ("2024-01", "2024-02", "2024-03", "2024-04")
COLUMNS = "id: passthrough, size: auto, temperature: auto, count: auto, place: auto"
ALL = f"{COLUMNS}, pressure: auto, visits: auto, text: auto, words: auto, points: auto, day: auto"
MLP = "{name: mlp, hidden: [16]}"


def table(rows: int) -> pa.Table:
    """Numbers and words, lists, nulls, keys, weights, a label of each kind that the columns tell with noise."""
    rng = np.random.default_rng(1)
    temperature, size = rng.normal(15, 8, rows), rng.gamma(2.0, 10.0, rows).round(4)
    place = rng.choice(["north", "south", "east", "west", "far away"], rows, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    score = temperature / 8 + size / 20 - 0.6 * (place == "north") + rng.normal(0, 0.7, rows)
    colours = ["red", "green", "blau", "schwärzer"]
    words = [list(rng.choice(colours, rng.integers(0, 5))) if row % 19 else None for row in range(rows)]
    points = [rng.normal(size=rng.integers(1, 4)).round(3).tolist() if row % 23 else None for row in range(rows)]
    holes = rng.random(rows) < 0.1
    return pa.table(
        {
            "id": np.arange(rows) * 7 + 3,
            "size": size,
            "temperature": temperature,
            "count": rng.poisson(3, rows),
            "place": place,
            "pressure": pa.array(rng.normal(1000, 10, rows) + score, mask=holes),
            "visits": pa.array(rng.integers(0, 200, rows), mask=holes[::-1]),
            "text": pa.array([f"zürich {row % 7}" if row % 3 else "東京" for row in range(rows)], mask=holes),
            "words": words,
            "points": points,
            "day": [f"2024-{row % 12 + 1:02}-{row % 28 + 1:02}" for row in range(rows)],
            "user": np.arange(rows) // 10,
            "customer": rng.integers(0, 150, rows),
            "weight": rng.integers(0, 4, rows) / 2,
            "yes": (score > np.median(score)).astype(int),
            "class": [["low", "mid", "high"][place] for place in np.digitize(score, [2, 3])],
            "number": pa.array(3 * score, mask=rng.random(rows) < 0.02),
        }
    )


def write_parquet(folder: Path, rows: int) -> None:
    pq.write_table(table(rows), folder / "data" / "table.parquet", row_group_size=512)


def write_flights(folder: Path, rows: int) -> None:
    """Flights as their CSV has them; some distances are no numbers, and some lines have a cell too many."""
    flights = raw_flights().slice(0, rows).drop_columns(["time_hour", "year"])
    text = io.BytesIO()
    flights = flights.append_column("id", pa.array(np.arange(flights.num_rows)))
    pacsv.write_csv(flights, text, pacsv.WriteOptions(quoting_style="none", quoting_header="none"))
    head, *lines = text.getvalue().decode().splitlines()
    for number in range(5, len(lines), 41):
        cells = lines[number].split(",")
        cells[head.split(",").index("distance")] = "far"
        lines[number] = ",".join(cells) + ("," if number % 2 else "")
    (folder / "data" / "flights.csv").write_text("\n".join([head, *lines, ""]))


def write_jsonl(folder: Path, rows: int) -> None:
    """Some lines have null where a value is missing, others lack the key; some have escapes."""
    with (folder / "data" / "rows.jsonl").open("w", encoding="utf-8") as file:
        for number, row in enumerate(table(rows).to_pylist()):
            said = {name: value for name, value in row.items() if value is not None or number % 2}
            file.write(json.dumps(said, ensure_ascii=number % 5 == 0) + "\n")


def write_images(folder: Path, rows: int) -> None:
    """scikit-learn's digits from 0 to 3 as PNG files, in a folder for each digit."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits(n_class=4)
    for number, (pixels, digit) in enumerate(zip(digits.images[:rows], digits.target[:rows], strict=True)):
        path = folder / "data" / str(digit) / f"{number:04}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray((pixels * 15).astype(np.uint8)).save(path)


def write_spans(folder: Path, rows: int) -> None:
    """A file for each month."""
    starts = [rows * part // len(SPANS) for part in range(len(SPANS) + 1)]
    for span, (start, end) in zip(SPANS, itertools.pairwise(starts), strict=True):
        pq.write_table(table(rows).slice(start, end - start), folder / "data" / f"{span}.parquet")


OWN = '''"""A model, a task and a training step of the user's."""

import keras
import numpy as np
import tensorflow as tf


def build(layout, options):
    inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in layout.inputs().items()}
    parts = [inputs["numeric"]]
    for place, column in enumerate(layout.categorical):
        parts.append(keras.layers.Embedding(column.size, 4)(inputs["categorical"][:, place]))
    x = keras.layers.Dense(options["width"], activation="tanh")(keras.layers.Concatenate()(parts))
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def error(label, prediction, columns):
    return float(np.average(np.abs(label - prediction), weights=columns["weight"]))


class Robust:
    label = "number"
    outputs = 1
    metrics = {"error": error}

    def loss(self, batch, outputs):
        return tf.math.log(tf.math.cosh(outputs[:, 0] - batch["label"]))

    def predictions(self, outputs):
        return outputs[:, 0]

    def train_step(self, model, batch):
        with tf.GradientTape() as tape:
            outputs = model({name: batch[name] for name in model.input}, training=True)
            loss = tf.reduce_mean(self.loss(batch, outputs))
        gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]

        @tf.function(autograph=True)
        def shorter():
            factor = tf.constant(1.0)
            while factor * tf.linalg.global_norm(gradients) > 1.0:
                factor /= 2
            return factor

        factor = shorter()
        return loss, [factor * gradient for gradient in gradients]
'''

FEATURES = '''"""Columns that the user computes."""

import tensorflow as tf


def preprocess(columns):
    warmth = tf.cast(columns["temperature"], tf.float32)
    if tf.reduce_any(warmth > 30.0):
        warmth = tf.minimum(warmth, 30.0)
    pair = tf.strings.join([columns["place"], tf.strings.as_string(columns["count"])], "-")
    return {"pair": pair, "warmth": warmth * tf.math.log1p(tf.cast(columns["size"], tf.float32))}
'''


@dataclass(frozen=True)
class Pipeline:
    """A folder with a pipeline.yaml and its data, and how it is run."""

    name: str
    label: str
    columns: str = COLUMNS
    more: str = ""
    """Further keys of pipeline.yaml."""
    model: str = MLP
    training: str = ""
    """Further keys of training."""
    format: str = "parquet"
    path: str = "data/table.parquet"
    write: Callable[[Path, int], None] = write_parquet
    """Writes the data of so many rows."""
    rows: int = 2000
    windows: tuple[tuple[str, ...], ...] = ((),)
    """The options of each run, one after the other."""
    rejects: bool = False
    """Whether rows are rejected, so that the quarantine is compared."""

    def make(self, folder: Path, store: str, rows: int | None = None) -> None:
        (folder / "data").mkdir(parents=True)
        (folder / "own.py").write_text(OWN)
        (folder / "features.py").write_text(FEATURES)
        self.write(folder, rows or self.rows)
        (folder / "pipeline.yaml").write_text(
            f"name: {self.name}\nstore: {store}\nsource: {{format: {self.format}, path: '{self.path}'}}\n"
            f"label: '{self.label}'\ncolumns: {{{self.columns}}}\nmodel: {self.model}\n"
            f"training: {{steps: 80, batch_size: 64{self.training}}}\n{self.more}\n"
        )


PIPELINES = (
    Pipeline(
        "csv",
        "arr_delay > 15",
        "id: passthrough, distance: {type: float, transform: standardize}, '*': auto",
        "validation: {max_quarantined: 0.1}",
        format="csv",
        path="data/flights.csv",
        write=write_flights,
        rows=3000,
        rejects=True,
    ),
    Pipeline("parquet", "number", ALL),
    Pipeline("jsonl", "class", ALL, format="jsonl", path="data/rows.jsonl", write=write_jsonl),
    Pipeline(
        "images",
        "label",
        "image: {image: {height: 8, width: 8, channels: 1}}",
        format="images",
        path="data",
        write=write_images,
        rows=500,
    ),
    Pipeline(
        "ranking",
        "yes",
        f"{COLUMNS}, user: {{role: group}}",
        "evaluation: {ndcg_at: 5}",
        training=", ranking: {share: 0.5}",
    ),
    Pipeline(
        "own",
        "number",
        more="task: own:Robust\ngate: {tolerance: {'own:error': 1%}}",
        model="{name: 'own:build', options: {width: 16}}",
    ),
    Pipeline(
        "preprocess",
        "yes",
        more="preprocess: features:preprocess",
    ),
    Pipeline(
        "time",
        "yes",
        more="split: {mode: time, eval_spans: 1}",
        path="data/{span}.parquet",
        write=write_spans,
        windows=(("--until", SPANS[2]), ()),
    ),
    Pipeline(
        "weights",
        "number",
        f"{COLUMNS}, customer: key, weight: {{role: weight}}",
        "split: {key: [customer], eval: 0.25, test: 0.1}",
    ),
    Pipeline("bucket", "yes"),
)
