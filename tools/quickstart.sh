#!/bin/bash
# From nothing to a trained model: installs what is missing, builds, compiles
# the GPT-2 of examples/gpt2 into a pipeline of four processes, trains it on
# "Alice in Wonderland" and leaves trained.onnx and report.html.
#
#   tools/quickstart.sh [STEPS]      default: 100
#
# BUILD names the build folder (default: build).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${BUILD:-build}
steps=${1:-100}
out=$build/quickstart

say() { printf '\n== %s\n' "$*"; }

say "packages"
tools/setup.sh

say "build"
cmake -S . -B "$build" -G Ninja
cmake --build "$build" --target pipec pipec-run

say "compile: four stages, one process each"
rm -rf "$out"
mkdir -p "$out"
python3 examples/gpt2/tokens.py examples/gpt2/alice.txt -o "$out/tokens.npy"
"$build/bin/pipec" examples/gpt2/model.onnx --cpus 1x4 --dim batch=4 \
  --microbatches 8 --loss next-token --optimizer adamw:lr=1e-3 \
  --strategy 1f1b --stages 4 -o "$out/plan"

say "train: $steps steps"
"$build/bin/pipec-run" "$out/plan" --data input_ids="$out/tokens.npy" \
  --steps "$steps" --metrics "$out/metrics.jsonl" \
  --export "$out/trained.onnx"

say "result"
python3 - "$out/metrics.jsonl" <<'PYTHON'
import json
import sys

losses = [line["loss"] for line in map(json.loads, open(sys.argv[1]))
          if "loss" in line]
print("loss of step 1: %.3f   of the last: %.3f" % (losses[0], losses[-1]))
if not losses[-1] < losses[0]:
    sys.exit("quickstart.sh: the loss did not fall")
PYTHON
cp "$out/plan/report.html" "$out/report.html"
echo "$out/trained.onnx   the model with its trained weights"
echo "$out/report.html    the plan and the run, as a page"
echo "$build/bin/pipec inspect $out/plan    the same here, and more of it"
