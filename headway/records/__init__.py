"""Row groups as tf.train.Example, and the TFRecord files that hold them."""
