"""What the outputs of a preprocessing_fn are as `columns:` of pipeline.yaml, and as columns of a preprocess function.

translation = translate(outputs, label=frozenset({"tips"}), sole=True, taken={"tips", "fare"})
translation.columns            # {"fare": "standardize"}
translation.derived            # {"log_miles_xf": Derived("tf.math.log1p(columns['miles'])", "standardize")}
"""

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.from_tfx.preprocessing_fn import Output, Outputs
from headway.from_tfx.values import Raw, Remark, called, column_of, literal, parsed
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
    for key, output in outputs.values.items():
        rows = _Rows(outputs.raws, output.source)
        if not output.source:
            notes = [(f": {output.problem}" if output.problem else " is not a column that could be read", output.fix)]
        elif not rows.reads:
            notes = [(" is the same in every row", "it teaches nothing")]
        elif label and (rows.reads & label if sole else label <= rows.reads):
            continue  # the label itself
        else:
            notes = [(f": {note}", "") for note in _output(key, output, outputs.raws, done, taken)]
        done.remarks += [Remark(*output.place, f"output {key!r}{note}", fix) for note, fix in notes]
    return done


class _Rows(ast.NodeTransformer):
    """Python of rows as a preprocess function has it: a missing value is 0 or "" there, and has a flag."""

    def __init__(self, raws: Mapping[str, Raw], source: str):
        self._raws = raws
        self.reads, self.unfilled = set[str](), set[str]()
        self.source = ast.unparse(self.visit(parsed(source or "None")))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        name, _ = column_of(node)
        self.reads.add(name)
        if not self._raws[name].required:
            self.unfilled.add(name)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name, value = column_of(node)
        if value is None:
            return self.generic_visit(node)
        self.reads.add(name)
        default = literal(value)
        if isinstance(default, str):
            default = default.encode()
        if not default:  # what a missing value is anyway
            return node.args[0]
        default = float(default) if self._raws[name].type == "float32" else default
        return parsed(f"tf.where(columns[{name + PRESENT!r}], columns[{name!r}], {default!r})")


def _output(key: str, output: Output, raws: Mapping[str, Raw], done: Translation, taken: Collection[str]) -> list[str]:
    """Take an output over; what is not the same."""
    op, notes = output.op, [*output.notes]
    kind = op if isinstance(op, str) else next(iter(op)) if op else None
    of = _uncast(parsed(output.source), kind, raws)
    name, default = column_of(of)
    if default is not None and (kind in _CATEGORIES or raws[name].required):
        if not raws[name].required:
            notes.append(f"a missing value has an id of its own here, where TFX takes it for {literal(default)!r}")
        of, default = parsed(f"columns[{name!r}]"), None
    if op is None and name:
        op = _passed(raws[name], notes)
    if name and default is None and name not in done.columns:
        done.columns[name] = op
        done.why[name] = key
        return notes
    rows = _Rows(raws, ast.unparse(of))
    source = f"tf.identity({rows.source})" if name else rows.source
    config = op if op is not None else "vocabulary" if _is_text(of, raws) else "identity"
    free = key.replace("/", "_per_")
    while free in {*taken, *done.derived, "", LABEL} or free.endswith(PRESENT):
        free = f"{free}_computed".lstrip("_")
    done.derived[free] = Derived(source, config, frozenset(rows.reads), tuple(sorted(rows.unfilled)))
    return notes


def _passed(raw: Raw, notes: list[str]) -> Any:
    """What becomes of a column that is passed on as it is."""
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


def _uncast(value: ast.expr, op: str | None, raws: Mapping[str, Raw]) -> ast.expr:
    """A value without the casts that change nothing: of numbers, and of integers to the words of a vocabulary."""
    name, args = called(value)
    if name == "tf.cast" and len(args) > 1 and _same_numbers(args[0], ast.unparse(args[1]), raws):
        return _uncast(args[0], op, raws)
    raw = (
        raws.get(column_of(args[0])[0])
        if op == "vocabulary" and name in ("tf.as_string", "tf.strings.as_string")
        else None
    )
    return args[0] if raw and raw.type == "int64" else value


def _same_numbers(value: ast.expr, kind: str, raws: Mapping[str, Raw]) -> bool:
    """Whether a cast changes no number."""
    raw = raws.get(column_of(value)[0])
    if raw is None:
        return kind == "tf.float32" and literal(value) is None and not _is_text(value, raws)
    floats, integers = ("tf.float32", "tf.float64"), ("tf.int32", "tf.int64")
    return kind in {"bytes": (), "int64": floats + integers, "float32": floats}[raw.type]


def _is_text(value: ast.expr, raws: Mapping[str, Raw]) -> bool:
    name, args = called(value)
    if name == "tf.where":
        return _is_text(args[1], raws)
    raw = raws.get(column_of(value)[0])
    numbers = ("tf.strings.length", "tf.strings.to_number", "tf.strings.regex_full_match")
    text = name.startswith("tf.strings.") or name == "tf.as_string"
    return raw.type == "bytes" if raw else text and name not in numbers
