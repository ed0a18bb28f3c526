"""The signatures of an exported model: names, dtypes and shapes, derived from the schema without TensorFlow.

    signatures = signatures_of(columns, label)
    signatures["serving_default"].inputs       # (Tensor(name="dep_delay", dtype="float32", column="dep_delay"), ...)

The signatures, frozen by a golden test:

- `serving_default`: each raw column as a tensor of its own and nothing else. A column is [rows], a vector [rows, n], a
  list [rows, longest], of which all values count. NaN in a nullable float column is null (in a vector: a row that is
  all NaN); everything else is present.
- `serving_nullable`: the same with a companion input `c__present` (bool) for each nullable column `c`: false marks a null,
  whatever `c` holds there, and NaN is NaN. A companion may also be one value for all rows. Its default is [true]; TensorFlow
  Serving applies the default, and a Python caller has to pass it. A list has a companion `c__length` (int64), the number of a
  row's values that count: one number for all rows is allowed, and the default [-1] means all values.
- `serve_examples`: serialized tf.Examples, [rows], with a column's values under the column's name. An absent feature is null; a
  list feature that is present without values is an empty list.
- `classify`: decisions rather than probabilities. Binary: the input `threshold` (float32, one number, default 0.5 or
  the one that evaluation chose), and whether each row's probability reaches it. Multiclass: `top_k` (int32, one number,
  default 1; no more than there are classes) and that many classes a row, the likeliest first. A regression has no
  `classify`. The other inputs are those of `serving_nullable`.
- `embed` and `top_k`, of a two-tower model only. `embed` has the inputs of `serving_nullable` and gives a row's vectors
  `user` and `item`, float32 [rows, n]. `top_k` has the user's columns and `k` (int32, one number, default 10): it gives
  the k best items of the index of train items, `items` [rows, k], with `scores`, the products of the vectors. Its list input
  `exclude`, by default empty, has the items to leave out of a row's answer; items that are not in the index are ignored.
- `transform`: has the inputs of `serving_nullable`, and gives the model's inputs as outputs.

A column name that TensorFlow cannot use for a tensor gets one it can, with a part of its hash: "arr delay (min)" becomes
"arr_delay_min_" and six digits (`headway.schema.tensor_name`). The names stand in the export's `assets.extra/columns.json`.
"""

from collections.abc import Sequence
from typing import Literal

from headway.config import Frozen
from headway.errors import ConfigError
from headway.schema.columns import Column
from headway.schema.tensor_name import LENGTH, PRESENT, tensor_name
from headway.tasks.base import Output, Task
from headway.tasks.table import task_of

DEFAULT, NULLABLE = "serving_default", "serving_nullable"
EXCLUDE = "exclude"
"""The input of `top_k` with the items that are left out."""

DTYPES: dict[str, Literal["int64", "float32", "string"]] = {"int64": "int64", "float32": "float32", "bytes": "string"}


class Tensor(Frozen):
    """An input or output of a signature. `shape` has None for a size that varies, such as the rows of a batch."""

    name: str
    dtype: Literal["int64", "float32", "string", "bool", "int32", "uint8"]
    shape: tuple[int | None, ...] = (None,)
    column: str | None = None
    """The raw column whose values, presence or lengths the tensor holds; None: no column's."""
    default: bool | int | float | tuple[()] | None = None
    """The value of an input that a request leaves out, () for an empty list; None: the input is required."""


class Signature(Frozen):
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def raw_inputs(columns: Sequence[Column]) -> tuple[Tensor, ...]:
    """Returns the inputs of `serving_default`, in the order of the columns."""
    names = tensor_names(columns)
    return tuple(
        Tensor(name=names[c.name], dtype=DTYPES[c.type], shape=(None, *c.shape), column=c.name) for c in columns
    )


def nullable_inputs(columns: Sequence[Column]) -> tuple[Tensor, ...]:
    """Returns the inputs of `serving_nullable`: the inputs of `serving_default`, then the companions c__length and c__present."""
    names = tensor_names(columns)
    lengths = [
        Tensor(name=names[c.name] + LENGTH, dtype="int64", column=c.name, default=-1) for c in columns if c.is_list
    ]
    companions = [
        Tensor(name=names[c.name] + PRESENT, dtype="bool", column=c.name, default=True) for c in columns if c.nullable
    ]
    return (*raw_inputs(columns), *lengths, *companions)


