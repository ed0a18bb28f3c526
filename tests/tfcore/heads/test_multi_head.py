"""The heads of several labels over one body: the loss of a row, missing labels, what is served."""

import numpy as np
import pytest
import tensorflow as tf

from tfcore.heads.label_parameters import FurtherLabel, LabelParameters
from tfcore.heads.losses import with_loss
from tfcore.heads.multi_head import LABELS, MultiHead
from tfcore.heads.table import head_of, label_head

MINUTES = FurtherLabel(name="minutes", task="regression", type="float32", mean=10.0, std=4.0, weight=0.5)
KIND = FurtherLabel(name="kind", task="multiclass", type="bytes", classes=("a", "b", "c"), counts=(1, 1, 2))
LABEL = LabelParameters(task="binary", type="int64", counts=(30, 10), further=(MINUTES, KIND))
OUTPUTS = np.array([[0.3, 12.0, 1.0, 0.0, -1.0], [2.0, 7.0, 0.5, 0.5, 0.0]], np.float32)
BATCH = {"label": np.float32([1, 0]), LABELS: np.float32([[14, np.nan], [np.nan, 2]])}


@pytest.fixture
def head():
    return label_head(LABEL)


def test_the_loss_of_a_row_is_the_weighted_sum_of_its_labels_and_a_missing_one_counts_nothing(head):
    main = head_of("binary").loss({"label": BATCH["label"]}, OUTPUTS[:, :1]).numpy()
    kind = head_of("multiclass", KIND.classes).loss({"label": tf.constant([0, 2])}, OUTPUTS[:, 2:]).numpy()
    minutes = 0.5 * (14.0 - 12.0) ** 2 / 4.0**2  # in the label's deviation
    losses = head.losses(BATCH, tf.constant(OUTPUTS))
    assert list(losses) == ["label", "minutes", "kind"]
    np.testing.assert_allclose(losses["minutes"], [minutes, 0.0], rtol=1e-6)
    np.testing.assert_allclose(losses["kind"], [0.0, kind[1]], rtol=1e-6)
    np.testing.assert_allclose(head.loss(BATCH, tf.constant(OUTPUTS)), main + np.array([minutes, kind[1]]), rtol=1e-6)


def test_no_gradient_comes_of_a_missing_label(head):
    outputs = tf.Variable(OUTPUTS)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(head.loss(BATCH, outputs))
    gradient = tape.gradient(loss, outputs).numpy()
    assert np.isfinite(gradient).all()
    assert (gradient[1, 1], *gradient[0, 2:]) == (0.0, 0.0, 0.0, 0.0) and gradient[0, 1] and gradient[1, 2:].all()


def test_what_is_served_is_named_by_label_and_is_what_is_described(head):
    served = head.served(tf.constant(OUTPUTS))
    assert [*served] == ["probability", "logit", "minutes/prediction", "kind/probabilities", "kind/class"]
    assert served["minutes/prediction"].numpy().tolist() == [12.0, 7.0]
    assert served["kind/class"].numpy().tolist() == [b"a", b"a"]
    described = [(output.name, output.dtype, output.shape) for output in head.described()]
    assert described == [(name, value.dtype.name, tuple(value.shape[1:])) for name, value in served.items()]


def test_the_main_label_decides_alone(head):
    plain = head_of("binary")
    assert head.task is plain.task and head.own == 1 and head.outputs == 5
    np.testing.assert_array_equal(head.predictions(tf.constant(OUTPUTS)), plain.predictions(OUTPUTS[:, :1]))
    np.testing.assert_array_equal(head.exact(OUTPUTS.astype(float)), plain.exact(OUTPUTS[:, :1].astype(float)))


def test_each_output_begins_at_its_own_labels_distribution_and_unit(head):
    scale, centre = head.units(LABEL)
    assert scale.tolist() == [1, 4, 1, 1, 1] and centre.tolist() == [0, 10, 0, 0, 0]
    np.testing.assert_allclose(head.start(LABEL), [np.log(1 / 3), 0, *np.log([0.25, 0.25, 0.5])], rtol=1e-6)


def test_a_loss_by_name_is_the_main_labels():
    head = label_head(LABEL.model_copy(update={"task": "regression", "std": 2.0, "mean": 0.0}))
    changed = head.changed(lambda main: with_loss(main, "absolute_error"))
    before, after = (each.losses(BATCH, tf.constant(OUTPUTS)) for each in (head, changed))
    np.testing.assert_allclose(before["label"], [0.7**2 / 4, 4 / 4], rtol=1e-6)
    np.testing.assert_allclose(after["minutes"], before["minutes"])
    assert isinstance(changed, MultiHead) and np.allclose(after["label"], [0.7 / 2, 2 / 2])


def test_a_model_of_one_label_has_no_several_heads():
    assert not isinstance(label_head(LABEL.model_copy(update={"further": ()})), MultiHead)
    assert "further" not in LabelParameters(task="binary", type="int64").model_dump()
