"""These tests run what the TensorFlow process runs, in this process."""

from headway.process import own

own()
