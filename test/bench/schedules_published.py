#!/usr/bin/env python3
"""Our schedules beside published ones: reproduced, beaten, bounded, timed.

Usage: schedules_published.py PIPEC [--markdown] [--exact BENCH] [--cells N]

PIPEC is pipec or the stand-alone pipec-schedule. Published figures come from
schedules_published.json, which names their sources; nothing published is run
here. --exact names the program schedules_exact (ninja schedules_exact), whose
table of optima is then part of the output. --cells stops after N cells.
--markdown prints docs/schedules.md.

Exit code 1 when a published order is not reproduced, or some cell of ours is
worse than a published one of the same peak memory.
"""
import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# Ours, published, chunks: the same order, so the same figures on every cell.
SAME = [("gpipe", "GPipe", 1), ("1f1b", "1F1B", 1), ("interleaved-1f1b", "1F1B-I_v2", 2),
        ("interleaved-1f1b", "1F1B-I_v3", 3), ("interleaved-1f1b", "1F1B-I_v4", 4),
        ("looped-bfs", "LoopedBFS_v2", 2), ("zb-h1", "ZB-H1", 1), ("zb-h2", "ZB-H2", 1),
        ("interleaved-zb", "InterleavedZeroBubble_v2(PyTorch)", 2),
        ("interleaved-zb", "InterleavedZeroBubble_v3(PyTorch)", 3),
        ("interleaved-zb", "InterleavedZeroBubble_v4(PyTorch)", 4)]
# Ours, published, whether ours is held to the memory of the published one.
SEARCHED = [("zb", "ZB-1p", True), ("zb", "ZB-1.5p", True), ("zb", "ZB-2p", True),
            ("zb-v", "ZB-V", False), ("v-half", "V-Half", False), ("v-min", "V-Min", False),
            ("1f1b-v", "1F1B-V", False)]


class Table:
    """Rows that come out aligned as text and as markdown."""

    def __init__(self, *head):
        self.rows = [head]

    def add(self, *cells):
        self.rows.append([str(cell) for cell in cells])

    def text(self):
        width = [max(len(row[c]) for row in self.rows) for c in range(len(self.rows[0]))]
        lines = ["| " + " | ".join(x.ljust(w) for x, w in zip(row, width)) + " |" for row in self.rows]
        lines.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
        return "\n".join(lines)


