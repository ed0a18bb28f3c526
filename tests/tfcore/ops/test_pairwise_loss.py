"""The pairwise ranking loss: what it is, that the op and its twin are one function, and what they refuse."""

import json
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ConfigError
from tfcore.graph.function import GraphFunction
from tfcore.train.ranking import SecondDerivativeError, pairwise_loss

pytestmark = pytest.mark.long
TOLERANCE = {"float32": 1e-5, "float64": 1e-9}
LEAST = {"float32": 1.2e-38, "float64": 2.3e-308}
"""The smallest number that is not subnormal: what is below, TensorFlow takes for 0."""
ROUNDING = 1e-14
"""Of the size of what a sum in float64 adds up: where the rest is less, it is rounding and no number."""
KINDS = [("logistic", None), ("lambdarank", None), ("lambdarank", 2)]
BOTH = [True, False]


def reference(scores, labels, lengths, weights, kind, k):
    """(loss of each group, the gradient of their sum, and of each row the summed size of what its gradient sums)."""
    # NumPy would keep to float32, whose rounding is all that is left where much cancels out
    scores, labels, weights = (np.asarray(one, np.float64) for one in (scores, labels, weights))
    losses, gradient, size, start = [], np.zeros(len(scores)), np.zeros(len(scores)), 0
    for length in lengths:
        rows = [i for i in range(start, start + length) if weights[i] > 0]
        start += length
        rank = {i: r for r, i in enumerate(sorted(rows, key=lambda i: -scores[i]), 1)}  # sorted() is stable
        ideal = sorted((2.0 ** labels[i] - 1 for i in rows), reverse=True)
        cut = k or len(rows)
        best = sum(gain / np.log2(1 + r) for r, gain in enumerate(ideal[:cut], 1))
        discount = {i: 1 / np.log2(1 + rank[i]) if rank[i] <= cut else 0.0 for i in rows}
        loss = 0.0
        for i in rows:
            for j in rows:
                if labels[i] > labels[j]:
                    d, c = float(scores[i]) - float(scores[j]), weights[i] * weights[j]
                    if kind == "lambdarank":
                        c *= (2.0 ** labels[i] - 2.0 ** labels[j]) * abs(discount[i] - discount[j]) / best
                    loss += c * np.logaddexp(0, -d)
                    push = c * np.exp(-np.logaddexp(0, d))
                    gradient[[i, j]] += [-push, push]
                    size[[i, j]] += push
        losses.append(loss)
    return np.array(losses), gradient, size


def close(ours, theirs, size, dtype):
    """Each element by itself, however much of its summands cancels out."""
    allowed = TOLERANCE[dtype] * np.abs(theirs) + ROUNDING * size + LEAST[dtype]
    assert np.all(np.abs(ours.astype(np.float64) - theirs) <= allowed)


def both(scores, labels, lengths, weights=None, **options):
    """(loss of each group, the gradient of their sum)."""
    return [one.numpy() for one in differentiated(tf.constant(scores), labels, lengths, weights=weights, **options)]


def differentiated(scores, labels, lengths, **options):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        losses = pairwise_loss(scores, labels, np.cumsum([0, *lengths]), **options)
    return losses, tape.gradient(losses, scores)


@st.composite
def lists(draw, dtype):
    # eager ops cost the same for many groups as for one: so several at once, and fewer examples
    lengths = draw(st.lists(st.integers(0, 12), min_size=0, max_size=15))
    rows = sum(lengths)
    # TensorFlow takes subnormal numbers for 0; few values, so that many are equal, and wide ones, so that exp() is at its ends
    score = st.one_of(
        st.sampled_from([0.0, -0.0, 1.0, -2.5, 40.0, -60.0]), st.floats(-80, 80, width=32, allow_subnormal=False)
    )
    label = st.one_of(st.integers(0, 4).map(float), st.sampled_from([0.5, 1.25, 9.0]))
    weight = st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.3])
    made = (draw(st.lists(one, min_size=rows, max_size=rows)) for one in (score, label, weight))
    scores, labels, weights = (np.array(one, dtype) for one in made)
    return scores, labels, lengths, weights if draw(st.booleans()) else None


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("kind", "k"), KINDS)
@settings(deadline=None, max_examples=14)
@given(data=st.data())
def test_op_and_twin_give_what_two_loops_give(op, dtype, kind, k, data):
    scores, labels, lengths, weights = data.draw(lists(dtype))
    counts = np.ones_like(scores) if weights is None else weights
    losses, gradient, size = reference(scores, labels, lengths, counts, kind, k)
    for native in BOTH:
        found, slopes = both(scores, labels, lengths, weights, kind=kind, k=k, native=native)
        assert found.dtype == slopes.dtype == dtype and found.shape == (len(lengths),)
        np.testing.assert_allclose(found, losses, rtol=TOLERANCE[dtype], atol=LEAST[dtype])
        close(slopes, gradient, size, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("kind", "k"), KINDS)
