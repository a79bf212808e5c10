#!/usr/bin/env python3
"""compiler/plan/TypicalCore.def of what `pipec calibrate` wrote.

Usage: typical_core.py ALONE SHARED CROWDED > compiler/plan/TypicalCore.def

Cluster files of one server: of as many ranks as cores, each with one thread (what calls take); of one rank with all
threads (what sharing a loop costs); of more ranks than cores (what they cost each other). The quieter the cores, the
better; the header says how quiet those of the last were. Needs Python's standard library alone.
"""
import json, sys, textwrap

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
// Written by test/bench/typical_core.py from what pipec calibrate found on two
// cores of an AMD EPYC (Zen 3, AVX2), beside neighbours: its rounds were 1.15
// (what calls take) to 1.37 times apart.
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
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    (link, alone), (_, shared), (_, crowded) = map(device, sys.argv[1:])
    print(HEAD, end="")
    for member, key, of in (("taskSeconds", "task_us", alone), ("turnSeconds", "turn_us", alone),
                            ("launchSeconds", "launch_us", alone), ("ringSeconds", "ring_us", alone),
                            ("seenSeconds", "seen_us", alone), ("stepSeconds", "step_us", alone),
                            ("takeSeconds", "take_us", alone), ("noteSeconds", "note_us", alone),
                            ("crowdSeenSeconds", "crowd_seen_us", crowded),
                            ("crowdTurnSeconds", "crowd_turn_us", crowded),
                            ("wakeSeconds", "wake_us", shared), ("forkSeconds", "fork_us", shared),
                            ("intraLatency", "latency_us", link)):
        row("FIGURE", member, short(of.get(key, 0)))
    row("SHARE", "forkEfficiency", short(shared["fork_efficiency"]))
    row("RATE", "memoryBandwidth", short(alone["memory_GBps"]))
    row("RATE", "intraBandwidth", short(link["bandwidth_GBps"]))
    row("CACHE", "ownCacheBytes", short(alone["own_cache_KiB"]))
    for kind, key in ("NEAR", "kernels_ns"), ("FAR", "far_kernels_ns"):
        for name in sorted(alone[key]):
            row(kind, f'"{name}"', *(short(cost) for _, cost in sorted(alone[key][name].items())))
    for entry in alone["passes"]:
        row("PASS", short(entry["KiB"]), short(entry["ns_per_KiB"]))
    for macro in "FIGURE", "SHARE", "RATE", "CACHE", "NEAR", "FAR", "PASS":
        print("#undef " + macro)


if __name__ == "__main__":
    main()
