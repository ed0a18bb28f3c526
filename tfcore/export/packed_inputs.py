"""Signatures of many named tensors, saved in time that grows with their number and not with the graph's size.

    groups = pack(signature.inputs)                    # the named tensors, by kind
    tf.saved_model.save(module, path, signatures={"serving_default": takes_groups})
    unpack(path, {"serving_default": signature})       # now it takes the named tensors

TensorFlow traces each signature three times and makes an operation for each of its inputs every time: 5,000 nullable
columns cost minutes. So what is traced takes one tensor for each group, and the saved signature gets its named tensors
afterwards, as entries of the SavedModel's protobufs: they are concatenated and given to what was traced. The file format
is TensorFlow's public one, and it is all that this module knows of TensorFlow.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.framework.tensor_shape_pb2 import TensorShapeProto
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow.core.protobuf.struct_pb2 import StructuredValue

from tfcore.export.signatures import Signature, Tensor

SAVED = "saved_model.pb"
AT_ONCE = 32
"""Shapes that one operation tells: TensorFlow's optimizer takes time that grows with the square of them."""


class Group(NamedTuple):
    """Named tensors [rows] of one kind, as two: all values one behind the other, called `name`, and int32 [tensors], how many
    values each has."""

    name: str
    dtype: tf.DType
    tensors: tuple[Tensor, ...]

    @property
    def lengths(self) -> str:
        return f"{self.name}_lengths"


def pack(tensors: Sequence[Tensor]) -> list[Group]:
    """Group the tensors [rows] by kind: values by type, presences and lengths separately. Others are in no group.

    A group has its tensors in the order of their names, so that it does not depend on the order they are given in.
    """
    kinds: dict[str, list[Tensor]] = {}
    for tensor in sorted(tensors, key=lambda tensor: tensor.name):
        if tensor.shape == (None,):
            kind: str = tensor.dtype if tensor.default is None else "present" if tensor.dtype == "bool" else "length"
            kinds.setdefault(kind, []).append(tensor)
    names = {tensor.name for tensor in tensors}
    groups = []
    for kind, members in kinds.items():
        name = f"packed_{kind}"
        while {name, f"{name}_lengths"} & names:
            name += "_"
        groups.append(Group(name, tf.as_dtype(members[0].dtype), tuple(members)))
    return groups


def packed_specs(tensors: Sequence[Tensor]) -> dict[str, tf.TensorSpec]:
    """Return the specs of a function over the groups, by name; tensors in no group keep their own."""
    groups = pack(tensors)
    inside = {tensor.name for group in groups for tensor in group.tensors}
    specs = {
        tensor.name: tf.TensorSpec(tensor.shape, tf.as_dtype(tensor.dtype), name=tensor.name)
        for tensor in tensors
        if tensor.name not in inside
    }
    for group in groups:
        specs[group.name] = tf.TensorSpec([None], group.dtype, name=group.name)
        specs[group.lengths] = tf.TensorSpec([len(group.tensors)], tf.int32, name=group.lengths)
    return specs


def unpack(path: Path, signatures: Mapping[str, Signature]) -> None:
    """Give signatures of the SavedModel at `path` the named tensors that they are to take."""
    saved = SavedModel.FromString((path / SAVED).read_bytes())
    for graph in saved.meta_graphs:
        for name, signature in signatures.items():
            _Signature(graph, name, signature.inputs).unpack()
    (path / SAVED).write_bytes(saved.SerializeToString(deterministic=True))
    (path / "fingerprint.pb").unlink(missing_ok=True)  # of what was saved before, and with a random number