def test_op_and_twin_agree_on_long_lists(op, dtype, kind, k):
    rng = np.random.default_rng(1)
    lengths = [2100, 0, 1, 300]
    rows = sum(lengths)
    scores, labels = rng.normal(size=rows).astype(dtype) * 4, rng.integers(0, 5, rows).astype(dtype)
    labels[:2100] += np.arange(2100, dtype=dtype) / 4096  # every label another one
    as_graph = tf.function(differentiated, autograph=False)  # eagerly the twin's loop is Python's
    native, twin = (
        [one.numpy() for one in as_graph(tf.constant(scores), labels, lengths, kind=kind, k=k, native=by_op)]
        for by_op in BOTH
    )
    np.testing.assert_allclose(native[0], twin[0], rtol=TOLERANCE[dtype])
    assert np.abs(twin[1]).max() > 1e-3
    # no row has summands of more than its group's loss
    close(native[1], twin[1], np.repeat(twin[0], lengths), dtype)


@pytest.mark.parametrize("native", BOTH)
@pytest.mark.parametrize(("kind", "k"), KINDS)
def test_what_cancels_out_leaves_a_gradient_and_no_noise(op, native, kind, k):
    # the row in the middle is pushed up as it is pulled down, but for one bit of a score
    one = np.nextafter(np.float32(1), np.float32(2))
    scores, labels, lengths = np.float32([1, 0, -one, 3, 0, -3]), np.float32([2, 1, 0, 2, 1, 0]), [3, 3]
    expected, size = reference(scores, labels, lengths, np.ones(6), kind, k)[1:]
    _, slopes = both(scores, labels, lengths, kind=kind, k=k, native=native)
    close(slopes, expected, size, "float32")
    if kind == "logistic":
        assert 0 < abs(expected[1]) < 1e-7 * size[1]
        assert slopes[1] != 0 and slopes[4] == 0


@cache
def traced(kind, native, jit):
    """(loss of two groups of three rows, its gradient) as one graph for all values."""

    @tf.function(jit_compile=jit, input_signature=[tf.TensorSpec([6], tf.float64)] * 3, autograph=False)
    def run(scores, labels, weights):
        return differentiated(scores, labels, [3, 3], weights=weights, kind=kind, native=native)

    return run


