"""The transform stage: fits the transform of each column on train statistics. Imports no TensorFlow.

    parameters = fit_parameters(columns, transforms, statistics, task="auto")
    parameters.numeric                # ("dep_delay", "dep_delay__missing", ...)
    parameters.categorical            # (IdInput(name="carrier", size=17), ...)

Each row counts as one in the train statistics; only labels count by the rows' weights (`tfcore.heads.weighted_labels`). If all
distinct values of a column were counted, fitted numbers are exact, also behind other operations: each distinct value goes through
these. Else only moments and extremes of the raw column are exact, and an operation that follows another one is fitted on 1,001
quantiles.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headway.config import Result
from headway.errors import ConfigError, DataError
from headway.monitor import Monitor
from headway.schema.calendar_days import CYCLES, Part, parts_of
from headway.schema.columns import LABEL, Column, column_yaml, suggest
from headway.schema.notes import Note
from headway.schema_inference.identifiers import MANY_WORDS, MOSTLY
from headway.stages.refs import Examples, Ref
from headway.stages.stage_class import Key, Stage
from headway.statistics.column_statistics import ColumnStatistics
from headway.statistics.split_statistics import SplitStatistics
from headway.statistics.summary import WindowStatistics
from headway.tasks.table import TaskOrAuto
from headway.user_code.files import digest
from tfcore.heads.label_parameters import fit_label
from tfcore.heads.weighted_labels import WeightedLabel, read_label
from tfcore.transform.config import (
    Bucketize,
    Clip,
    ColumnTransform,
    DateParts,
    DerivedParameters,
    Hash,
    Image,
    MinMax,
    Op,
    Standardize,
    Vocabulary,
    check_chain,
    check_settings,
)
from tfcore.transform.parameters import (
    VERSION,
    ColumnPart,
    Fitted,
    FittedOp,
    TransformParameters,
    apply_numeric,
    size_of,
    word_text,
)

FILE = "transform.json"
AUTO_TOP_K = 10_000
"""The most values in the automatic vocabulary of text; also the hash buckets for integers with too many values to count."""
LEAST_COUNT = 2
"""The least number of train rows with a value for which a vocabulary holds the value, unless min_count says otherwise."""
AUTO_MOST_WIDTH = 64
"""The number of values to which lists of categories are cut, unless max_length says otherwise."""
LEAST_BIN = 0.001
"""The least width of a bin, as a share of the standard deviation. In a narrower bin a rounding error would be seen in
predictions."""
_LOOKED_AT = 1000
_WIDEST = 8e37
"""The largest standard deviation that is allowed. The reciprocal of a larger one is below 2^-126, the least normal float32, and
compiled code makes it 0."""
_NARROWEST = float(np.finfo(np.float32).tiny)
"""The smallest standard deviation to divide by: TensorFlow takes a smaller number for 0, and dividing by 0 gives no number."""


class Transformed(Result):
    """The result of the transform stage: the fitted parameters, and notes on columns left out or lists cut."""

    parameters: TransformParameters
    notes: tuple[Note, ...] = ()


class TransformRequest(Stage[Transformed]):
    """The request of the transform stage: the stored columns, their config, and the train statistics."""

    name, version, runs = "transform", VERSION, "tfcore.transform.fit:fit"
    transforms: Annotated[dict[str, ColumnTransform], Key("config")]
    columns: Annotated[tuple[Column, ...], Key()]
    task: Annotated[TaskOrAuto, Key(always=True)] = "auto"
    task_file: Annotated[Path | None, Key(of=digest)] = None
    """The user's Python file that defines the task; None for a built-in task."""
    statistics: Annotated[Ref[WindowStatistics], Key("inputs", "statistics")]
    """The statistics of the train split."""
    weighted: Annotated[tuple[Examples, ...], Key("inputs", "weighted")] = ()
    """The train rows, from which the weights of labels are read; empty if rows have no weights."""
    bins: Annotated[int, Key()] = 0
    """The number of equally full bins of each numeric column, for models that embed numbers; 0: no bins."""
    counted: Annotated[str | None, Key()] = None
    """The column whose vocabulary also keeps the train rows of each value, to correct for frequent values; None: no column."""
    item: Annotated[str | None, Key()] = None
    """The column of a two-tower model's items: each item of the train rows gets an id. None: no such column."""
    derived_statistics: Annotated[Ref[Any] | None, Key("inputs", "analysed")] = None
    derived_transforms: Annotated[dict[str, ColumnTransform] | None, Key("derived")] = None
    derived: DerivedParameters | None = None


