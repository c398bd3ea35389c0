"""CUDA C kernels executed on the CPU: compiled by g++ with cudaemu.h, launched with checks."""

from .compiler import Compiler, EmulationError, compiler_missing
from .module import Function, Module

__all__ = ["Compiler", "EmulationError", "Function", "Module", "compiler_missing"]
