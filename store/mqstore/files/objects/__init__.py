"""The files of stores in object stores and HDFS, read through pyarrow.fs by ranges of bytes."""