def fit(request: TransformRequest, out: Path, monitor: Monitor) -> dict[str, Any]:
    """Run the stage: write out/transform.json; return {"parameters": ..., "notes": [a `Note` each]}."""
    statistics, columns, transforms = SplitStatistics.load(request.statistics.file), request.columns, request.transforms
    if request.derived is not None and request.derived_statistics is not None:
        statistics.columns |= SplitStatistics.load(request.derived_statistics.file).columns
        own = request.derived_transforms or {}
        columns, transforms = (*columns, *request.derived.columns), transforms | own
        names = [column.name for column in request.derived.columns]
        for name in own:
            if name not in names:
                raise ConfigError(
                    f"neither the files nor {request.derived.function} give a column {name!r}",
                    where="columns",
                    fix=suggest(name, [*names, *(column.name for column in request.columns)]),
                )
    parameters, notes = fit_parameters(
        columns,
        transforms,
        statistics,
        task=request.task,
        bins=request.bins,
        counted=request.counted,
        item=request.item,
        weighted=read_label(request.weighted),
    )
    parameters = parameters.model_copy(update={"derived": request.derived})
    (out / FILE).write_text(parameters.model_dump_json(indent=1) + "\n", encoding="utf-8")
    for note in notes:
        monitor.log(str(note))
    written = [note.model_dump(mode="json") for note in notes]
    return {"parameters": parameters.model_dump(mode="json"), "notes": written}


def fit_parameters(
    columns: Sequence[Column],
    transforms: Mapping[str, ColumnTransform],
    statistics: SplitStatistics,
    *,
    task: TaskOrAuto = "auto",
    bins: int = 0,
    counted: str | None = None,
    item: str | None = None,
    weighted: WeightedLabel | None = None,
) -> tuple[TransformParameters, list[Note]]:
    """Fit the parameters of columns and label. Returns also notes on columns that are left out or whose lists are cut.

    Args:
        bins: the number of equally full bins of each numeric column. The parameters then have the edges of the bins, and
            integers of few values stay numbers. 0: no bins, and integers of few values are categories.
        counted: the column whose vocabulary is to have the number of train rows of each value; None: no column.
        item: the column whose vocabulary is to have every value, unless its config says otherwise; None: no column.
        weighted: the weighted statistics of the label; None if rows have no weights.

    Raises:
        ConfigError: an operation or the task does not go with its column, or two inputs have one name.
        DataError: no train rows, no feature is left, or the label has fewer than two values.
    """
    if not statistics.rows:
        raise DataError("the train split has no rows", where="split", fix="widen the window, or hold out less")
    fitted, notes = list[Fitted](), list[Note]()
    parts: list[ColumnPart] = []
    for column in columns:
        if not column.is_feature:
            continue
        config, stats = transforms.get(column.name, ColumnTransform()), statistics.columns[column.name]
        check_settings(column, config, where=f"columns.{column.name}")
        if column.name == item:
            config = _with_every_value(column, config, stats)
        if (dates := _date_parts(column, config, stats)) is not None:
            fitted_parts = [_fit_part(column, part, config, stats, bins) for part in dates]
            parts += [part for part, _ in fitted_parts]
            fitted += [fitted_column for _, fitted_column in fitted_parts]
            continue
        fitted_column, note = _fit_column(column, config, stats, bins)
        if note:
            notes.append(note)
        if fitted_column is not None and column.name == counted and fitted_column.ops[0].op == "vocabulary":
            fitted_column = fitted_column.with_counts(dict(stats.top()), stats.rows)
        if fitted_column is not None:
            fitted.append(fitted_column)
    if not fitted:
        raise DataError(
            "no feature is left to learn from",
            where="columns",
            fix="; ".join(["name feature columns", *map(str, notes)]),
        )
    label = fit_label(statistics.columns[LABEL], task, weighted=weighted)
    parameters = TransformParameters(rows=statistics.rows, fitted=tuple(fitted), label=label, parts=tuple(parts))
    names = [*parameters.numeric, *(c.name for c in parameters.categorical), *(c.name for c in parameters.lists)]
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        raise ConfigError(f"two inputs are called {twice[0]!r}", where="columns", fix="rename the raw column")
    return parameters, notes


