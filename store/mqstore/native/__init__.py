"""The same as codec/ in C, for work whose whole read, write or rebuild is faster by it.

``kernels.c`` and the headers beside it are plain C over pointers and lengths, compiled when mqlog
is installed and called through ctypes. numpy is the definition: a kernel returns what it made, or
that the input is not its own, and then numpy does the whole of it, so that errors have one source.

``registry`` chooses (MQSTORE_KERNELS=c|numpy), ``declarations`` reads structures and functions from
the headers, ``compiling`` makes the compiled file. The other modules are the kernels, a function or
a class for each function of the library.
"""
