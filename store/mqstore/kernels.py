"""Tells which kernels of the codec are in use: the compiled ones, or those in numpy."""

from mqstore.codec.kernels.library import C as COMPILED
from mqstore.codec.kernels.library import KernelsInUse, kernels_in_use

__all__ = ["COMPILED", "KernelsInUse", "kernels_in_use"]
