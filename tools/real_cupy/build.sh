#!/usr/bin/env bash
# The real CuPy on the CPU: build.sh FOLDER (about 6 minutes on two idle cores; nothing is installed elsewhere).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
version=14.2.0
mkdir -p "$1" && cd "$1"
[ -d venv ] || python3 -m venv venv
venv/bin/pip install -q 'setuptools>=77,<81' wheel 'Cython>=3.1,<3.3' fastrlock cuda-pathfinder -e "$root[test]"
[ -f "cupy-$version.tar.gz" ] || CUPY_INSTALL_USE_STUB=1 venv/bin/pip download -q \
  --no-binary :all: --no-deps --no-build-isolation "cupy==$version"
[ -d "cupy-$version" ] || tar xzf "cupy-$version.tar.gz"
venv/bin/python "$here/patch_cupy.py" "cupy-$version"
mkdir -p lib
g++ -O2 -std=c++17 -w -shared -fPIC "$here/emulated_driver.cpp" -o lib/libcudaemu.so
ln -sf libcudaemu.so lib/libcublas.so.13
cd "cupy-$version"
CUPY_INSTALL_USE_STUB=1 CUPY_NUM_BUILD_JOBS=2 ../venv/bin/python setup.py build_ext --inplace > ../build.log 2>&1
