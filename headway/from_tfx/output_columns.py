"""What the outputs of a preprocessing_fn are as `columns:` of pipeline.yaml, and as columns of a preprocess function.

translation = translate(outputs, label=frozenset({"tips"}), sole=True, taken={"tips", "fare"})
translation.columns            # {"fare": "standardize"}
translation.derived            # {"log_miles_xf": Derived("tf.math.log1p(columns['miles'])", "standardize")}
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from headway.from_tfx.preprocessing_fn import Outputs
from headway.from_tfx.remarks import Remark
from headway.from_tfx.symbols import (
    SYMBOLS,
    Analyzed,
    Call,
    Filled,
    Operation,
    Raw,
    Ref,
    Unknown,
    leaves,
    raws_of,
    source_of,
)
from headway.schema.columns import LABEL
from headway.schema.tensor_name import PRESENT

_CATEGORIES = frozenset({"vocabulary", "hash"})


@dataclass(frozen=True)
class Derived:
    """A column that a preprocess function computes."""

    source: str
    """Python, of `columns`."""
    config: Any
    """As `preprocess.columns` has it."""
    reads: frozenset[str]
    """The columns that it is computed from."""
    present: tuple[str, ...] = ()
    """The columns that have to be there for it to be."""


@dataclass
class Translation:
    columns: dict[str, Any] = field(default_factory=dict)
    """By raw column."""
    why: dict[str, str] = field(default_factory=dict)
    """The output that a column was made from, by raw column."""
    derived: dict[str, Derived] = field(default_factory=dict)
    remarks: list[Remark] = field(default_factory=list)


def translate(outputs: Outputs, *, label: frozenset[str], sole: bool, taken: Collection[str]) -> Translation:
    """The outputs as columns of Headway.

    Args:
        taken: the names of the raw columns, which no computed one may have.
        label: the raw columns that the label is made of.
        sole: whether the label is one raw column, so that whatever is made of it is the label again.
    """
    done = Translation()
    for key, value in outputs.values.items():
        place = outputs.places[key]
        if isinstance(value, Unknown):
            said = value.remark
            done.remarks.append(Remark(said.file, said.line, f"output {key!r}: {said.problem}", said.fix))
            continue
        if not isinstance(value, (*SYMBOLS, Analyzed)):
            done.remarks.append(Remark(*place, f"output {key!r} is not a column that could be read"))
            continue
        names = {raw.name for raw in raws_of(value)}
        if not names:
            done.remarks.append(Remark(*place, f"output {key!r} is the same in every row", "it teaches nothing"))
        elif label and (names & label if sole else label <= names):
            continue  # the label itself
        else:
            _output(key, value, done, place, taken)
    return done


def _output(key: str, value: Any, done: Translation, place: tuple[str, int], taken: Collection[str]) -> None:
    of, op = (value.of, value.op) if isinstance(value, Analyzed) else (value, None)
    notes = list(value.remarks) if isinstance(value, Analyzed) else []
    name = op if isinstance(op, str) else next(iter(op)) if op else None
    of, before = _chain(of, name)
    if isinstance(of, Filled) and (name in _CATEGORIES or of.of.required):
        if not of.of.required:
            given = repr(of.default)
            notes.append(f"a missing value has an id of its own here, where TFX takes it for {given}")
        of = of.of
    if op is None and isinstance(of, Raw | Filled):
        op = _passed(of, notes)
    if isinstance(of, Raw) and of.name not in done.columns:
        done.columns[of.name] = [*before, op] if before else op
        done.why[of.name] = key
    else:
        whole = value.of if isinstance(value, Analyzed) else value
        _derive(_free(key, {*taken, *done.derived}), whole if before else of, op, done)
    done.remarks += [Remark(*place, f"output {key!r}: {note}") for note in notes]


def _free(key: str, taken: Collection[str]) -> str:
    """The name of a computed column: the output's, unless it is taken or cannot be one."""
    name = key.replace("/", "_per_")
    while name in taken or name in ("", LABEL) or name.endswith(PRESENT):
        name = f"{name}_computed".lstrip("_")
    return name


def _passed(of: Raw | Filled, notes: list[str]) -> Any:
    """What becomes of a column that is passed on as it is."""
    raw = of.of if isinstance(of, Filled) else of
    if raw.type == "bytes":
        notes.append("the text goes on to the model there; here it gets a vocabulary")
        return "vocabulary"
    if raw.listed:
        return "auto"
    if raw.category:
        return "vocabulary"
    if raw.type == "int64":
        notes.append("integers are taken as numbers; if they name things, write vocabulary")
    return "identity"


def _chain(value: Any, op: str | None) -> tuple[Any, list[Any]]:
    """(the column that is left, operations before the last) where those of Headway do the same."""
    before: list[Any] = []
    while isinstance(value, Call):
        name, args = value.function, value.args
        if name == "tf.cast" and len(args) > 1 and _same_numbers(args[0], args[1]):
            value = args[0]
        elif op == "vocabulary" and name in ("tf.as_string", "tf.strings.as_string") and _is_integer(args[0]):
            value = args[0]  # the words of integers are the integers
        elif name == "tf.math.log1p" and op not in _CATEGORIES and _never_negative(args[0]):
            before.insert(0, "log")
            value = args[0]
        elif name == "tf.clip_by_value" and len(args) == 3 and all(isinstance(end, int | float) for end in args[1:]):
            if op in _CATEGORIES:
                break
            before.insert(0, {"clip": {"min": args[1], "max": args[2]}})
            value = args[0]
        else:
            break
    return value, before


def _same_numbers(value: Any, kind: Any) -> bool:
    raw = value.of if isinstance(value, Filled) else value
    if not isinstance(kind, Ref):
        return False
    if isinstance(raw, Raw):
        floats = kind.path in ("tf.float32", "tf.float64")
        return raw.type != "bytes" and (floats or (raw.type == "int64" and kind.path in ("tf.int32", "tf.int64")))
    return kind.path == "tf.float32" and isinstance(value, Call | Operation) and not _is_text(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, Raw) and value.type == "int64"


def _never_negative(value: Any) -> bool:
    """Whether the schema lets no value below 0 through: there log1p is what Headway calls log."""
    raw = value.of if isinstance(value, Filled) else value
    least = raw.least if isinstance(raw, Raw) else None
    return least is not None and least >= 0 and not (isinstance(value, Filled) and value.default < 0)


def _is_text(value: Any) -> bool:
    if isinstance(value, Call):
        if value.function in ("tf.strings.length", "tf.strings.to_number"):
            return False
        if value.function.startswith("tf.strings.") or value.function == "tf.as_string":
            return value.function != "tf.strings.regex_full_match"
        return value.function == "tf.where" and len(value.args) == 3 and _is_text(value.args[1])
    raw = value.of if isinstance(value, Filled) else value
    return isinstance(raw, Raw) and raw.type == "bytes"


def _derive(key: str, value: Any, op: Any, done: Translation) -> None:
    source = source_of(value)
    if isinstance(value, Raw | Filled):
        source = f"tf.identity({source})"
    # a column that a missing value is no part of is missing with it
    absent = tuple(sorted({leaf.name for leaf in leaves(value) if isinstance(leaf, Raw) and not leaf.required}))
    config = op if op is not None else "vocabulary" if _is_text(value) else "identity"
    done.derived[key] = Derived(source, config, frozenset(raw.name for raw in raws_of(value)), absent)
