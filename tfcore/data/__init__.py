"""The tf.data input pipeline: shards in, batches out, in an order that can be repeated."""
