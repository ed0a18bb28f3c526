"""The problems found in a step, most important first.

problems(eager, compiled)      # [{"kind": "not finite", "where": "layer 'ratio'", "problem": "...", "fix": "..."}]
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headway.messages import some
from tfcore.debug.summary import largest, not_finite

DEAD_SHARE = 0.5
"""So many units that are 0 in every row are told."""
LARGE, GROWTH = 1e4, 1e3
"""A layer's output is told to explode beyond LARGE where that is GROWTH times what the layer was given."""
LARGE_GRADIENT = 1e4
LARGE_CHANGE = 1.0
"""A step that changes a matrix of weights by more than this share of its length; from a small start the first ones do."""
SAME_LOSS = 1e-3
"""Relative difference of the eager and the compiled loss that rounding explains."""

Problem = dict[str, str | None]


def problems(
    eager: Mapping[str, Any],
    losses: Sequence[float | None] = (),
    applied: Sequence[bool] = (),
    still: Sequence[str] = (),
    later: Sequence[str] = (),
) -> list[Problem]:
    """List the problems of a step, most important first; see the module.

    Args:
        eager: what `eager_step` saw.
        losses, applied: of the compiled steps, the first on the same batch as the eager one; those that were only skipped
            to find a loss scale count as applied.
        still: the variables that no gradient reaches in the compiled step, or that it left as they were though the eager
            one moved them.
        later: the variables that have a gradient on the same batch after the compiled steps; their gradient may be 0 in
            the first one, where a layer after theirs starts at zero.
    """
    return [
        *_values(eager),
        *_dead(eager["layers"], starting(eager["variables"])),
        *_gradients(eager["variables"], later),
        *_still(eager["variables"], still),
        *_ranges(eager["layers"]),
        *_changes(eager["variables"]),
        *_steps(eager, losses, applied),
    ]


def _problem(kind: str, where: str, problem: str, fix: str | None = None) -> Problem:
    return {"kind": kind, "where": where, "problem": problem, "fix": fix}


def _values(eager: Mapping[str, Any]) -> Iterator[Problem]:
    """The first places with NaN or infinite values: inputs, weights, then layers in the order in which they ran."""
    fed = [row for row in eager["inputs"] if not_finite(row)]
    for row in fed:
        yield _problem("not finite", f"input {row['name']!r}", _how_many(row), "look at the columns' transforms")
    weights = [row for row in eager["variables"] if not_finite(row["weight"])]
    for row in weights:
        yield _problem("not finite", f"variable {row['name']!r}", f"{_how_many(row['weight'])} before the step")
    bad = [layer for layer in eager["layers"] if any(map(not_finite, layer["outputs"]))]
    if bad:
        first = bad[0]
        large = first["largest_input"]
        after = (
            f"; of its inputs {first['bad_inputs']:,} were too" if first["bad_inputs"] else "; its inputs were finite"
        )
        after += f", up to {large:.3g}" if large > LARGE else ""
        calls = len(bad) - 1
        later = f"; {calls} call{'s' * (calls > 1)} after it give{'s' * (calls == 1)} some too" if calls else ""
        if large > LARGE:
            fix = "its inputs are too large: lower training.learning_rate, set training.clip_norm, or scale its inputs"
        else:
            fix = "look for a division, log, sqrt or exp in it: tf.math.divide_no_nan, tf.maximum(x, 1e-6)"
        yield _problem(
            "not finite",
            f"layer {first['layer']!r} ({first['type']})",
            f"is the first whose output is not finite: {_how_many(*first['outputs'])}{after}{later}",
            None if fed or weights else fix,
        )
    elif eager["loss"] is None:
        yield _problem(
            "not finite", "the loss", "is not finite though every layer's output is", "look at labels and weights"
        )
    gradients = [row for row in eager["variables"] if row["gradient"] and not_finite(row["gradient"])]
    if gradients and not bad and not eager["excused"]:
        yield _problem(
            "not finite",
            f"the gradient of {some([row['name'] for row in gradients], 4, repr)}",
            "is not finite though the layers' outputs are",
            "look for sqrt, norm or division at 0, and for tf.where around one: both its branches are differentiated",
        )


def _how_many(*summaries: Mapping[str, Any]) -> str:
    counts = [
        (sum(int(row.get(kind, 0)) for row in summaries), word) for kind, word in (("nan", "NaN"), ("inf", "infinite"))
    ]
    size = ", ".join(f"{row['dtype']} {row['shape']}" for row in summaries)
    return " and ".join(f"{count:,} {word}" for count, word in counts if count) + f" in {size}"


