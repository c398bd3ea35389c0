#!/usr/bin/env bash
# Python with the real CuPy on the CPU: run.sh FOLDER ARGUMENTS..., FOLDER as build.sh made it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(cd "$1" && pwd)
shift
export REAL_CUPY=1  # for tests/conftest.py
export CUDAEMU_LIB=$folder/lib/libcudaemu.so CUDAEMU_CC=$here/compile_kernel.py
export CUDAEMU_PYTHON=$folder/venv/bin/python CUDAEMU_CACHE=$folder/kernels CUDAEMU_STRICT=0
export CUDAEMU_FLAGS=${CUDAEMU_FLAGS:--O2 -w -fpermissive}
export CUPY_CACHE_DIR=$folder/cache CUPY_ACCELERATORS= READTHEDOCS=True PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH=$folder/cupy-14.2.0:$here/../..${PYTHONPATH:+:$PYTHONPATH}
export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec "$folder/venv/bin/python" "$@"
