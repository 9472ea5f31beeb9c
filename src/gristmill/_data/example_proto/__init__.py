"""The `tf.train.Example` message, without TensorFlow or protobuf."""
