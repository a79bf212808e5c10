#!/bin/bash
# Installs what building and testing pipec needs, on Debian 12.
#
#   tools/setup.sh            compiler, LLVM and MLIR 22, libraries, Open MPI
#   tools/setup.sh --bench    also what test/bench compares with
#   tools/setup.sh --print    only names the packages that are missing
#
# Asks nothing; does nothing when all is there. Needs root or sudo otherwise.
set -euo pipefail

packages=(
  # tools
  cmake ninja-build clang-22 lld-22 g++ python3
  # the compiler
  libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools
  libonnx-dev libprotobuf-dev protobuf-compiler
  # libraries
  nlohmann-json3-dev libcli11-dev libgomp1
  # the runtime
  libopenmpi-dev openmpi-bin
  # tests: GoogleTest, sanitizers and libFuzzer
  libgtest-dev libgmock-dev libclang-rt-22-dev
)
print=0
for argument in "$@"; do
  case $argument in
  --bench) packages+=(libbenchmark-dev libdnnl-dev) ;;
  --print) print=1 ;;
  *)
    echo "setup.sh: unknown argument $argument" >&2
    exit 64
    ;;
  esac
done

is_installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

if ! command -v dpkg-query >/dev/null; then
  echo "setup.sh: this is no Debian; install the equivalents of: ${packages[*]}" >&2
  exit 69
fi
missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if ((print)); then
  printf '%s\n' "${missing[@]}"
  exit 0
fi
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: run as root, or install: ${missing[*]}" >&2
    exit 69
  fi
  as_root=(sudo)
fi
echo "setup.sh: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -q update </dev/null
if ! apt-cache show clang-22 >/dev/null 2>&1; then
  echo "setup.sh: clang-22 comes with Debian 12's security updates;" \
    "add 'deb http://deb.debian.org/debian-security bookworm-security main'" \
    "to apt's sources" >&2
  exit 69
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get -q -y install --no-install-recommends "${missing[@]}" </dev/null