@pytest.mark.parametrize("native", BOTH)
@pytest.mark.parametrize("jit", BOTH)
@pytest.mark.parametrize("kind", ["logistic", "lambdarank"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["scores", "labels", "weights"])
def test_what_is_not_finite_spoils_its_group_only(op, native, jit, kind, bad, where):
    if native and jit:
        return
    if where != "scores" and bad == -np.inf:
        return  # a negative label or weight is another mistake
    columns = {
        "scores": np.arange(6.0),
        "labels": np.array([0.0, 1, 0, 1, 2, 0]),
        "weights": np.array([1.0, 1, 1, 1, 0, 1]),
    }
    columns[where][2] = bad
    if where != "weights":
        columns[where][4] = bad  # of weight 0: not there

    losses, gradient = (one.numpy() for one in traced(kind, native, jit)(**columns))
    assert np.isnan(losses[0]) and np.isnan(gradient[:3]).all()
    assert np.isfinite(losses[1]) and losses[1] > 0 and np.isfinite(gradient[3:]).all() and gradient[4] == 0


@pytest.mark.parametrize("native", BOTH)
def test_scores_and_gains_beyond_the_dtype_are_not_a_number(op, native):
    losses, _ = both(np.float32([3e38, -3e38, 1, 0]), [1.0, 0, 1, 0], [2, 2], native=native)
    assert np.isnan(losses[0]) and np.isfinite(losses[1])
    losses, _ = both(np.zeros(4, np.float32), [2000.0, 0, 1, 0], [2, 2], kind="lambdarank", native=native)
    assert np.isnan(losses[0]) and np.isfinite(losses[1])


@pytest.mark.parametrize("native", BOTH)
def test_sums_and_means(op, native):
    scores, labels, lengths = np.float64([0, 1, 2, 3, 4]), [0.0, 1, 2, 0, 1], [3, 2, 0]
    weights = np.float64([1, 1, 2, 1, 1])
    each, _ = both(scores, labels, lengths, weights, native=native)
    for kind, count in (("logistic", 6.0), ("lambdarank", 2)):  # pairs weigh 1 + 2 + 2 + 1
        each, slopes = both(scores, labels, lengths, weights, kind=kind, native=native)
        total, _ = both(scores, labels, lengths, weights, kind=kind, native=native, reduction="sum")
        mean, of_mean = both(scores, labels, lengths, weights, kind=kind, native=native, reduction="mean")
        np.testing.assert_allclose([total, mean], [each.sum(), each.sum() / count], rtol=1e-12)
        np.testing.assert_allclose(of_mean, slopes / count, rtol=1e-12)
    none, gradient = both(scores, np.zeros(5), lengths, native=native, reduction="mean")
    assert none == 0 and not gradient.any()


@pytest.mark.parametrize("native", BOTH)
def test_a_groups_share_of_the_gradient_is_what_it_is_given(op, native):
    scores = tf.constant(np.float64([0, 1, 5, 3, 1]))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(scores)
        losses = pairwise_loss(scores, [0, 1, 0, 1, 1], [0, 2, 2, 5], native=native)
        objective = tf.reduce_sum(losses * [2.0, 100.0, -3.0])
    alone, both_ = tape.gradient(losses, scores), tape.gradient(objective, scores)
    np.testing.assert_allclose(both_, alone * [2.0, 2.0, -3.0, -3.0, -3.0], rtol=1e-12)


def test_sixteen_bit_scores_are_computed_in_float32(op):
    scores = tf.constant([0.5, 1.0, -2.0], tf.bfloat16)
    loss, slope = differentiated(scores, [1, 0, 2], [3])
    assert loss.dtype == tf.float32 and slope.dtype == tf.bfloat16


@pytest.mark.parametrize("native", BOTH)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row_splits": [1, 4]}, "row_splits must begin with 0"),
        ({"row_splits": [0, 3]}, "row_splits must end with the number of rows"),
        ({"row_splits": [0, 3, 2, 4]}, "row_splits never falls"),
        ({"weights": [1.0, -1.0, 1.0, 1.0]}, "weights must not be negative"),
        ({"labels": [0, -1, 1, 1], "kind": "lambdarank"}, "labels of lambdarank must not be negative"),
    ],
)
def test_mistakes_in_the_data_are_named(op, native, change, message):
    arguments = {"scores": np.zeros(4, np.float32), "labels": [0, 1, 1, 0], "row_splits": [0, 4], "native": native}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        pairwise_loss(**(arguments | change))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.function(lambda: pairwise_loss(**(arguments | change)), autograph=False)()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "hinge"}, "kind is one of logistic, lambdarank, not 'hinge'"),
        ({"k": 3}, "for lambdarank only"),
        ({"kind": "lambdarank", "k": 0}, "from 1 on"),
        ({"reduction": "max"}, "reduction is one of none, sum, mean"),
        ({"row_splits": []}, "row_splits is a vector of one number more"),
        ({"labels": [1, 0]}, "labels is a vector as long as scores"),
        ({"weights": [1.0]}, "weights is a vector as long as scores"),
        ({"scores": np.zeros([2, 2], np.float32)}, "scores is a vector"),
        ({"scores": np.zeros(4, np.int64)}, "float32 or float64, not int64"),
    ],
)
def test_mistakes_in_the_call_are_named(change, message):
    arguments = {"scores": np.zeros(4, np.float32), "labels": [0, 1, 1, 0], "row_splits": [0, 4]}
    with pytest.raises(ValueError, match=message):
        pairwise_loss(**(arguments | change))