class _Signature:
    """One signature in the protobufs: its function, the node that calls it, and the metadata of both."""

    def __init__(self, graph: MetaGraphDef, name: str, inputs: Sequence[Tensor]):
        self._graph, self._name = graph, name
        self._inputs = sorted(inputs, key=lambda tensor: tensor.name)
        self._groups = pack(self._inputs)
        self._definition = graph.signature_def[name]
        called = next(iter(self._definition.outputs.values())).name.partition(":")[0]
        self._call = next(node for node in graph.graph_def.node if node.name == called)
        wrapper = self._call.attr["f"].func.name
        self._function = next(f for f in graph.graph_def.library.function if f.signature.name == wrapper)
        self._saved = graph.object_graph_def.concrete_functions[wrapper]
        self._bare = next(
            node.bare_concrete_function
            for node in graph.object_graph_def.nodes
            if node.WhichOneof("kind") == "bare_concrete_function"
            and node.bare_concrete_function.concrete_function_name == wrapper
        )
        self._before = len(self._definition.inputs)
        """Arguments of the function before those it captures."""

    def unpack(self) -> None:
        names = sorted(self._definition.inputs)  # TensorFlow has keyword arguments in the order of their names
        self._in_function(names)
        self._in_graph(names)
        self._in_objects()

    def _in_function(self, inputs: Sequence[str]) -> None:
        """Make the function take named arguments and concatenate them for the call of the traced function."""
        function = self._function
        old, captured = (
            list(function.signature.input_arg)[: self._before],
            list(function.signature.input_arg)[self._before :],
        )
        names = {arg.name for arg in captured} | {node.name for node in function.node_def}
        arguments = {tensor.name: _free(tensor.name.lower(), names) for tensor in self._inputs}
        attributes = {
            place - self._before + len(self._inputs): type(attr).FromString(attr.SerializeToString())
            for place, attr in function.arg_attr.items()
            if place >= self._before
        }
        shapes = list(function.attr["_input_shapes"].list.shape)[self._before :]
        del function.signature.input_arg[:]
        function.arg_attr.clear()
        for place, tensor in enumerate(self._inputs):
            function.signature.input_arg.add(name=arguments[tensor.name], type=_type(tensor.dtype))
            attr = function.arg_attr[place].attr
            attr["_user_specified_name"].s = tensor.name.encode()
            attr["_output_shapes"].list.shape.add().CopyFrom(_shape(tensor.shape))
        function.signature.input_arg.extend(captured)
        for place, copied in attributes.items():
            function.arg_attr[place].CopyFrom(copied)
        if "_input_shapes" in function.attr:
            _replace(
                function.attr["_input_shapes"].list.shape, [*(_shape(tensor.shape) for tensor in self._inputs), *shapes]
            )
        # what stands in the place of each old argument
        instead = {arg.name: arguments[name] for arg, name in zip(old, inputs, strict=True) if name in arguments}
        old_names = dict(zip(inputs, (arg.name for arg in old), strict=True))
        added = []
        for group in self._groups:
            members = [arguments[tensor.name] for tensor in group.tensors]
            nodes, flat, lengths = _joined(group, members, names)
            added += nodes
            instead[old_names[group.name]], instead[old_names[group.lengths]] = flat, lengths
        for node in function.node_def:
            for place, source in enumerate(node.input):
                node.input[place] = instead.get(source, source)
        function.node_def.extend(added)

    def _in_graph(self, inputs: Sequence[str]) -> None:
        """Add a placeholder for each tensor, and the call of the function with them."""
        call, definition, graph = self._call, self._definition, self._graph.graph_def
        placeholders = {definition.inputs[name].name.partition(":")[0] for name in inputs}
        for place in reversed(range(len(graph.node))):
            if graph.node[place].name in placeholders:
                del graph.node[place]
        names = {node.name for node in graph.node}
        captured, types = list(call.input)[self._before :], list(call.attr["Tin"].list.type)[self._before :]
        definition.inputs.clear()
        definition.defaults.clear()
        inputs, added = [], []
        for tensor in self._inputs:
            nodes = _placeholder(tensor, f"{self._name}_{tensor.name}", names)
            added += nodes
            inputs.append(nodes[-1].name)
            info = definition.inputs[tensor.name]
            info.name, info.dtype = f"{nodes[-1].name}:0", _type(tensor.dtype)
            info.tensor_shape.CopyFrom(_shape(tensor.shape))
            if tensor.default is not None:
                definition.defaults[tensor.name].CopyFrom(_default(tensor.default, tensor.dtype, tensor.shape))
        _replace(call.input, [*inputs, *captured])
        _replace(call.attr["Tin"].list.type, [*(_type(tensor.dtype) for tensor in self._inputs), *types])
        read = call.attr["_read_only_resource_inputs"].list.i
        _replace(read, [place - self._before + len(self._inputs) for place in read])
        graph.node.extend(added)

    def _in_objects(self) -> None:
        """Update the function's metadata in the object graph, which Python reads when it loads the model."""
        names = [tensor.name for tensor in self._inputs]
        bare = self._bare
        _replace(bare.argument_keywords, names)
        bare.allowed_positional_arguments = int(len(names) == 1)
        for entry in bare.function_spec.fullargspec.named_tuple_value.values:
            if entry.key == "kwonlyargs":
                _replace(entry.value.list_value.values, [StructuredValue(string_value=name) for name in names])
        arguments = self._saved.canonicalized_input_signature.tuple_value.values[1].dict_value.fields
        arguments.clear()
        for tensor in self._inputs:
            spec = arguments[tensor.name].tensor_spec_value
            spec.name, spec.dtype = tensor.name, _type(tensor.dtype)
            spec.shape.CopyFrom(_shape(tensor.shape))


