"""What numba does for every function and our kernels do not need, left out while they compile.

Kernels make no arrays, so there are no references to count. All their parts are optimised together
in the end, so what comes before need only tidy them up for that. Numbers are added and compared a
hundred times in a kernel, so what that gives is found out once.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

OPTIONS = {"_nrt": False}  # references to arrays are not counted
# Variables leave memory and small branches become choices, as loops need it to vectorise.
TIDYING = ("sroa", "simplify_cfg", "instruction_combine", "simplify_cfg")


@contextlib.contextmanager
def lean() -> Iterator[None]:
    """Meanwhile this thread alone compiles, and nothing but such kernels."""
    lock = importlib.import_module("numba.core.compiler_lock").global_compiler_lock
    function = importlib.import_module("numba.core.types.functions").BaseFunction
    codegen = importlib.import_module("numba.core.registry").cpu_target.target_context.codegen()
    with lock:
        find, codegen._library_class = function.get_call_type, _library(codegen._library_class)
        function.get_call_type = _remembering(find)
        try:
            yield
        finally:
            function.get_call_type = find
            del codegen._library_class  # that of its class again


@cache
def _library(usual: type[Any]) -> type[Any]:
    llvm = importlib.import_module("llvmlite.binding")

    class Library(usual):  # type: ignore[misc]
        """Where a kernel and its parts become machine code."""

        def _optimize_functions(self, module: Any) -> None:
            if not hasattr(self._codegen, "_pass_builder"):  # an older numba
                super()._optimize_functions(module)
                return
            module.data_layout = self._codegen._data_layout
            for function in module.functions:
                if not function.is_declaration:
                    passes = llvm.create_new_function_pass_manager()
                    for name in TIDYING:
                        getattr(passes, f"add_{name}_pass")()
                    passes.run(function, self._codegen._pass_builder())

    return Library


_found: dict[tuple[Any, Any], Any] = {}


def _remembering(find: Callable[..., Any]) -> Callable[..., Any]:
    """numba's way to find the signature of a call, once for each operator and kinds of numbers."""
    types = importlib.import_module("numba.core.types")
    numbers = types.Number, types.Boolean

    def signature(function: Any, context: Any, arguments: Any, names: Any) -> Any:
        operator = getattr(function.typing_key, "__module__", "") == "_operator"
        if names or not operator or not all(isinstance(each, numbers) for each in arguments):
            return find(function, context, arguments, names)
        call = function, arguments
        if call not in _found:
            _found[call] = find(function, context, arguments, names)
        return _found[call]

    return signature