def _fit_column(
    column: Column, config: ColumnTransform, stats: ColumnStatistics, bins: int
) -> tuple[Fitted | None, Note | None]:
    """Returns a column's fitted transform (None if it is left out), and a note if it is left out or its lists are cut."""
    chain = config.transform

    def left_out(why: str) -> tuple[None, Note]:
        return None, Note(column=column.name, text=why, left_out=True)

    if chain == "auto":
        if not stats.present:
            return left_out("no train row has a value")
        if column.shape and not stats.values:
            return left_out("every list in the train rows is empty")
        if stats.distinct == 1 and not stats.missing and not column.is_list:
            return left_out("it is the same in every train row")
        if column.type == "bytes" and not stats.complete:
            image = "an image needs its size: {image: {height: 96, width: 96}}"
            return left_out(f"it holds values of up to {stats.longest:,} bytes; {image}")
        looks = column.type == "bytes" and stats.distinct > MANY_WORDS and stats.distinct > stats.values * MOSTLY
        if not column.shape and (column.meaning == "identifier" or looks):
            why = f"{stats.distinct:,} distinct values in {stats.values:,} look like an identifier; "
            if (read := _as_init_reads_it(column, stats)) is not None:
                return left_out(f"{why}if they are what headway init takes them for, say so ({read})")
            return left_out(why + f"give it a transform to use it ({_use(column)})")
        chain = (_automatic(column, stats, bins),)
    where = f"columns.{column.name}"
    check_chain(column, chain, where=where)
    if isinstance(chain[-1], Image):
        return _image(column, chain[-1], config, stats), None
    ops: list[FittedOp] = []
    sample = TrainSample(stats) if column.type != "bytes" else None
    for op in chain:
        done = _fit_op(op, column, stats, sample, first=not ops, where=where)
        if sample is not None and op.op not in ("vocabulary", "hash", "bucketize"):
            sample.apply(done)
        ops.append(done)
    size = size_of(ops[-1], column)
    if size is not None:
        if not column.shape:
            return Fitted(column=column, ops=tuple(ops), size=size), None
        longest = max(1, stats.longest_list or 1)
        width = min(longest, config.max_length or AUTO_MOST_WIDTH)
        cut = None
        if width < longest:
            text = f"the longest list has {longest} values, and the model sees the first {width}; max_length sets another bound"
            cut = Note(column=column.name, text=text)
        return Fitted(column=column, ops=tuple(ops), size=size, width=width), cut
    if column.is_list and not config.pool:
        raise ConfigError("the model would see nothing of the list", where=f"{where}.pool", fix="name a figure: mean")
    return (
        Fitted(
            column=column,
            ops=tuple(ops),
            fill=_fill(config, stats),
            edges=_edges(sample, bins),
            pool=config.pool if column.is_list else (),
            longest=max(1, stats.longest_list or 1) if column.is_list else None,
            missing_indicator=config.impute.indicator and stats.missing > 0,
            nan_indicator=config.impute.indicator and stats.nan + stats.infinite > 0,
        ),
        None,
    )