def _joined(group: Group, members: Sequence[str], names: set[str]) -> tuple[list[NodeDef], str, str]:
    """Return (nodes, all values concatenated, number of values per tensor)."""
    count = len(members)
    nodes, lengths = [], []
    for begin in range(0, count, AT_ONCE):
        some, name = members[begin : begin + AT_ONCE], f"{group.name}_shapes_{begin}"
        nodes.append(_node(names, name, "ShapeN", some, T=group.dtype, N=len(some), out_type=tf.int32))
        lengths += [f"{nodes[-1].name}:output:{place}" for place in range(len(some))]
    if count == 1:
        return nodes, members[0], lengths[0]
    zero = tf.make_tensor_proto(0, tf.int32)
    nodes.append(_node(names, f"{group.name}_axis", "Const", (), dtype=tf.int32, value=zero))
    axis = f"{nodes[-1].name}:output:0"
    for what, inputs, dtype in (("flat", members, group.dtype), ("lengths", lengths, tf.int32)):
        concat = [*inputs, axis]
        nodes.append(_node(names, f"{group.name}_{what}", "ConcatV2", concat, T=dtype, N=count, Tidx=tf.int32))
    return nodes, f"{nodes[-2].name}:output:0", f"{nodes[-1].name}:output:0"


def _node(names: set[str], name: str, op: str, inputs: Sequence[str], **attributes: Any) -> NodeDef:
    """A node under a name that is free; its attributes are dtypes, whole numbers, shapes and tensors."""
    node = NodeDef(name=_free(name, names), op=op, input=inputs)
    for key, value in attributes.items():
        attribute = node.attr[key]
        if isinstance(value, tf.DType):
            attribute.type = value.as_datatype_enum
        elif isinstance(value, int):
            attribute.i = value
        elif isinstance(value, TensorShapeProto):
            attribute.shape.CopyFrom(value)
        else:
            attribute.tensor.CopyFrom(value)
    return node


def _replace(field: Any, values: Iterable[Any]) -> None:
    """Replace the elements of a repeated field."""
    values = list(values)
    del field[:]
    field.extend(values)


def _placeholder(tensor: Tensor, name: str, names: set[str]) -> list[NodeDef]:
    """Return the nodes of an input; the last one is the node to feed."""
    dtype, shape, nodes = tf.as_dtype(tensor.dtype), _shape(tensor.shape), []
    if tensor.default is not None:
        default = _default(tensor.default, tensor.dtype, tensor.shape)
        nodes.append(_node(names, f"{name}/input", "Const", (), dtype=dtype, value=default))
        nodes[0].attr["_output_shapes"].list.shape.add().CopyFrom(default.tensor_shape)
    op = "PlaceholderWithDefault" if nodes else "Placeholder"
    nodes.append(_node(names, name, op, [node.name for node in nodes], dtype=dtype, shape=shape))
    nodes[-1].attr["_output_shapes"].list.shape.add().CopyFrom(shape)
    return nodes


def _free(name: str, names: set[str]) -> str:
    """Return a name that no other node or argument has."""
    base, number = name, 0
    while name in names:
        number += 1
        name = f"{base}_{number}"
    names.add(name)
    return name


@functools.cache
def _default(value: Any, dtype: str, shape: tuple[int | None, ...]) -> Any:
    return tf.make_tensor_proto(np.asarray(value if shape == () else [value], tf.as_dtype(dtype).as_numpy_dtype))


@functools.cache
def _type(dtype: str) -> int:
    return int(tf.as_dtype(dtype).as_datatype_enum)


@functools.cache
def _shape(shape: tuple[int | None, ...]) -> Any:
    return tf.TensorShape(shape).as_proto()
