"""Test helpers for users and for Headway: the laws of graph functions as assertions, and ingested spans without Beam.

    with assert_no_retrace(step): ...                  # one trace, whatever it is called with in the block
    assert_same_bytes(first, second)                   # bit for bit: tensors, nests of them, files, folders
    assert_gradient(loss, x)                           # the tape's gradient against finite differences
    assert_signature(function, {"x": spec}, {"y": spec})
    assert_resumes_exactly(make, run, variables, steps=30, stops=(7, 13), folder=tmp_path)
    assert_no_skew(saved_model, examples, "eval", expected=predictions, output="probability")

Each raises AssertionError that says where, what was expected and what was found.

    examples = write_examples(folder, {"train": table, "eval": other}, columns)      # a table as an ingested span
    examples.part("train")                    # what TrainRequest.examples holds
    examples.statistics["train"]              # fitted transforms come from these
"""

from tfcore.testing.bytes import assert_same_bytes
from tfcore.testing.example_shards import Written, write_examples
from tfcore.testing.gradient import assert_gradient
from tfcore.testing.graph_checks import assert_no_retrace, assert_signature
from tfcore.testing.resume import assert_resumes_exactly
from tfcore.testing.skew import assert_no_skew

__all__ = [
    "Written",
    "assert_gradient",
    "assert_no_retrace",
    "assert_no_skew",
    "assert_resumes_exactly",
    "assert_same_bytes",
    "assert_signature",
    "write_examples",
]
