#!/bin/bash
# Sets up, builds and runs all tests; fails when anything does.
#
#   tools/check.sh [CTEST ARGUMENTS...]      e.g. -R lit
#
# BUILD names the build folder (default: build).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${BUILD:-build}

tools/setup.sh --cuda
cmake -S . -B "$build" -G Ninja -DBUILD_TESTING=ON
cmake --build "$build"
exec ctest --test-dir "$build" --output-on-failure -j "$(nproc)" "$@"
