"""Image features of any size, deterministic, and learned by both nets."""

import keras
import numpy as np
import pytest

from tfcore.models.convolutions import image_features


def net(kind, shape, seed=0):
    image = keras.Input(shape, dtype="uint8", name="image")
    return keras.Model(image, image_features(image, "image", kind=kind, seed=seed))


@pytest.mark.parametrize(
    ("kind", "shape", "features"),
    [
        ("conv", (1, 1, 1), 32),
        ("conv", (5, 9, 3), 32),
        ("conv", (8, 8, 1), 64),
        ("conv", (28, 28, 1), 128),
        ("conv", (70, 64, 3), 128),
        ("resnet", (1, 1, 1), 32),
        ("resnet", (5, 9, 3), 64),
        ("resnet", (8, 8, 1), 128),
        ("resnet", (70, 64, 3), 128),
    ],
)
def test_every_size_has_features(kind, shape, features):
    model = net(kind, shape)
    values = model(np.random.default_rng(0).integers(0, 256, (2, *shape)).astype("uint8")).numpy()
    assert values.shape == (2, features) and np.isfinite(values).all()


@pytest.mark.parametrize("kind", ["conv", "resnet"])
def test_the_seed_decides_the_weights(kind):
    first, same, other = (net(kind, (8, 8, 1), seed).get_weights() for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, same, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=True))
    kernels = [weights.tobytes() for weights in first if weights.ndim == 4 and weights.any()]
    assert len(set(kernels)) == len(kernels), "no two layers begin alike"


def test_a_residual_block_begins_as_its_shortcut():
    model = net("resnet", (8, 8, 1))
    ends = [layer for layer in model.layers if "conv" in layer.name and not layer.get_weights()[0].any()]
    assert len(ends) == sum("sum" in layer.name for layer in model.layers) == 6
