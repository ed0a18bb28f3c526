"""Features of an image: a small convolutional net, or a residual one.

    features = image_features(pixels, "photo", kind="conv", seed=0)    # uint8 [rows, height, width, channels] to [rows, n]

Both nets halve the image until its smaller side has at most 32 pixels. Then come blocks of 3x3 convolutions. From block
to block the image is halved and the filters are doubled. Blocks end once a side has fewer than four pixels. The
features are the mean over all pixels of the last block's output.
"""

from typing import Literal

import keras

Kind = Literal["conv", "resnet"]
FILTERS = (32, 64, 128)
"""The filters of each block; small images have fewer blocks."""
LARGEST = 32
"""The smaller side, in pixels, down to which an image is halved before the blocks begin."""


def image_features(image: keras.KerasTensor, name: str, *, kind: Kind, seed: int) -> keras.KerasTensor:
    """Returns the features of the images in an input, [rows, n], by the net `kind`.

    Args:
        name: the beginning of the layers' names.
        seed: decides the initial weights.
    """
    layers = _Layers(name, seed)
    x = keras.layers.Rescaling(1 / 127.5, offset=-1.0, name=f"{name}_scaled")(image)
    side = min(image.shape[1:3])
    while side > LARGEST:
        x, side = layers.convolution(x, FILTERS[0], strides=2, activation="relu"), -(-side // 2)
    for number, filters in enumerate(FILTERS):
        if number and side < 4:
            break
        if kind == "resnet":
            x = layers.residual(x, filters, strides=2 if number else 1)
            side = -(-side // 2) if number else side
        else:
            x = layers.convolution(x, filters, activation="relu")
            x = layers.convolution(x, filters, activation="relu")
            x, side = keras.layers.MaxPooling2D(2, padding="same", name=f"{name}_pool_{number}")(x), -(-side // 2)
    if kind == "resnet":
        x = keras.layers.ReLU(name=f"{name}_last")(x)
    return keras.layers.GlobalAveragePooling2D(name=f"{name}_features")(x)


class _Layers:
    """Makes convolutional layers, each with a name and a seed of its own."""

    def __init__(self, name: str, seed: int):
        self._name, self._seed, self._count = name, seed, 0

    def convolution(
        self,
        x: keras.KerasTensor,
        filters: int,
        *,
        size: int = 3,
        strides: int = 1,
        activation: str | None = None,
        zeros: bool = False,
    ) -> keras.KerasTensor:
        number, self._count = self._count, self._count + 1
        start = keras.initializers.GlorotUniform(seed=self._seed + 104729 + number)
        return keras.layers.Conv2D(
            filters,
            size,
            strides=strides,
            padding="same",
            activation=activation,
            kernel_initializer="zeros" if zeros else start,
            name=f"{self._name}_conv_{number}",
        )(x)

    def residual(self, x: keras.KerasTensor, filters: int, *, strides: int) -> keras.KerasTensor:
        """Apply two residual blocks (He et al., "Identity mappings in deep residual networks", 2016). In place of batch
        normalization their last convolution begins at zero (Zhang et al., "Fixup initialization", 2019)."""
        for step in (strides, 1):
            number = self._count
            hidden = keras.layers.ReLU(name=f"{self._name}_relu_{number}")(x)
            if step > 1 or x.shape[-1] != filters:
                x = self.convolution(hidden, filters, size=1, strides=step)
            hidden = self.convolution(hidden, filters, strides=step, activation="relu")
            hidden = self.convolution(hidden, filters, zeros=True)
            x = keras.layers.Add(name=f"{self._name}_sum_{number}")([x, hidden])
        return x