def _use(column: Column) -> str:
    """Returns the config line that makes an identifier column a feature."""
    transform = "{hash: {buckets: 1000}}" if column.type == "bytes" else "standardize"
    return column_yaml(column.name, transform)


def _as_init_reads_it(column: Column, stats: ColumnStatistics) -> str | None:
    """Returns the config line by which a column is read as `headway init` reads images and lists in text, without a transform;
    None for any other column."""
    if column.type != "bytes" or not stats.complete:
        return None
    from headway.first_pipeline.image_size import image_size  # Pillow
    from headway.first_pipeline.text_lists import list_config

    values = pa.array([value for value, _ in stats.top(_LOOKED_AT)], pa.binary())
    if (size := image_size(values)) is not None:
        height, width, channels = size
        return column_yaml(column.name, f"{{image: {{height: {height}, width: {width}, channels: {channels}}}}}")
    if (listed := list_config(values)) is None:
        return None
    return column_yaml(column.name, f'{{shape: list, separator: "{listed["separator"]}"}}')


def _date_parts(column: Column, config: ColumnTransform, stats: ColumnStatistics) -> tuple[Part, ...] | None:
    """Returns the parts of a date that the model sees; None if the model does not read the column as a date."""
    if config.transform != "auto":
        op = config.transform[-1]
        if not isinstance(op, DateParts):
            return None
        check_chain(column, config.transform, where=f"columns.{column.name}")
        return op.parts
    if column.temporal is None or column.shape or not stats.present or (stats.distinct == 1 and not stats.missing):
        return None
    days = TrainSample(stats).values
    auto: tuple[Part, ...] = ("year", "month", "weekday")
    auto = auto if column.temporal == "date" else (*auto, "hour")
    varying = tuple(part for part in auto if len(np.unique(parts_of(days, column.temporal, part))) > 1)
    return varying or ("elapsed",)


def _fit_part(
    column: Column, part: Part, config: ColumnTransform, stats: ColumnStatistics, bins: int
) -> tuple[ColumnPart, Fitted]:
    """Fit one part of a date. A cyclic part, such as the weekday, becomes a category of all values that it can have. Any other
    part, such as the year, is standardized."""
    name = f"{column.name}__{part}"
    own = Column(name=name, type="int64", nullable=column.nullable)
    date_part = ColumnPart(name=name, source=column, part=part)
    if part in CYCLES:
        low, high = CYCLES[part]
        op = FittedOp(op="vocabulary", integers=tuple(range(low, high + 1)), oov_buckets=1)
        return date_part, Fitted(column=own, ops=(op,), size=size_of(op, own))
    sample = TrainSample(stats)
    assert column.temporal is not None
    sample.values = parts_of(sample.values, column.temporal, part).astype(np.float64)
    mean, std = sample.moments()
    strategy = config.impute.strategy
    fill = config.impute.value if strategy == "value" else 0.0 if strategy == "zero" else mean
    fill = float(sample.quantile([0.5])[0]) if strategy == "median" and not sample.empty else fill
    standardize = FittedOp(op="standardize", mean=mean, std=std or 1.0)
    sample.apply(standardize)
    return date_part, Fitted(
        column=own,
        ops=(standardize,),
        fill=fill,
        edges=_edges(sample, bins),
        missing_indicator=config.impute.indicator and stats.missing > 0,
    )


def _image(column: Column, op: Image, config: ColumnTransform, stats: ColumnStatistics) -> Fitted:
    pixels = (op.height, op.width, op.channels)
    # two files of one size, which is just that of the pixels: too unlikely to be one
    same = stats.distinct > 1 and stats.shortest == stats.longest == math.prod(pixels)
    return Fitted(
        column=column,
        ops=(FittedOp(op="image", pixels=pixels, raw=op.encoding == "raw" or (op.encoding == "auto" and same)),),
        missing_indicator=config.impute.indicator and stats.missing > 0,
    )


