"""A model in other formats than the SavedModel, for devices: TensorFlow Lite and ONNX.

    described = write_formats(Path("saved_model"), ["tflite"], predict, layout)      # assets.extra/model.tflite

They hold the model behind the transform, since neither format has tables of strings: their inputs are the outputs of the
signature `transform`. The replay compares them with the SavedModel.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from headway.errors import HeadwayError
from tfcore.export.metadata import Format, FormatFile, OtherFormats
from tfcore.export.signatures import output_names
from tfcore.transform.layer import sources
from tfcore.transform.parameters import TransformParameters

Tensors = dict[str, tf.Tensor]
FOLDER = Path("assets.extra")
FILES: Mapping[Format, tuple[str, float]] = {
    "tflite": ("model.tflite", 1e-4),
    "tflite_float16": ("model_float16.tflite", 0.02),
    "onnx": ("model.onnx", 1e-4),
}
"""The file of each format, and how far its outputs may lie from the SavedModel's."""


def write_formats(
    saved_model: Path,
    formats: Sequence[Format],
    predict: Callable[[Tensors], Tensors],
    layout: TransformParameters,
) -> OtherFormats:
    """Write the formats beside the SavedModel, in assets.extra, which servers leave alone.

    Args:
        predict: model inputs -> named outputs.

    Raises:
        HeadwayError: the model has an operation that the format lacks.
    """
    inputs = {name: spec for name, spec in layout.inputs().items() if spec[0] != (0,)}
    empty = [name for name in layout.inputs() if name not in inputs]
    specs = {name: tf.TensorSpec([None, *shape], dtype, name=name) for name, (shape, dtype) in inputs.items()}

    def outputs_of(**named: tf.Tensor) -> Tensors:
        rows = tf.shape(next(iter(named.values())))[0]
        none = {name: tf.zeros([rows, 0], layout.inputs()[name][1]) for name in empty}
        return {name: value for name, value in predict({**named, **none}).items() if value.dtype.is_floating}

    function = tf.function(outputs_of, autograph=False).get_concrete_function(**specs)
    files = []
    for name in formats:
        file, bound = FILES[name]
        try:
            data = _onnx(outputs_of, specs) if name == "onnx" else _tflite(function, half=name != "tflite")
        except Exception as error:  # whatever converters throw at an operation that they do not know
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            fix = f"leave {name} out of export.formats, or use other layers"
            problem = f"the model cannot be converted to {name}: {reason[:500]}"
            raise HeadwayError(problem, where="export.formats", fix=fix) from error
        (saved_model / FOLDER / file).write_bytes(data)
        files.append(FormatFile(format=name, file=str(FOLDER / file), bytes=len(data), bound=bound))
    names = output_names([name for parts in sources(layout).values() for name in parts])
    return OtherFormats(
        inputs={
            name: tuple(names[part] for part in parts) for name, parts in sources(layout).items() if name in inputs
        },
        outputs=tuple(sorted(function.structured_outputs)),
        files=tuple(files),
    )


def _tflite(function: Any, *, half: bool) -> bytes:
    holder = tf.Module()  # a Keras model does not lead to all of its variables, and what is not found has no values
    holder.function, holder.captured = function, list(function.variables)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], holder)
    if half:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    return bytes(converter.convert())


def _onnx(outputs_of: Callable[..., Tensors], specs: Mapping[str, tf.TensorSpec]) -> bytes:
    import tf2onnx  # an extra: pip install 'headway[onnx]'

    signature = list(specs.values())
    positional = tf.function(
        lambda *values: outputs_of(**dict(zip(specs, values, strict=True))), signature, autograph=False
    )
    converted, _ = tf2onnx.convert.from_function(positional, signature)
    return bytes(converted.SerializeToString())