def test_the_op_itself_refuses_what_does_not_fit(op):
    zeros, none = tf.zeros([4]), tf.zeros([0])

    def call(scores=zeros, labels=zeros, weights=none, splits=(0, 4)):
        return op.headway_pairwise_loss(scores=scores, labels=labels, weights=weights, row_splits=splits)

    for change, message in (
        ({"scores": tf.zeros([2, 2])}, r"scores is a vector, not of shape \[2,2\]"),
        ({"labels": tf.zeros([3])}, r"labels has the shape \[3\], scores \[4\]"),
        ({"weights": tf.zeros([1])}, r"weights has the shape \[1\], scores \[4\]"),
        ({"splits": tf.zeros([0], tf.int64)}, "row_splits is a vector of one number more"),
        ({"splits": [0, 5, 4]}, "must end|never falls: row_splits\\[2\\] is 4, the one before it 5"),
        ({"splits": [0, 3]}, "must end with the number of rows: with 4, not with 3"),
        ({"weights": [1.0, 1, -2, 1]}, r"weights\[2\] is -2"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            call(**change)
    with pytest.raises(tf.errors.InvalidArgumentError, match="kind"):
        op.headway_pairwise_loss(scores=zeros, labels=zeros, weights=none, row_splits=[0, 4], kind="hinge")


def test_shapes_are_known_before_anything_runs(op):
    def shapes(rows, weights, splits):
        vectors = [tf.TensorSpec(rows), tf.TensorSpec(rows), tf.TensorSpec(weights), tf.TensorSpec(splits, tf.int64)]
        call = tf.function(lambda s, y, w, r: op.headway_pairwise_loss(scores=s, labels=y, weights=w, row_splits=r))
        return [one.shape.as_list() for one in call.get_concrete_function(*vectors).outputs]

    assert shapes([7], [0], [4]) == [[3], [7], [3]]
    assert shapes([None], [7], [None]) == [[None], [7], [None]]
    assert shapes(None, None, None) == [[None], [None], [None]]
    for wrong in (([7], [6], [4]), ([7, 1], [0], [4]), ([7], [0], [0]), ([7], [0], [2, 2])):
        with pytest.raises(ValueError, match=r"hape|imension"):
            shapes(*wrong)


def second_derivative(native):
    x = tf.constant([0.0, 1.0, 3.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            loss = pairwise_loss(x, [1, 0, 0], [0, 3], native=native)
        slope = inner.gradient(loss, x)
    return outer.gradient(slope, x)


@pytest.mark.parametrize("native", [True, False])
def test_a_second_derivative_is_refused(op, native):
    for run in (second_derivative, tf.function(second_derivative, autograph=False)):
        with pytest.raises(SecondDerivativeError, match="no second derivative"):
            run(native)


@pytest.mark.parametrize(("kind", "k"), KINDS)
def test_the_derivative_of_the_twin_is_that_of_differences_eagerly_in_a_graph_and_compiled(kind, k):
    rng = np.random.default_rng(6)
    lengths = [7, 0, 1, 10, 2]
    scores = tf.constant(rng.permutation(20) / 7)
    labels, weights, along = rng.integers(0, 4, 20), rng.choice([0.0, 0.5, 2], 20), tf.constant(rng.normal(size=20))

    def derivatives(scores):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            splits = np.cumsum([0, *lengths])
            loss = pairwise_loss(scores, labels, splits, weights=weights, kind=kind, k=k, native=False)
            total = tf.reduce_sum(loss * [1.0, 1, 1, 3, 1])
        return total, tape.gradient(total, scores)

    whole = derivatives(scores)
    step = 1e-5 * along
    slope = (derivatives(scores + step)[0] - derivatives(scores - step)[0]) / 2e-5
    np.testing.assert_allclose(tf.reduce_sum(whole[1] * along), slope, rtol=1e-6, atol=1e-9)
    for jit in BOTH:
        run = tf.function(derivatives, autograph=False, jit_compile=jit)
        for one, other in zip(whole, run(scores), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def operations(function, *arguments):
    graph = function.get_concrete_function(*arguments).graph
    return {one.type for one in graph.get_operations()}


def test_the_op_is_used_by_itself_but_not_for_xla_nor_where_it_is_switched_off(op, monkeypatch):
    x, y = tf.zeros([4]), tf.constant([0.0, 1, 1, 0])
    for jit, used in ((False, True), (True, False)):
        assert (
            "HeadwayPairwiseLoss" in operations(tf.function(lambda: pairwise_loss(x, y, [0, 4]), jit_compile=jit))
        ) is used
    for jit, used in (("off", True), ("auto", False)):
        made = GraphFunction(lambda x: pairwise_loss(x, y, [0, 4]), {"x": tf.TensorSpec([4])}, jit=jit)
        assert ("HeadwayPairwiseLoss" in {one.type for one in made.trace().graph.get_operations()}) is used
        np.testing.assert_allclose(made(x=x), [4 * np.log(2)], rtol=1e-6)
        assert made.mode == ("graph" if used else "jit")
    with pytest.raises(ConfigError, match="XLA has no kernel"):
        tf.function(lambda: pairwise_loss(x, y, [0, 4], native=True), jit_compile=True, autograph=False)()

    @tf.function
    def placed():
        with tf.device("/GPU:0"):
            return pairwise_loss(x, y, [0, 4])

    assert "HeadwayPairwiseLoss" not in operations(placed)
    monkeypatch.setenv("HEADWAY_OPS", "off")
    assert "HeadwayPairwiseLoss" not in operations(tf.function(lambda: pairwise_loss(x, y, [0, 4])))
    with pytest.raises(ConfigError, match="not built"):
        pairwise_loss(x, y, [0, 4], native=True)


CHILD = """
import json, os, sys, hashlib
import numpy as np, tensorflow as tf
from pathlib import Path
from tfcore.train.ranking import pairwise_loss

def peak():
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

def step(kind, k, scores, labels, lengths, native):
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = pairwise_loss(scores, labels, np.cumsum([0, *lengths]), kind=kind, k=k, native=native)
    return loss, tape.gradient(loss, scores)

def measure(threads, lengths, native):
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    rng = np.random.default_rng(5)
    rows = sum(lengths)
    scores, labels = tf.constant(rng.normal(size=rows), tf.float32), tf.constant(rng.integers(0, 5, rows), tf.float32)
    digest = hashlib.sha256()
    run = step if native else tf.function(step, autograph=False)  # eagerly the twin's loop is Python's
    run("lambdarank", None, scores[:99], labels[:99], [99], native)
    before = peak()
    for kind, k in (("logistic", None), ("lambdarank", None), ("lambdarank", 10)):
        for one in run(kind, k, scores, labels, lengths, native):
            digest.update(one.numpy().tobytes())
    print(json.dumps([digest.hexdigest(), peak() - before]), flush=True)

for case in json.loads(sys.argv[1]):
    child = os.fork()  # TensorFlow is imported once, and takes its number of threads when it first computes
    if not child:
        measure(*case)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(scope="module")
def in_other_processes(op, fork_server, tmp_path_factory):
    """For each (threads, lengths, native), in a process of its own: (digest of the results, MB that the process grew by)."""
    lists, short = [5000, *range(200), 2500], [900, *range(60), 400]
    measured = [(threads, lists, True) for threads in (1, 2, 7)] + [(2, [20_000], True)]
    measured += [(threads, short, False) for threads in (1, 2, 7)] + [(2, [3600], False)]
    folder = tmp_path_factory.mktemp("measured")
    (folder / "child.py").write_text(CHILD)
    code, out, errors = fork_server.run(folder / "child.py", json.dumps(measured), cwd=folder)
    assert code == 0, errors
    return [json.loads(line) for line in out.splitlines()]


def test_results_do_not_depend_on_the_number_of_threads(in_other_processes):
    for first in (0, 4):
        alone, two, seven = (digest for digest, _ in in_other_processes[first : first + 3])
        assert alone == two == seven


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc")
def test_memory_goes_with_the_rows_and_not_with_the_pairs(in_other_processes):
    # 1 KB a row; a matrix of these pairs would take 400 MB in one byte each, 50 MB in one bit
    assert in_other_processes[3][1] < 20
    # a matrix of these pairs would take 100 MB
    assert in_other_processes[7][1] < 60


def test_the_arithmetic_under_sanitizers_gives_the_same_bits_at_every_width(sanitized):
    said = []
    for widest in ("", "-march=native"):
        program = sanitized(
            "sanitize_pairs.cc", "-ffp-contract=off", "-w", "-DHEADWAY_WIDEST=", *filter(None, [widest])
        )
        done = subprocess.run([program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert said[0].startswith("lists 600, ") and said[0] == said[1]
