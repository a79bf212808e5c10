#!/bin/bash
# Installs what building and testing pipec needs, on Debian 12.
#
#   tools/setup.sh            compiler, LLVM and MLIR 22, libraries, Open MPI
#   tools/setup.sh --bench    also what test/bench compares with
#   tools/setup.sh --cuda     also NVIDIA's assembler, disassembler and math
#                             functions for GPUs, from PyPI, if not there
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
  nlohmann-json3-dev libcli11-dev
  # the runtime
  libopenmpi-dev openmpi-bin
  # tests: GoogleTest, sanitizers and libFuzzer
  libgtest-dev libgmock-dev libclang-rt-22-dev
)
print=0
cuda=0
for argument in "$@"; do
  case $argument in
  --bench) packages+=(libbenchmark-dev libdnnl-dev) ;;
  --cuda) cuda=1 ;;
  --print) print=1 ;;
  *)
    echo "setup.sh: unknown argument $argument" >&2
    exit 64
    ;;
  esac
done

# Where pipec looks for ptxas and libdevice.
has_toolkit() {
  local ptxas root=${CUDA_HOME:-${CUDA_PATH:-}}
  if [[ $root ]]; then
    [[ -x $root/bin/ptxas && -e $root/nvvm/libdevice/libdevice.10.bc ]]
    return
  fi
  ptxas=$(command -v ptxas || echo /usr/local/cuda/bin/ptxas)
  [[ -x $ptxas ]] || return 1
  root=$(dirname "$(dirname "$(readlink -f "$ptxas")")")
  [[ -e $root/nvvm/libdevice/libdevice.10.bc ||
    -e /usr/local/cuda/nvvm/libdevice/libdevice.10.bc ]]
}
wheels=() # PyPI packages that files are taken of
if ((cuda)); then
  has_toolkit || wheels+=(nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88)
  command -v nvdisasm >/dev/null || wheels+=(nvidia-cuda-nvdisasm==13.2.86)
  if ((${#wheels[@]})) && ! python3 -m pip --version >/dev/null 2>&1; then
    packages+=(python3-pip)
  fi
fi

# Not needed for anything else: without them GPU code ends at PTX.
leave_out() {
  echo "setup.sh: $1; machine code for GPUs and its tests are left out" >&2
}
install_wheels() {
  local folder tool link root=/usr/local/lib/pipec-cuda
  folder=$(mktemp -d)
  if ! python3 -m pip download -q --no-deps -d "$folder" "${wheels[@]}" \
    </dev/null; then
    rm -rf "$folder"
    leave_out "no ${wheels[*]} from PyPI"
    return
  fi
  python3 - "$folder" <<'PYTHON'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in folder.glob("*.whl"):
    with zipfile.ZipFile(wheel) as files:
        for name in files.namelist():
            if name.endswith(("/ptxas", "/nvdisasm", "/libdevice.10.bc")):
                files.extract(name, folder)
PYTHON
  chmod +x "$folder"/nvidia/cu13/bin/*
  "${as_root[@]}" mkdir -p "$root"
  "${as_root[@]}" cp -r "$folder/nvidia/cu13/." "$root"
  for tool in "$folder"/nvidia/cu13/bin/*; do
    link=/usr/local/bin/$(basename "$tool")
    if [[ -e $link && $(readlink "$link") != "$root"/* ]]; then
      leave_out "$link is another installation's"
    else
      "${as_root[@]}" ln -sf "$root/bin/$(basename "$tool")" "$link"
    fi
  done
  rm -rf "$folder"
}

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
if ((${#missing[@]} == 0 && ${#wheels[@]} == 0)); then
  exit 0
fi
if ((print)); then
  printf '%s\n' "${missing[@]}" "${wheels[@]}"
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ((${#missing[@]} == 0)) && ! sudo -n true 2>/dev/null; then
    leave_out "not root, for ${wheels[*]}"
    exit 0
  fi
  if ! command -v sudo >/dev/null; then
    echo "setup.sh: run as root, or install: ${missing[*]}" >&2
    exit 69
  fi
  as_root=(sudo)
fi
if ((${#missing[@]})); then
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
fi
if ((${#wheels[@]})); then
  install_wheels
fi