def _with_every_value(column: Column, config: ColumnTransform, stats: ColumnStatistics) -> ColumnTransform:
    """Returns the config with a vocabulary of every value; a top_k that the config names still limits it. Returns the config
    unchanged if the column gets no vocabulary, or if the config has a min_count."""
    chain = (_automatic(column, stats, 0),) if config.transform == "auto" else config.transform
    last = chain[-1]
    if not isinstance(last, Vocabulary) or last.min_count is not None:
        return config
    top_k = None if config.transform == "auto" else last.top_k
    whole = last.model_copy(update={"min_count": 1, "top_k": top_k})
    return config.model_copy(update={"transform": (whole,)})


def _automatic(column: Column, stats: ColumnStatistics, bins: int) -> Op:
    if column.type == "bytes":
        return Vocabulary(top_k=AUTO_TOP_K)
    if column.names_things:
        return Vocabulary(top_k=AUTO_TOP_K) if stats.complete else Hash(buckets=AUTO_TOP_K)
    if column.length is not None:  # a place in a vector means something, and ids would lose it
        return Standardize()
    if column.type == "int64" and stats.is_few_values and not bins:
        return Vocabulary()
    return Standardize()


_QUANTILES = 1001
_RANKS = ((np.arange(_QUANTILES) + 0.5) / _QUANTILES).tolist()


class TrainSample:
    """A column's finite train values with their weights, to which fitted operations are applied one by one.

        sample = TrainSample(statistics)
        sample.apply(FittedOp(op="log"))
        sample.moments(), sample.quantile([0.5])

    `values` are all distinct values, weighted by their counts, where these were counted; else 1,001 quantiles.
    """

    def __init__(self, stats: ColumnStatistics):
        self.empty = not stats.finite
        self.values, self.weights = np.zeros(0), np.ones(0)
        if stats.numbers is not None:
            values, counts = stats.numbers.sorted()
            self.values, self.weights = values.astype(np.float64), counts.astype(np.float64)
        elif not self.empty:
            self.values, self.weights = stats.quantile(_RANKS), np.ones(_QUANTILES)

    def apply(self, op: FittedOp) -> None:
        self.values = apply_numeric(op, self.values)

    @property
    def is_constant(self) -> bool:
        """Whether all finite values, after the operations applied so far, are equal, or there are none."""
        return self.empty or bool(self.values.min() == self.values.max())

    def moments(self) -> tuple[float, float]:
        if self.empty:
            return 0.0, 0.0
        mean = float(np.average(self.values, weights=self.weights))
        return mean, float(np.sqrt(np.average((self.values - mean) ** 2, weights=self.weights)))

    def bucket_boundaries(self, parts: int) -> list[float]:
        """Returns the boundaries of at most `parts` buckets of about equally many rows: where each bucket but the first begins.

        No bucket is empty. The rows of one value stay in one bucket. A frequent value has a bucket of its own, and the others
        share the rest. If there are at most `parts` distinct values, each value has its own bucket."""
        values, places = np.unique(self.values, return_inverse=True)
        ends = np.cumsum(np.bincount(places, weights=self.weights))
        begins, at, before = list[float](), 0, 0.0
        for left in range(min(parts, len(values)), 1, -1):
            wanted = before + (ends[-1] - before) / left
            place = int(np.searchsorted(ends, wanted))
            nearer = place + (not place or ends[place] - wanted <= wanted - ends[place - 1])
            at = min(max(nearer, at + 1), len(values) - left + 1)  # a value at least is left for each later part
            before = ends[at - 1]
            begins.append(float(values[at]))
        return begins

    def quantile(self, at: Sequence[float]) -> NDArray[np.float64]:
        order = np.argsort(self.values, kind="stable")
        ends = np.cumsum(self.weights[order])
        places = np.searchsorted(ends, np.asarray(at) * ends[-1] - 1e-9)
        return self.values[order][np.minimum(places, len(order) - 1)]


