#!/usr/bin/env python3
"""compiler/plan/TypicalCore.def of what `pipec calibrate` wrote.

Usage: typical_core.py MACHINE ALONE SHARED CROWDED > compiler/plan/TypicalCore.def

Cluster files of one server: of as many ranks as cores, each with one thread (what calls take); of one rank with all
threads (what sharing a loop costs); of more ranks than cores (what they cost each other). Of a machine whose vector
registers have 32 bytes: plan/TypicalCore takes a part of that where they have 64. The quieter the cores, the better.
MACHINE says for the header which one it was and how quiet: "two cores of an AMD EPYC (Zen 3, AVX2), beside neighbours".
Needs Python's standard library alone.
"""
import json, sys, textwrap

DEFAULTS = {"seen_us": 3, "crowd_seen_us": 3}  # of DeviceModel, which a cluster file leaves out; else 0
HEAD = """\
//===- TypicalCore.def - what a core takes that nobody has timed ----------===//
//
// FIGURE(member of DeviceModel, microseconds)
// SHARE(member of DeviceModel, of 1)
// RATE(member of DeviceModel, G a second)
// CACHE(member of DeviceModel, KiB)
// NEAR(routine, nanoseconds of each of its kernelAmounts(), by their names'
// order), FAR likewise for operands that have left a core's own cache
// PASS(KiB, nanoseconds of one)
//
%s
//
//===----------------------------------------------------------------------===//
// clang-format off
"""


def device(path):
    with open(path) as file:
        cluster = json.load(file)
    return cluster["levels"][-1], cluster["device"]


def short(number):
    return f"{number if number > 1e-9 else 0:.3g}"


def row(kind, *words):
    head = kind + "("
    text = textwrap.wrap(", ".join(words) + ")", 80 - len(head), break_on_hyphens=False)
    print(head + ("\n" + " " * len(head)).join(text))


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    (link, alone), (_, shared), (_, crowded) = map(device, sys.argv[2:])
    written = "Written by test/bench/typical_core.py from what pipec calibrate found on " + sys.argv[1] + "."
    print(HEAD % "\n".join("// " + line for line in textwrap.wrap(written, 77)), end="")
    for member, key, of in (("taskSeconds", "task_us", alone), ("turnSeconds", "turn_us", alone),
                            ("launchSeconds", "launch_us", alone), ("ringSeconds", "ring_us", alone),
                            ("seenSeconds", "seen_us", alone), ("stepSeconds", "step_us", alone),
                            ("takeSeconds", "take_us", alone), ("noteSeconds", "note_us", alone),
                            ("crowdSeenSeconds", "crowd_seen_us", crowded),
                            ("crowdTurnSeconds", "crowd_turn_us", crowded),
                            ("wakeSeconds", "wake_us", shared), ("forkSeconds", "fork_us", shared),
                            ("intraLatency", "latency_us", link)):
        row("FIGURE", member, short(of.get(key, DEFAULTS.get(key, 0))))
    row("SHARE", "forkEfficiency", short(shared["fork_efficiency"]))
    row("RATE", "memoryBandwidth", short(alone["memory_GBps"]))
    row("RATE", "intraBandwidth", short(link["bandwidth_GBps"]))
    row("CACHE", "ownCacheBytes", f"{alone['own_cache_KiB']:.6g}")
    for kind, key in ("NEAR", "kernels_ns"), ("FAR", "far_kernels_ns"):
        for name in sorted(alone[key]):
            row(kind, f'"{name}"', *(short(cost) for _, cost in sorted(alone[key][name].items())))
    for entry in alone["passes"]:
        row("PASS", f"{entry['KiB']:.6g}", short(entry["ns_per_KiB"]))
    for macro in "FIGURE", "SHARE", "RATE", "CACHE", "NEAR", "FAR", "PASS":
        print("#undef " + macro)


if __name__ == "__main__":
    main()
