#!/bin/bash
# Checks a build on a machine with a GPU that has neither LLVM nor this tree.
#
#   tools/gpu-check.sh pack [--sanitizer] DIR [GOLDENS]
#                                  here: programs, plans and data into DIR; of
#                                  the models in the folder GOLDENS as well;
#                                  with compute-sanitizer (9 MB) for a machine
#                                  that has none
#   DIR/gpu-check.sh run [OUT] [--minutes 9] [--bring FOLDER]
#                    [--only PHASE ...] [--only-left RESULTS]
#                                  there: runs them; OUT.tar.gz has all that is
#                                  found after every phase, and is in FOLDER,
#                                  too, with results.json and log.txt;
#                                  --only-left: what another run's results.json
#                                  says that there was no time for
#   DIR/gpu-check.sh run --standin BUILD/test/standin
#                                  here: the same on stand-ins, for plans that
#                                  PIPEC_EMULATE=BUILD/test/bin/emulate-stages
#                                  was set for when they were packed
#
# What is run and compared is in test/bench/gpu_check.py. The machine needs
# NVIDIA's driver, and cuBLAS and cuDNN (of a toolkit, or of PyTorch's wheels);
# the times are compared with PyTorch's where that is installed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() {
  sed -n '2,23s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 64
}

# Shared libraries of a program, but for those of every Linux.
libraries() {
  ldd "$1" | awk '$3 ~ /^\// {print $3}' |
    grep -v -E '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+)\.so'
}

# This system's C library, for one that is older: with what drivers want of it.
c_library() {
  local name
  mkdir -p "$2"
  cp -L /lib64/ld-linux-x86-64.so.2 "$2"
  for name in libc.so.6 libm.so.6 libdl.so.2 librt.so.1 libpthread.so.0; do
    cp -L "$(dirname "$(ldd "$1" | awk '$1 == "libc.so.6" {print $3}')")/$name" "$2"
  done
  ldd "$1" | awk '$1 ~ /^lib(gcc_s|stdc\+\+)/ {print $3}' | xargs cp -L -t "$2"
}

# compute-sanitizer of NVIDIA's wheel: drivers come without one, toolkits with.
# On Hopper racecheck of versions before 13.5 fails itself ("Internal Sanitizer
# Error") at cuBLASLt's first product of bf16.
sanitizer() {
  local folder=$1/sanitizer
  if python3 -m pip download -q --no-deps -d "$folder" nvidia-cuda-sanitizer-api==13.5.25 >&2; then
    python3 -m zipfile -e "$folder"/*.whl "$folder"
    rm -rf "$folder"/*.whl "$folder"/nvidia/*/{include,compute-sanitizer/{docs,include,x86}}
    chmod -R +x "$folder"/nvidia
  else
    echo "packed without compute-sanitizer: pip cannot download it" >&2
  fi
}

pack() {
  local target root build wants_sanitizer=
  if [[ $1 == --sanitizer ]]; then
    wants_sanitizer=1
    shift
  fi
  target=$1
  root=$(dirname "$here")
  build=${PIPEC_BUILD:-$root/build}
  mkdir -p "$target/bin" "$target/lib"
  cp "$build/bin/pipec-run" "$target/bin"
  libraries "$build/bin/pipec-run" | xargs cp -L -t "$target/lib"
  c_library "$build/bin/pipec-run" "$target/libc"
  cp "$here/gpu-check.sh" "$target"
  [[ -z $wants_sanitizer ]] || sanitizer "$target"
  python3 "$root/test/bench/gpu_pack.py" "$target" "$root" "$build" "${@:2}"
  # Plans repeat each other, and all of it has to be carried.
  (cd "$target" && tar czf plans.tgz --remove-files $(ls -d plans sums data gpt2 resnet sanitizer 2>/dev/null))
  du -sh "$target" >&2
}

# Folders with NVIDIA's libraries: wheels that Python finds, toolkits.
nvidia_folders() {
  python3 - <<'PYTHON'
import glob, site, sys
folders = site.getsitepackages() + [site.getusersitepackages()] + sys.path
found = [path for folder in folders if folder for path in glob.glob(folder + "/nvidia/*/lib")]
found += glob.glob("/usr/local/cuda/lib64") + glob.glob("/usr/local/nvidia/lib*")
print(":".join(dict.fromkeys(found)))
PYTHON
}

# The libraries that are opened, of those in some folders: of each name and
# version the first.
opened() {
  (IFS=: && find -H ${1:-/nowhere} -maxdepth 1 -type f \
    -regex '.*/lib\(cublas\|cudnn\|nccl\).*\.so.*' -printf '%f\t%p\n' \
    2>/dev/null || true) |
    awk -F '\t' '{ name = $1; sub(/\.so\.[0-9]+.*/, "", name) ||
                     sub(/\.so$/, "", name)
                   version = $1; sub(/^.*\.so\.?/, "", version)
                   sub(/\..*/, "", version) }
                 !seen[name "." version]++ { print $2 }'
}

# What is done once, in the time of a run. What has carried the folder may not
# have kept modes, and the libraries are more than a gigabyte, which the first
# program would read from the disk in its own time.
prepare() {
  local folders
  [[ -d $here/plans ]] || tar xzf "$here/plans.tgz" -C "$here"
  chmod +x "$here"/bin/* "$here"/libc/ld-* 2>/dev/null || true
  folders=$(nvidia_folders)
  export GPU_CHECK_LIBRARIES=$folders
  opened "$folders" | timeout 60 xargs -d '\n' -r -P 8 -n 1 cat >/dev/null ||
    true
}

case ${1:-} in
pack)
  words=$#
  [[ ${2:-} != --sanitizer ]] || words=$((words - 1))
  [[ $words == 2 || $words == 3 ]] || usage
  pack "${@:2}"
  ;;
run)
  # The minutes of a run begin here; some write a comma in it.
  export GPU_CHECK_BEGUN=${EPOCHREALTIME/,/.}
  prepare
  exec python3 "$here/gpu_check.py" "$here" "${@:2}"
  ;;
*) usage ;;
esac