def cpu_seconds():
    """Of all finished children: what a busy machine does not change."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Ours:
    def __init__(self, program):
        self.program = program

    def run(self, name, cell, *extra):
        """The JSON of `pipec schedule`, or None where it refuses the sizes."""
        f, b, w, comm = cell["time"]
        words = [self.program, "schedule", name, "--stages", cell["p"], "--microbatches", cell["m"],
                 "--time", f"F={f},B={b},W={w},comm={comm}",
                 "--memory", "F={},B={},W={}".format(*cell["memory"]), "--format", "json", *extra]
        done = subprocess.run([str(x) for x in words], capture_output=True, text=True)
        if done.returncode in (64, 79):
            return None
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
        return json.loads(done.stdout)


def name_of(cell):
    return f"{cell['profile']} P={cell['p']} M={cell['m']}"


def reproduced(ours, cells):
    """Each cost-blind generator against its published cells."""
    table = Table("schedule", "published as", "cells", "largest difference of bubbles", "of peaks")
    good = True
    for name, published, chunks in SAME:
        bubble = peak = count = 0
        for cell in cells:
            row = cell["rows"].get(published)
            got = row and ours.run(name, cell, *(["--chunks", chunks] if chunks > 1 else []))
            if not got:
                continue
            count += 1
            bubble = max(bubble, abs(got["bubble_makespan"] - row[1]), abs(got["bubble_span"] - row[2]))
            peak = max(peak, abs(max(got["peak"]) - row[0]))
        good = good and bubble <= 1e-5 and peak <= 1e-4
        table.add(name + (f" --chunks {chunks}" if chunks > 1 else ""), published, count,
                  f"{bubble:.1e}", f"{peak:.1e}")
    return table, good


def searched(ours, cells):
    """Each searched schedule against the published one it is named after."""
    table = Table("schedule", "published as", "cells", "shorter", "equal", "longer", "more memory")
    for name, published, limited in SEARCHED:
        counts = [0, 0, 0]
        more = 0
        for cell in cells:
            row = cell["rows"].get(published)
            extra = ["--memory-limit", row[0] + 1e-3] if row and limited else []
            got = row and ours.run(name, cell, "--metric", "span", *extra)
            if not got:
                continue
            difference = got["bubble_span"] - row[2]
            counts[0 if difference < -1e-5 else 2 if difference > 1e-5 else 1] += 1
            more += max(got["peak"]) > row[0] + 2e-3
        table.add(name + (" in its memory" if limited else ""), published, sum(counts), *counts, more)
    return table


def frontier(cell, metric):
    """(peak, bubble, name) of the published rows that no other one of less memory beats."""
    best = math.inf
    for published, row in sorted(cell["rows"].items(), key=lambda item: (round(item[1][0], 4), item[1][metric])):
        if "2x" not in published and row[metric] < best:
            best = row[metric]
            yield row[0], best, published


def beaten(ours, cells):
    """`auto` at every published peak memory, both metrics."""
    table = Table("cell", "metric", "memory", "best published", "its bubble", "ours", "lower bound",
                  "gap to it", "s")
    better = equal = worse = 0
    for cell in cells:
        for metric, column in (("makespan", 1), ("span", 2)):
            for peak, bubble, published in frontier(cell, column):
                begin = cpu_seconds()
                got = ours.run("auto", cell, "--chunks", "auto", "--memory-limit", peak + 1e-3,
                               "--metric", metric)
                mine = got["bubble_" + metric] if got else 1
                better += mine < bubble - 1e-5
                equal += abs(mine - bubble) <= 1e-5
                worse += mine > bubble + 1e-5
                work = sum(cell["time"][:3]) * cell["m"]
                bound = max(0.0, 1 - work / got["bound"])
                table.add(name_of(cell), metric, f"{peak:.3f}", published, f"{bubble:.4f}", f"{mine:.4f}",
                          f"{bound:.4f}", f"{abs(100 * (got[metric] / got['bound'] - 1)):.2f} %",
                          f"{cpu_seconds() - begin:.2f}")
    return table, (better, equal, worse)


def timed(program):
    """Processor seconds of whole commands, and of `auto` over sizes."""
    def seconds(*words):
        begin = cpu_seconds()
        with tempfile.TemporaryFile() as sink:
            subprocess.run([program, "schedule", *map(str, words)], check=True, stdout=sink)
        return cpu_seconds() - begin

    large = Table("schedule", "P", "M", "tasks", "s")
    for name, kinds, chunks in (("gpipe", 2, 1), ("1f1b", 2, 1), ("zb-h1", 3, 1), ("zb-h2", 3, 1),
                                ("interleaved-1f1b", 2, 2), ("interleaved-zb", 3, 2), ("gems", 2, 1)):
        extra = ["--chunks", chunks] if chunks > 1 else []
        for p, m in ((256, 2048), (1024, 8192)):
            took = seconds(name, "--stages", p, "--microbatches", m, *extra)
            large.add(name, p, m, f"{p * m * chunks * kinds / 1e6:.1f} M", f"{took:.2f}")
    auto = Table("P", "M", "s")
    for p, m in ((4, 16), (8, 24), (8, 64), (16, 64), (32, 128), (32, 256), (64, 512)):
        auto.add(p, m, f"{seconds('auto', '--stages', p, '--microbatches', m):.3f}")
    return large, auto


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pipec")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--exact")
    parser.add_argument("--cells", type=int)
    options = parser.parse_args()
    data = json.load(open(os.path.join(HERE, "schedules_published.json")))
    cells = data["cells"][:options.cells]
    ours = Ours(options.pipec)
    title = "## " if options.markdown else ""
    if options.markdown:
        print("# Schedules: what they reach\n\nWritten by `test/bench/schedules_published.py --markdown`; the bubble is "
              "(cost - M(F+B+W)) / cost, memory\ncounts microbatches of a device's activations. Makespan: last end - "
              "first start over all devices. Span: the\nlongest device from its own first start to its own last end.\n")
    table, same = reproduced(ours, cells)
    print(f"{title}Published orders, reproduced\n\n{table.text()}\n")
    table = searched(ours, cells)
    print(f"{title}Searched orders beside those they are named after\n\nSpan, the metric they were published for.\n\n"
          f"{table.text()}\n")
    table, (better, equal, worse) = beaten(ours, cells)
    print(f"{title}`auto` at every published peak memory\n\nThe lower bound holds for all orders on all placements that "
          f"auto searches (up to four stages\non a device).\n\n{table.text()}\n\n{better} shorter, {equal} equal, "
          f"{worse} longer of {better + equal + worse}.\n")
    if options.exact:
        done = subprocess.run([options.exact], capture_output=True, text=True, check=True)
        print(f"{title}Optima of small problems\n\nMakespan. Found: by the heuristics alone. Optimum: by branch and "
              f"bound on that placement; a range where it\ngave up, from the lower bound to the best known.\n\n"
              f"{done.stdout}")
    large, auto = timed(options.pipec)
    print(f"{title}Time to make them\n\nProcessor time of whole commands, which use one core: generate, verify, simulate, print figures. Closed "
          f"forms are linear in the\nnumber of tasks.\n\n{large.text()}\n\n`auto` spends a fixed effort for each task, "
          f"up to a most.\n\n{auto.text()}\n")
    print(f"{title}Sources of the published figures\n")
    print("\n".join(f"* {k}: {v}" for k, v in data["sources"].items()))
    sys.exit(0 if same and worse == 0 else 1)


if __name__ == "__main__":
    main()