def tensor_names(columns: Sequence[Column]) -> dict[str, str]:
    """Returns {column: its tensor's name}. A name is a letter, then letters, digits and underscores; no two are the same."""
    used: set[str] = set()
    names = {}
    # columns whose name can stay as it is have first claim to it
    for column in sorted(columns, key=lambda c: tensor_name(c.name) != c.name):
        base = name = tensor_name(column.name)
        number = 2
        while {name, name + PRESENT, name + LENGTH} & used:
            name, number = f"{base}_{number}", number + 1
        used |= (
            {name} | ({name + PRESENT} if column.nullable else set()) | ({name + LENGTH} if column.is_list else set())
        )
        names[column.name] = name
    return {column.name: names[column.name] for column in columns}


def output_names(names: Sequence[str]) -> dict[str, str]:
    """Returns {model input: the name of its tensor in the signature `transform`}."""
    return tensor_names([Column(name=name, type="float32", nullable=False) for name in names])


def _tensor(output: Output) -> Tensor:
    return Tensor(name=output.name, dtype=output.dtype, shape=(None, *output.shape))


def signatures_of(
    columns: Sequence[Column],
    task: Task | str,
    classes: Sequence[str | int] | None = None,
    transformed: Sequence[Tensor] = (),
    threshold: float | None = None,
    *,
    served: Sequence[Output] | None = None,
) -> dict[str, Signature]:
    """Returns {name: signature} of a model that takes these raw columns, without `embed` and `top_k`.

    Args:
        transformed: the outputs of the signature `transform`.
        threshold: the default of `classify`'s input `threshold`, for a binary model; None: 0.5.
        served: the model's outputs; None: the task's outputs.
    """
    task = task_of(task)
    inputs = nullable_inputs(columns)
    outputs = tuple(map(_tensor, task.outputs(classes or ()) if served is None else served))
    signatures = {
        DEFAULT: Signature(inputs=raw_inputs(columns), outputs=outputs),
        NULLABLE: Signature(inputs=inputs, outputs=outputs),
        "serve_examples": Signature(inputs=(Tensor(name="examples", dtype="string"),), outputs=outputs),
        "transform": Signature(inputs=inputs, outputs=tuple(transformed)),
    }
    if (classify := task.classify(classes or ())) is not None:
        default = classify.default if threshold is None or classify.argument.name != "threshold" else threshold
        argument = Tensor(name=classify.argument.name, dtype=classify.argument.dtype, shape=(), default=default)
        signatures["classify"] = Signature(inputs=(*inputs, argument), outputs=tuple(map(_tensor, classify.outputs)))
    return signatures


def describe_towers(columns: Sequence[Column], item: Sequence[str], width: int, texts: bool) -> dict[str, Signature]:
    """Returns the signatures `embed` and `top_k` of a two-tower model, by name.

    Args:
        item: the names of the item's columns.
        width: the length of a user's or an item's vector.
        texts: whether items are named by texts; else by integers.

    Raises:
        ConfigError: a column has the name of an input of `top_k`.
    """
    taken = set(tensor_names(columns).values())
    for name in ("k", EXCLUDE, EXCLUDE + LENGTH):
        if name in taken:
            problem = f"{name!r} is an input of the signature top_k, and a column is called so"
            raise ConfigError(problem, where="columns", fix="rename the column in the source")
    vectors = tuple(Tensor(name=side, dtype="float32", shape=(None, width)) for side in ("user", "item"))
    users = nullable_inputs([column for column in columns if column.name not in item])
    best = (
        Tensor(name="items", dtype="string" if texts else "int64", shape=(None, None)),
        Tensor(name="scores", dtype="float32", shape=(None, None)),
    )
    k = Tensor(name="k", dtype="int32", shape=(), default=10)
    items = best[0].dtype
    exclude = (
        Tensor(name=EXCLUDE, dtype=items, shape=(None, None), column=EXCLUDE, default=()),
        Tensor(name=EXCLUDE + LENGTH, dtype="int64", column=EXCLUDE, default=-1),
    )
    return {
        "embed": Signature(inputs=nullable_inputs(columns), outputs=vectors),
        "top_k": Signature(inputs=(*users, *exclude, k), outputs=best),
    }
