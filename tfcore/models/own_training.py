"""Refuses a user's Keras model that defines its own training, which Headway's step would not use.

    check_no_own_training(model, "my_models:two_towers")

Headway calls the model and adds up its task's loss and what the model added with `add_loss`. What `compile` was given, and a
`train_step` or `compute_loss` of the model's class, are Keras' own training loop's, which never runs here.
"""

from __future__ import annotations

import keras

from headway.errors import ConfigError

METHODS = {
    "train_step": "the training step",
    "test_step": "the evaluation step",
    "predict_step": "the prediction step",
    "compute_loss": "the loss",
    "compute_metrics": "the metrics",
    "make_train_function": "the training loop",
}
"""What a subclass of keras.Model may override, and what that changes in Keras' own training."""


def check_no_own_training(model: keras.Model, where: str) -> None:
    """ConfigError when `model` is compiled or overrides how Keras trains it, with what to write instead."""
    for method, what in METHODS.items():
        owner = _owner(model, method)
        if owner is not None:
            raise ConfigError(
                f"{owner} has a {method} of its own, and Headway does not call it: {what} would be Headway's",
                where=where,
                fix=f"remove {method}; a term of the loss goes into a layer's call as self.add_loss(...), which is added to "
                "the task's loss; what predictions need goes into call",
            )
    if model.compiled:
        raise ConfigError(
            f"the model is compiled ({_compiled(model)}), and Headway trains it otherwise: with training.optimizer and the "
            "loss of the pipeline's task",
            where=where,
            fix="return the model without compile(), or keras.Model(model.input, model.output) of it; set "
            "training.optimizer, training.learning_rate and training.class_weights in the pipeline, and give more terms of "
            "the loss by self.add_loss(...) in a layer's call",
        )


def _owner(model: keras.Model, method: str) -> str | None:
    """The class, not one of Keras', that `method` is defined in; None when it is Keras' own."""
    if method in vars(model):
        return f"the model {model.name!r}"
    for kind in type(model).__mro__:
        if method in vars(kind):
            return None if kind.__module__.split(".")[0] == "keras" else f"the class {kind.__name__}"
    return None


def _compiled(model: keras.Model) -> str:
    """What `compile` was given."""
    said = []
    if (optimizer := getattr(model, "optimizer", None)) is not None:
        said.append(f"optimizer {type(optimizer).__name__}")
    loss = getattr(model, "loss", None)
    if loss is not None:
        named = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
        said.append(f"loss {named}")
    return ", ".join(said) or "without a loss"