def _fit_op(
    op: Op, column: Column, stats: ColumnStatistics, sample: TrainSample | None, *, first: bool, where: str
) -> FittedOp:
    if isinstance(op, Vocabulary):
        return _vocabulary(op, column, stats, where)
    if isinstance(op, Hash):
        return FittedOp(op="hash", buckets=op.buckets)
    assert sample is not None
    empty = sample.empty
    if isinstance(op, Standardize):
        mean, std = (stats.mean, stats.std) if first else sample.moments()
        if std > _WIDEST:
            most = max(stats.maximum or 0, -(stats.minimum or 0))
            fix = f"clip it first, [{{clip: {{min: -1e30, max: 1e30}}}}, standardize], or leave {column.name!r} out"
            raise DataError(f"values of up to {most:.3g} are too large to be divided as float32", where=where, fix=fix)
        # the deviation of equal values is a rounding error, and dividing by it would blow up what serving sends
        return FittedOp(op="standardize", mean=mean, std=1.0 if sample.is_constant or std < _NARROWEST else std)
    if isinstance(op, MinMax):
        low, high = (0.0, 1.0) if empty else (float(sample.values.min()), float(sample.values.max()))
        if first and stats.minimum is not None and stats.maximum is not None:
            low, high = float(stats.minimum), float(stats.maximum)
        return FittedOp(
            op="min_max", minimum=low, maximum=high if high - low >= _NARROWEST else low + 1.0, low=op.low, high=op.high
        )
    if isinstance(op, Clip):
        low_, high_ = op.min, op.max
        if op.quantiles is not None and not empty:
            low_, high_ = (float(x) for x in sample.quantile(op.quantiles))
        return FittedOp(op="clip", minimum=low_, maximum=high_)
    if isinstance(op, Bucketize):
        if op.boundaries is not None:
            return FittedOp(op="bucketize", boundaries=op.boundaries)
        return FittedOp(op="bucketize", boundaries=() if empty else tuple(sample.bucket_boundaries(op.buckets or 10)))
    return FittedOp(op=op.op)


def _vocabulary(op: Vocabulary, column: Column, stats: ColumnStatistics, where: str) -> FittedOp:
    if not stats.complete and column.type == "bytes":
        raise ConfigError(
            f"the column holds values of up to {stats.longest:,} bytes, which is too long for words",
            where=where,
            fix="use hash, image, or leave it out",
        )
    if not stats.complete:
        raise ConfigError(
            f"the column has about {stats.distinct:,} distinct values, too many integers to count them all",
            where=where,
            fix="use hash or standardize, or read it as text: type: string",
        )
    counts = stats.top(op.top_k, op.min_count or LEAST_COUNT)
    if column.type == "int64":
        return FittedOp(op="vocabulary", integers=tuple(value for value, _ in counts), oov_buckets=op.oov_buckets)
    words = tuple(word_text(value) for value, _ in counts)
    return FittedOp(op="vocabulary", words=words, oov_buckets=op.oov_buckets)


def _edges(sample: TrainSample | None, bins: int) -> tuple[float, ...]:
    """Returns the edges of `bins` equally full bins of the train values, after the column's operations. There are fewer edges if
    values recur or lie close together, and none if all values are the same."""
    if not bins or sample is None or sample.empty:
        return ()
    least = max(LEAST_BIN * sample.moments()[1], _NARROWEST)
    edges: list[float] = []
    for edge in sample.quantile([place / bins for place in range(bins + 1)]).astype(np.float32).tolist():
        if not edges or edge - edges[-1] > least:
            edges.append(edge)
    return tuple(edges) if len(edges) > 1 else ()


def _fill(config: ColumnTransform, stats: ColumnStatistics) -> float:
    strategy = config.impute.strategy
    if strategy == "value":
        assert config.impute.value is not None
        return config.impute.value
    if strategy == "zero" or not stats.finite:
        return 0.0
    return stats.mean if strategy == "mean" else float(stats.quantile([0.5])[0])
