"""How late a flight lands, as a range: a model, a loss and a training step of one's own.

The model gives a location and a scale for each flight; the loss is the negative log likelihood of Student's t distribution,
which a flight that is six hours late does not upset; a prediction is the median and the range that holds 80% of such flights. The
training step is sharpness-aware minimization (Foret et al., 2021): it takes the gradient not where the weights are, but
where the loss is worst nearby, so that training ends in flat valleys.

The tail of the loss is a NumPy function with a gradient of its own, as a function would be that TensorFlow lacks. Its other part
is of TensorFlow's ops and looks at each batch in Python, with a gradient that is traced. The search for the radius is Python's
`while` over tensors, which AutoGraph makes a loop of the graph.
"""

import keras
import numpy as np
import tensorflow as tf

from tfcore.graph.python_op import numpy_op, python_op

RADIUS = 0.05
FREEDOM = 3.0
"""Degrees of freedom; 80% of the distribution lie within REACH scales of its centre."""
REACH, OUTSIDE = 1.6377, 0.2
MINUTES = 20.0
"""The unit that the model computes in."""
A_DAY = 1440.0


def model(layout, options):
    """Embeddings of categories beside the numbers, hidden layers, two outputs. float32 [rows, 2]"""
    inputs = {name: keras.Input(shape, dtype=dtype, name=name) for name, (shape, dtype) in layout.inputs().items()}
    parts = [inputs["numeric"]]
    for place, column in enumerate(layout.categorical):
        ids = inputs["categorical"][:, place]
        parts.append(keras.layers.Embedding(column.size, 8, name=f"{column.name}_embedding")(ids))
    x = keras.layers.Concatenate()(parts)
    for units in options["units"]:
        x = keras.layers.Dense(units, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(2, name="location_and_scale")(x))


def interval_score(label, prediction, columns):
    """Minutes, less is better: the range's width, and ten times how far labels lie outside it (Gneiting & Raftery, 2007)."""
    low, high = prediction[:, 1], prediction[:, 2]
    outside = np.maximum(low - label, 0) + np.maximum(label - high, 0)
    return float(np.average(high - low + 2 / OUTSIDE * outside, weights=columns["weight"]))


def absolute_error(label, prediction, columns):
    """Minutes between the median and the label."""
    return float(np.average(np.abs(label - prediction[:, 0]), weights=columns["weight"]))


def miscoverage(label, prediction, columns):
    """How far the share of labels within their range is from 80%."""
    inside = (label >= prediction[:, 1]) & (label <= prediction[:, 2])
    return float(abs(np.average(inside, weights=columns["weight"]) - (1 - OUTSIDE)))


def _tail(error):
    """How unlikely an error is, in scales: Student's t, without its constant. float32 [rows]"""
    return (FREEDOM + 1) / 2 * np.log1p(np.square(error) / FREEDOM)


def _tail_gradient(upstream, error):
    return upstream * (FREEDOM + 1) * error / (FREEDOM + np.square(error))


def _log_scale(scale):
    """The loss of a wide range; says so where one has run away. float32 [rows]"""
    if (widest := float(tf.reduce_max(scale))) > A_DAY:
        print(f"a range has a scale of {widest:,.0f} minutes")
    return tf.math.log(scale)


VECTOR = tf.TensorSpec([None], tf.float32)
tail = numpy_op(_tail, VECTOR, gradient=_tail_gradient, stateful=False)
log_scale = python_op(_log_scale, VECTOR, gradient="traced")


class Delay:
    label = "number"
    outputs = 2
    width = 3
    metrics = {"interval_score": interval_score, "absolute_error": absolute_error, "miscoverage": miscoverage}  # noqa: RUF012

    def loss(self, batch, outputs):
        """The negative log likelihood of each row, without its constant. float32 [rows]"""
        location, scale = self._location_and_scale(outputs)
        error = (batch["label"] - location) / scale
        return log_scale(scale) + tail(error)

    def predictions(self, outputs):
        """The median and the ends of the range, in minutes. float32 [rows, 3]"""
        location, scale = self._location_and_scale(outputs)
        return tf.stack([location, location - REACH * scale, location + REACH * scale], axis=1)

    def train_step(self, model, batch):
        """The loss, and the gradients at the worst weights within RADIUS. (scalar, one for each trainable variable)"""
        variables = [variable.value for variable in model.trainable_variables]
        loss, gradients = self._gradients(model, variables, batch)
        length = tf.linalg.global_norm(gradients) + 1e-12
        before = [tf.identity(variable) for variable in variables]

        def go(radius):
            for variable, value, gradient in zip(variables, before, gradients, strict=True):
                variable.assign(value + radius / length * gradient)
            return self._loss(model, batch)

        @tf.function(autograph=True)
        def worst_nearby():
            radius = tf.constant(RADIUS)
            while go(radius) > 2 * tf.abs(loss) + 1 and radius > RADIUS / 8:  # a cliff, not a slope
                radius /= 2

        worst_nearby()
        _, gradients = self._gradients(model, variables, batch)
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)  # Headway's optimizer takes the step, from here
        return loss, gradients

    def _gradients(self, model, variables, batch):
        with tf.GradientTape() as tape:
            loss = self._loss(model, batch)
        gradients = tape.gradient(loss, variables)
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]  # those of embeddings are sparse

    def _loss(self, model, batch):
        outputs = model({name: batch[name] for name in model.input}, training=True)
        return tf.reduce_sum(self.loss(batch, outputs) * batch["weight"]) / tf.reduce_sum(batch["weight"])

    def _location_and_scale(self, outputs):
        return outputs[:, 0] * MINUTES, (tf.nn.softplus(outputs[:, 1]) + 0.01) * MINUTES
