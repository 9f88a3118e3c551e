"""Read and write Apache RocketMQ store directories, without a broker and without Spark."""

__version__ = "0.1.0"
