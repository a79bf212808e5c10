#!/usr/bin/env python3
"""Steps of small products in several threads: all loops shared, and tried.

Usage: loop_sharing.py BIN [--rows 16,64,256] [--threads 2] [--steps 400] [--repeats 3]

BIN holds pipec and pipec-run. A chain of 16 products of ROWS by 64 x 64, with a relu each, is trained on one rank of so
many threads, in turns with PIPEC_LOOPS=shared and as it is; medians over the repeats, in us a step, and their ratio. What
comes out depends on how far apart the cores are: run it again some minutes later on a virtual machine. Needs the
packages onnx and numpy.
"""
import argparse, json, os, pathlib, statistics, subprocess, tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, LAYERS, MICROBATCHES = 64, 16, 8


def write(folder, rows):
    random = numpy.random.default_rng(1)
    nodes, weights, last = [], [], "input"
    for layer in range(LAYERS):
        weights.append(numpy_helper.from_array(random.normal(0, 0.1, (WIDTH, WIDTH)).astype("f4"), f"weight{layer}"))
        nodes.append(helper.make_node("MatMul", [last, f"weight{layer}"], [f"product{layer}"]))
        last = f"relu{layer}" if layer + 1 < LAYERS else "logits"
        nodes.append(helper.make_node("Relu", [f"product{layer}"], [last]))
    shaped = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, WIDTH])
    graph = helper.make_graph(nodes, "products", [shaped("input")], [shaped("logits")], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
    samples = rows * MICROBATCHES
    numpy.save(folder / "input.npy", random.normal(size=(samples, WIDTH)).astype("f4"))
    numpy.save(folder / "labels.npy", random.integers(0, WIDTH, samples))


def step(options, folder, loops):
    environment = dict(os.environ, PIPEC_LOOPS=loops)
    metrics = folder / "metrics.jsonl"
    subprocess.run([options.tools / "pipec-run", folder / "plan", "--data", f"input={folder}/input.npy", "--data",
                    f"labels={folder}/labels.npy", "--steps", str(options.steps), "--threads", str(options.threads),
                    "--metrics", metrics, "--quiet"], check=True, env=environment, stdout=subprocess.DEVNULL)
    return statistics.median(json.loads(line)["seconds"] for line in metrics.read_text().splitlines()[1:-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--rows", default="16,64,256")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{'rows':>6}{'shared':>10}{'tried':>10}  shared / tried")
    for rows in options.rows.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            write(folder, int(rows))
            subprocess.run([options.tools / "pipec", folder / "model.onnx", "--cpus", "1", "--microbatches",
                            str(MICROBATCHES), "--loss", "cross-entropy", "--quiet", "-o", folder / "plan"], check=True)
            runs = [(step(options, folder, "shared"), step(options, folder, "tried")) for _ in range(options.repeats)]
        shared, tried = (1e6 * statistics.median(column) for column in zip(*runs))
        print(f"{rows:>6}{shared:10.0f}{tried:10.0f}  {shared / tried:.2f}", flush=True)


if __name__ == "__main__":
    main()
