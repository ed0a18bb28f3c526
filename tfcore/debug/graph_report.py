"""The ops of a traced graph: by type, and those off the device.

    found = Graph.of(concrete)
    found.ops                 # {"MatMul": 12, "ReadVariableOp": 30, ...}, the bodies of nested functions included
    found.copies()            # [{"op": "PyFunc", "count": 1, "why": "Python runs on the host", "names": [...]}]

Where an op can run is asked of TensorFlow's own kernel registry, node by node with its dtypes: a node without a kernel
for the GPU runs on the CPU, and what it reads and gives is copied. That holds on a machine without a GPU too, as what
would be copied.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Self

import tensorflow as tf

from tfcore.graph.python_errors import PYTHON_NODES, all_nodes, python_functions
from tfcore.private_api import registered_kernels

_GPU = ("GPU", "DEFAULT")
_BOOKKEEPING = frozenset(
    {"Placeholder", "PlaceholderWithDefault", "_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "NoOp"}
)
_NAMES = 8


@dataclass(frozen=True)
class Graph:
    """A traced graph, and the facts of it that a report shows; see the module."""

    definition: Any
    """A GraphDef."""

    @classmethod
    def of(cls, concrete: tf.types.experimental.ConcreteFunction) -> Self:
        return cls(concrete.graph.as_graph_def())

    @cached_property
    def nodes(self) -> list[Any]:
        return all_nodes(self.definition)

    @cached_property
    def ops(self) -> dict[str, int]:
        """The number of nodes by type of op, most frequent first."""
        # a function is a type of its own where a node names it
        functions = {function.signature.name for function in self.definition.library.function}
        counted = Counter(node.op for node in self.nodes if node.op not in functions)
        return dict(sorted(counted.items(), key=lambda item: (-item[1], item[0])))

    @property
    def functions(self) -> int:
        return len(self.definition.library.function)

    def copies(self) -> list[dict[str, Any]]:
        """The kinds of node that run on the host while the step runs on a device: [{op, count, why, names}]."""
        nodes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for node in self.nodes:
            if node.op in PYTHON_NODES:
                nodes[node.op, "a Python function runs on the host"].append(node.name)
            elif node.op not in _BOOKKEEPING and not _has_kernel(node):
                nodes[node.op, _why(node)].append(node.name)
        copies = [
            {"op": op, "count": len(names), "why": why, "names": names[:_NAMES]} for (op, why), names in nodes.items()
        ]
        python = python_functions(self.definition)
        for entry in copies:
            if entry["op"] in PYTHON_NODES:
                entry["functions"] = python
        return sorted(copies, key=lambda entry: (entry["op"] not in PYTHON_NODES, -entry["count"], entry["op"]))


def has_gpu_kernels() -> bool:
    """Whether this build of TensorFlow has GPU kernels."""
    return any(kernel.device_type == "GPU" for kernel in _kernels("MatMul"))


@cache
def _kernels(op: str) -> list[Any]:
    return registered_kernels(op)


def _has_kernel(node: Any) -> bool:
    """Whether a kernel for a GPU takes the node's dtypes; true for an op without any kernel."""
    every = _kernels(node.op)
    if not every:
        return True
    return any(kernel.device_type in _GPU and _fits(kernel, node) for kernel in every)


def _fits(kernel: Any, node: Any) -> bool:
    for constraint in kernel.constraint:
        allowed = set(constraint.allowed_values.list.type)
        if constraint.name not in node.attr or not allowed:
            continue
        attribute = node.attr[constraint.name]
        types = list(attribute.list.type) or [attribute.type]
        if not set(types) <= allowed:
            return False
    return True


def _why(node: Any) -> str:
    if "Lookup" in node.op or "HashTable" in node.op:
        return "a lookup table lies in the host's memory"
    types = {attribute.type for attribute in node.attr.values()}
    types |= {type_ for attribute in node.attr.values() for type_ in attribute.list.type}
    if node.op.startswith("String") or tf.string.as_datatype_enum in types:
        return "strings lie in the host's memory"
    return "there is no kernel of it for a GPU"