def starting(variables: Sequence[Mapping[str, Any]]) -> set[str]:
    """The variables that are 0 and about to learn: a linear part, or an output, begins there on purpose."""
    return {
        row["name"]
        for row in variables
        if row["weight"].get("zeros") == 1.0 and row["gradient"] and row["gradient"].get("zeros", 1.0) < 1.0
    }


def _dead(layers: Sequence[Mapping[str, Any]], learning: set[str]) -> Iterator[Problem]:
    for layer in layers:
        if layer["weights"] and learning.issuperset(layer["weights"]):
            continue
        where = f"layer {layer['layer']!r} ({layer['type']})"
        summaries = [row for row in layer["outputs"] if "zeros" in row and row["dtype"].startswith(("float", "bfloat"))]
        if summaries and all(row["zeros"] == 1.0 for row in summaries):
            if layer["largest_input"]:
                fix = "look at its weights and bias; a ReLU that is never above 0 never learns"
                yield _problem("dead layer", where, "outputs only zeros, though its inputs are not", fix)
        elif (layer["dead"] or 0.0) >= DEAD_SHARE and (layer["weights"] or layer["dead"] > layer["dead_inputs"]):
            yield _problem("dead units", where, f"{layer['dead']:.0%} of its units are 0 in every row of the batch")


def _gradients(variables: Sequence[Mapping[str, Any]], later: Sequence[str]) -> Iterator[Problem]:
    for row in variables:
        where = f"variable {row['name']!r}"
        gradient = row["gradient"]
        if gradient is None:
            fix = (
                "is its layer used, is there a tf.stop_gradient, an integer or a numpy_op on the way to the loss, "
                "or does a tf.py_function read it?"
            )
            yield _problem("no gradient", where, "no gradient reaches it: it will stay as it is", fix)
        elif not not_finite(gradient) and gradient["zeros"] == 1.0:
            if row["name"] not in later:
                yield _problem("zero gradient", where, "its gradient is 0 everywhere on this batch")
        elif largest(gradient) > LARGE_GRADIENT:
            message = f"its gradient goes up to {largest(gradient):.3g}"
            yield _problem("exploding", where, message, "set training.clip_norm, or look at the ranges of the layers")


def _still(variables: Sequence[Mapping[str, Any]], still: Sequence[str]) -> Iterator[Problem]:
    for row in variables:
        if row["name"] in still and row["gradient"] and largest(row["gradient"]) > 0.0:
            yield _problem(
                "eager is not graph",
                f"variable {row['name']!r}",
                "it has a gradient eagerly and none compiled: training will not change it",
                "look for Python that runs only eagerly, or once while it is traced",
            )


def _ranges(layers: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    for layer in layers:
        most = max(map(largest, layer["outputs"]), default=0.0)
        # a Rescaling is told its range, as that of a regression's label
        if layer["type"] != "Rescaling" and most > LARGE and most > GROWTH * max(1.0, layer["largest_input"]):
            message = f"goes up to {most:.3g}, given values up to {layer['largest_input']:.3g}"
            yield _problem("exploding", f"layer {layer['layer']!r} ({layer['type']})", message)
            return  # all that follow are large for its sake


def _changes(variables: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    large = [row for row in variables if (row["change"] or 0.0) > LARGE_CHANGE and len(row["weight"]["shape"]) > 1]
    if large:
        worst = max(large, key=lambda row: row["change"])
        message = f"one step changes it by {worst['change']:.0%} of its length"
        others = f", and {len(large) - 1} more by over {LARGE_CHANGE:.0%}" if len(large) > 1 else ""
        yield _problem("large step", f"variable {worst['name']!r}", message + others, "lower training.learning_rate")


def _steps(eager: Mapping[str, Any], losses: Sequence[float | None], applied: Sequence[bool]) -> Iterator[Problem]:
    skipped = [i for i, done in enumerate(applied) if not done]
    if skipped and (eager["applied"] or eager["excused"]):
        message = f"step {skipped[0]} of the compiled ones was skipped, its loss or gradients not finite"
        yield _problem("not finite", "training", f"{message}: {len(skipped)} of {len(applied)} were")
    if losses and losses[0] is not None and eager["loss"] is None:
        yield _problem(
            "eager is not graph",
            "training",
            f"the compiled loss of the same batch is {losses[0]:.6g}, though it is not finite eagerly",
            "a fused op, such as MatMul with ReLU, made 0 of the NaN on its way: its finite loss means nothing",
        )
    if losses and losses[0] is not None and eager["loss"] is not None:
        difference = abs(losses[0] - eager["loss"]) / max(1.0, abs(eager["loss"]))
        if difference > SAME_LOSS:
            yield _problem(
                "eager is not graph",
                "training",
                f"the same batch has the loss {eager['loss']:.6g} eagerly and {losses[0]:.6g} compiled",
                "look for Python that runs once while it is traced, or for new random numbers in each call",
            )
