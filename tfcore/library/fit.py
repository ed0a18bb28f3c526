"""Trains a model in one call on rows in memory or in files: the steps of a pipeline, without its files.

    trained = tfcore.fit(frame, label="arr_delay > 15")
    trained = tfcore.fit("flights.parquet", label="late", model={"name": "mlp", "hidden": [32]}, training={"epochs": 3})
    trained = tfcore.fit(rows, label="price", model=lambda layout: my_model(layout.inputs()))

The settings are those of pipeline.yaml, under the same names. The schema is inferred, rows are coerced and split, the transform
is fitted on the train rows, and a `TrainingSession` with the callbacks of the training stage trains: the same objects as in a
pipeline, and the same bits. Nothing in the process is changed: see `tfcore.deterministic_process`.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from headway.config import load
from headway.errors import ConfigError
from headway.monitor import Monitor
from headway.schema.columns import UNIT, UNIT_COLUMN
from headway.schema.notes import Note
from headway.stages.refs import Ref
from headway.tabular.label import LabelConfig
from headway.tabular.splits import SplitConfig
from headway.tasks.table import TaskOrAuto
from tfcore.data.source import Feed
from tfcore.distribute.placement import place
from tfcore.heads.weighted_labels import label_of
from tfcore.library.raw_rows import RawRows, Rows
from tfcore.library.stored_rows import EVAL, TRAIN, Configs, StoredRows
from tfcore.library.trained import Trained
from tfcore.models.build import build
from tfcore.models.config import BUILT_IN, ModelConfig
from tfcore.models.inputs import inputs_of
from tfcore.models.towers.item_index import ItemIndex
from tfcore.models.user_model import Builder, check_own_training
from tfcore.train.launch import chosen
from tfcore.train.request import Latest, TrainRequest
from tfcore.train.result import facts, history
from tfcore.train.session import TrainingSession
from tfcore.train.settings.auto import Facts, described, resolve
from tfcore.train.settings.config import TrainingConfig
from tfcore.train.stage import default_callbacks
from tfcore.transform.chain_check import check_all
from tfcore.transform.parameters import TransformParameters, fit_parameters

Model = str | Mapping[str, Any] | ModelConfig | Callable[..., Any]
"""A Keras model is callable, and so is the function that makes one."""


def fit(
    rows: Rows,
    *,
    label: str | Mapping[str, Any] | LabelConfig,
    model: Model = "mlp",
    training: str | Mapping[str, Any] | TrainingConfig = "auto",
    task: TaskOrAuto = "auto",
    columns: Configs = "auto",
    split: Mapping[str, Any] | SplitConfig | None = SplitConfig(),
    seed: int = 0,
    monitor: Monitor | None = None,
) -> Trained:
    """Train a model on rows, and measure it on those that the split keeps out.

    Args:
        rows: an Arrow table, a pandas frame, a dict of arrays by column (NumPy [rows] or [rows, n]; NaN is missing), the path
            of a file, folder or glob in a format that pipelines read, or a `headway.sources.config.SourceConfig`.
        label: a column, or an expression over columns such as "arr_delay > 15".
        model: a built-in model's name, or its config; a Keras model, which is trained as it is; or a function of the layout
            that returns one. `layout.inputs()` is {input: (shape of a row, dtype)}, and `layout.label` tells the task.
        training: config of the training; "auto", and each key left out: chosen by the number of train rows.
        task: "binary", "multiclass", "regression", "count", "quantiles"; "auto": what the labels look like.
        columns: settings of columns, such as {"fare": "ignore", "*": "auto"}; without "*" only those named are taken.
        split: which rows are kept out to measure on; None: none. The default keeps a fifth, by a hash of the rows.
        seed: of the model's weights and of the order of the rows.
        monitor: is told of the progress; `Monitor.stop` ends the training.

    Raises:
        ConfigError: a setting is wrong, or does not go with the rows.
        DataError: the rows cannot be read or learned from.
        Cancelled: `monitor` asked to stop.
    """
    monitor = monitor or Monitor()
    config, builder = _model(model)
    settings = load(TrainingConfig, {} if training == "auto" else training, where="training")
    given = None if split is None else load(SplitConfig, split, where="split")
    if given is not None and given.mode in ("time", "path"):
        what = "spans" if given.mode == "time" else "files of their own"
        raise ConfigError(f"rows of one table have no {what}", where="split.mode", fix="split by hash, or by a column")
    if ":" in task or (settings.loss is not None and ":" in settings.loss):
        problem = "a task or a loss of your own is a file beside a pipeline"
        raise ConfigError(problem, where="task" if ":" in task else "training.loss", fix="headway run trains with it")
    ingested = StoredRows.of(
        RawRows.of(rows), label=load(LabelConfig, label, where="label"), columns=columns, split=given, task=task
    )
    parameters, notes = _transform(ingested, task, config, settings.counted(config.item))
    size = Facts(
        rows=ingested.splits[TRAIN].num_rows,
        width=len(parameters.numeric) + len(parameters.categorical),
        task=parameters.label.task,
        images=any(fitted.pixels is not None for fitted in parameters.fitted),
    )
    settings, config = resolve(settings, config, size)
    if isinstance(model, keras.Model) and settings.precision not in ("float32", "tf32"):
        problem = f"a model that is made already cannot be trained in {settings.precision}"
        raise ConfigError(problem, where="training.precision", fix="give a function that makes it")
    latest = None if given is None else Latest.of(given)
    request = TrainRequest(
        transform=Ref[TransformParameters].of(parameters), model=config, training=settings, seed=seed, latest=latest
    )
    train, stored = ingested.splits[TRAIN], ingested.stored.columns
    stored += (UNIT_COLUMN,) if UNIT in train.column_names else ()
    session = _session(request, Feed.from_arrow(train, stored), builder, monitor)
    session.run()
    trained = Trained(
        _in_float32(session, builder),
        parameters,
        ingested.stored,
        result=facts(session),
        history=history(session),
        settings=described(settings, config),
        notes=(*ingested.notes, *map(str, notes)),
        rejected=ingested.rejected,
        index=_index(session),
    )
    if EVAL in ingested.splits:
        trained.metrics = trained.measured(ingested.splits[EVAL])
    return trained


def _transform(
    ingested: StoredRows, task: TaskOrAuto, model: ModelConfig, counted: str | None
) -> tuple[TransformParameters, list[Note]]:
    transforms = {name: config.column_transform() for name, config in ingested.configs.items()}
    check_all(ingested.stored.read, transforms, where="fit")
    columns, statistics = ingested.stored.columns, ingested.statistics[TRAIN]
    weighted = label_of(ingested.splits[TRAIN], columns)
    return fit_parameters(
        columns,
        transforms,
        statistics,
        task=task,
        bins=model.quantile_bins,
        recurring=model.recurring_numbers,
        counted=counted,
        weighted=weighted,
    )


def _session(request: TrainRequest, feed: Feed, builder: Builder | None, monitor: Monitor) -> TrainingSession:
    choice, gpus = chosen(request, feed=feed, log=monitor.log), len(tf.config.list_physical_devices("GPU"))
    callbacks = default_callbacks(request)
    return TrainingSession(
        request, monitor, callbacks, feed=feed, builder=builder, placed=lambda: place(choice, gpus=gpus)
    )


def _in_float32(session: TrainingSession, builder: Builder | None) -> keras.Model:
    """The trained model; of one that was trained in another precision, its weights in a model of float32."""
    request = session.request
    if request.training.precision in ("float32", "tf32"):
        return session.model
    model = build(request.model, request.transform, seed=request.seed, builder=builder)
    for variable, trained in zip(model.variables, session.model.variables, strict=True):
        variable.assign(trained.value)
    return model


def _index(session: TrainingSession) -> ItemIndex | None:
    """Of two towers, the items of the train rows."""
    items = session.data.items(session.request.model)
    return None if items is None else ItemIndex(session.model, session.request.model, session.request.transform, items)


def _model(model: Model) -> tuple[ModelConfig, Builder | None]:
    """The model's config, and the function that makes it where that is the caller's."""
    if isinstance(model, keras.Model):
        check_own_training(model, model.name)
        return ModelConfig(name=f"keras:{_word(model.name)}"), lambda layout, _: _as_given(model, layout)
    if callable(model):
        name = f"{_word(getattr(model, '__module__', ''))}:{_word(getattr(model, '__name__', ''))}"
        return ModelConfig(name=name), model if _parameters(model) > 1 else lambda layout, _: model(layout)
    if isinstance(model, str) and ":" in model:
        raise ConfigError(f"{model!r} names a function", where="model", fix="give the function itself")
    config = load(ModelConfig, {"name": model} if isinstance(model, str) else model, where="model")
    if config.user_defined:
        built_in = ", ".join(BUILT_IN)
        raise ConfigError(
            f"{config.name!r} names a function", where="model", fix=f"give it itself, or one of {built_in}"
        )
    return config, None


def _word(name: str) -> str:
    return re.sub(r"\W|^(?=\d)", "_", name).strip("_") or "model"


def _parameters(function: Callable[..., Any]) -> int:
    """The arguments that a function of (layout) or (layout, options) asks for."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a built-in that does not tell
        return 1
    return sum(parameter.default is parameter.empty for parameter in parameters)


def _as_given(model: keras.Model, layout: TransformParameters) -> keras.Model:
    """The caller's model with the layout's inputs: as it is, or called on those that it takes."""
    inputs, taken = inputs_of(layout), model.input if getattr(model, "inputs", None) else None
    if isinstance(taken, dict):
        if {*taken} == {*inputs}:
            return model
        if {*taken} <= {*inputs}:
            return keras.Model(inputs, model({name: inputs[name] for name in taken}), name=model.name)
    elif taken is not None or isinstance(model, keras.Sequential):
        used = [name for name, (shape, _) in layout.inputs().items() if shape != (0,)]
        if len(used) == 1:
            return keras.Model(inputs, model(inputs[used[0]]), name=model.name)
    else:
        return model  # a class of the caller's own: called to see what it takes
    shapes = ", ".join(f"{name} {dtype} {['rows', *shape]}" for name, (shape, dtype) in layout.inputs().items())
    raise ConfigError(
        f"the model takes {sorted(taken) if isinstance(taken, dict) else 'one tensor'}, and these rows make {shapes}",
        where=f"model {model.name!r}",
        fix="give keras.Model(inputs={name: keras.Input(...)}, ...), or a function of the layout that makes the model",
    )
