"""Compiled twins of the codec's hot paths, and the one place that decides whether they are used.

``kernels.c`` and the headers beside it are plain C over pointers and lengths, compiled when
mqlog is installed and called through ctypes. A kernel returns what it made, or that the input is
not its own; then numpy does the whole of it, so that errors have one source. Every kernel has
its numpy twin elsewhere in codec/, which is in use where there is no compiled file.

``library`` decides (MQSTORE_KERNELS=c|numpy), ``compiling`` makes the compiled file.
"""
