"""What TensorFlow cannot write is a StoreError that says why, and leaves nothing behind."""

import errno
import resource
from contextlib import contextmanager

import pytest
import tensorflow as tf

from headway.errors import StoreError
from tfcore.graph.op_errors import as_store_errors
from tfcore.train.checkpoints import Checkpoints


@contextmanager
def no_file_over(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def large():
    return tf.Variable(tf.ones([1 << 20]))  # 4 MiB


def test_a_checkpoint_that_cannot_be_written_leaves_those_that_are_there(tmp_path, large):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(1, {"v": [tf.Variable(1.0)]}, {})
    with no_file_over(2 << 20), pytest.raises(StoreError) as error:
        checkpoints.save(2, {"v": [large]}, {})
    assert error.value.where == str(tmp_path / "checkpoints") and "ulimit -f" in error.value.fix
    assert error.value.problem == "the checkpoint of step 2 cannot be written: file too large"
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["1"] and checkpoints.newest().step == 1
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="step 2 cannot be written: not a directory"):
        Checkpoints(tmp_path / "file" / "below").save(2, {"v": [large]}, {})


def test_a_checkpoint_that_is_torn_after_it_was_found_is_a_store_error(tmp_path):
    checkpoints, variable = Checkpoints(tmp_path), tf.Variable([1.0], shape=tf.TensorShape(None))
    checkpoints.save(1, {"v": [variable]}, {})
    found = checkpoints.newest()
    variable.assign([[2.0]])
    checkpoints.restore(found, {"v": [variable]})
    assert variable.numpy().tolist() == [1.0]
    file = next(found.path.glob("variables.data*"))
    file.write_bytes(bytes(b ^ 255 for b in file.read_bytes()))
    with pytest.raises(StoreError, match="cannot be read: "):
        checkpoints.restore(found, {"v": [variable]})


def test_other_failures_of_tensorflow_keep_their_words(tmp_path):
    refused = pytest.raises(StoreError, match=r"the state cannot be written: incompatible shapes: \[2\]")
    with refused as error, as_store_errors(tmp_path, "the state"):
        tf.ones([2]) + tf.ones([3])
    assert "{{" not in error.value.problem and "[Op:" not in error.value.problem
    with pytest.raises(StoreError) as error, as_store_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert error.value.problem == "cannot be written: no space left on device" and "make room" in error.value.fix
