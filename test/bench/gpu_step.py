#!/usr/bin/env python3
"""What one step costs on a GPU, on paper: the table of all calls that pipec lists, with the time they would take.

Usage: pipec MODEL.onnx --gpus 1 … --emit calls | gpu_step.py [--microbatches N] [--tokens N] [--bandwidth GB/s] [--tflops N]

Calls that do the same count as one line. A product takes its operations over --tflops or its bytes over --bandwidth,
whichever is more, everything else its bytes: each tensor once, plus `again`, what rows too long for registers are read
again where caches do not hold them. Launches, tails and slow kernels are not in it. Without --gpus 1 there is a file a
stage (-o): name those.
"""
import argparse
import collections
import csv
import fileinput

# Bytes of a row that stay in a cache from one walk to the next, beside those of all blocks at a time.
LONGEST_ROW = 32 << 10
# Tasks that run for every microbatch; others once a step.
REPEATED = ("forward", "backward", "backward_input", "backward_weight", "recompute")


def kind_of(row):
    """The group that a call belongs to, by what it is and what it computes."""
    names = {op.split("*")[0] for op in row["ops"].split()}
    if row["task"] == "update":
        return "optimizer"
    if row["call"].split()[0] in ("matmul", "conv"):
        return "products"
    if any(name.startswith("attention") for name in names):
        return "attention"
    if row["call"].startswith("clear") or names & {"gather", "scatter_add"}:
        return "rows by index"
    if "loss" in row["nodes"].split():
        return "loss"
    if names & {"tanh", "erf", "sigmoid", "exp", "relu"}:
        return "activations"
    if any(name.startswith("reduce") for name in names):
        return "sums, norms"
    return "copies" if names == {"copy"} else "casts" if names == {"cast"} else "others"


def read_calls(files):
    rows = []
    for row in csv.DictReader(fileinput.input(files), delimiter="\t"):
        if row["task"] != "task":
            for key in ("blocks", "threads", "read", "written", "walks", "flops"):
                row[key] = int(row[key])
            rows.append(row)
    return rows


def seconds(row, options):
    bytes_ = row["read"] + row["written"] + row["again"]
    return max(bytes_ / options.bandwidth / 1e9, row["flops"] / options.tflops / 1e12)


def add_up(rows, options):
    """Lines of equal calls, the dearest first, and the sums of each kind."""
    lines, kinds = {}, collections.defaultdict(collections.Counter)
    for row in rows:
        row["again"] = row["read"] * (row["walks"] - 1) if row["walks"] > 1 and is_long(row) else 0
        times = options.microbatches if row["task"].startswith(REPEATED) else 1
        key = tuple(row[key] for key in ("task", "blocks", "threads", "read", "written", "flops", "ops"))
        line = lines.setdefault(key, dict(row, count=0, kind=kind_of(row), seconds=0))
        line["count"] += times
        line["seconds"] += times * seconds(row, options)
        kinds[line["kind"]].update({"count": times, "seconds": times * seconds(row, options), **{
            key: times * row[key] for key in ("read", "written", "again", "flops")}})
    return sorted(lines.values(), key=lambda line: -line["seconds"]), kinds


def is_long(row):
    """Whether a row of the kernel is too long to stay on the chip, by what a block of it reads."""
    return row["blocks"] and row["read"] / row["blocks"] > LONGEST_ROW and row["threads"] > 256


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--microbatches", type=int, default=1)
    parser.add_argument("--tokens", type=int, help="of a microbatch: prints tokens a second")
    parser.add_argument("--bandwidth", type=float, default=4200, help="GB/s that kernels reach (H200: 88 %% of 4800)")
    parser.add_argument("--tflops", type=float, default=650, help="that products of bf16 reach")
    options = parser.parse_args()
    lines, kinds = add_up(read_calls(options.files), options)
    print("%-16s %5s %9s %9s %9s %9s %9s  %s" % ("task", "calls", "read MB", "writ. MB", "again MB", "GFLOP", "ms", "what"))
    for line in lines:
        each = [line["count"] * line[key] / scale
                for key, scale in (("read", 1e6), ("written", 1e6), ("again", 1e6), ("flops", 1e9))]
        print("%-16s %5d %9.0f %9.0f %9.0f %9.0f %9.3f  %s: %s %s [%s]" % (
            line["task"], line["count"], *each, 1e3 * line["seconds"], line["kind"], line["call"],
            "%d x %d" % (line["blocks"], line["threads"]) if line["threads"] else "", line["ops"][:150]))
    print()
    total = collections.Counter()
    for kind, sums in sorted(kinds.items(), key=lambda item: -item[1]["seconds"]):
        total.update(sums)
    for kind, sums in [*sorted(kinds.items(), key=lambda item: -item[1]["seconds"]), ("all", total)]:
        print("%-16s %5d %9.0f %9.0f %9.0f %9.0f %9.3f" % (
            kind, sums["count"], sums["read"] / 1e6, sums["written"] / 1e6, sums["again"] / 1e6, sums["flops"] / 1e9,
            1e3 * sums["seconds"]))
    if options.tokens:
        print("%.0f tokens/s" % (options.tokens * options.microbatches / total["seconds"]))


if __name__ == "__main__":
    main()
