"""Read a running RocketMQ cluster over its Remoting protocol, without a JVM client or Spark."""
