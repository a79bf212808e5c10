#!/usr/bin/env python3
"""Exact planners against brute force on tens of thousands of random small graphs.

Usage: plan_bruteforce.py BIN [--times 10]

BIN holds plan_test and published_test. Runs those of their tests that compare a search with an enumeration of its whole
search space, on TIMES as many graphs as the unit tests take, and prints how many each was. Exit 1 when any differs.
"""
import argparse, os, pathlib, re, subprocess, sys

TESTS = {"plan_test": "ChainSearch.EqualsBruteForce:Planner.EqualsBruteForceOnSmallModels:OwnObjective.*",
         "published_test": "*.EqualsBruteForce:Placement.ContiguousEqualsBruteForce"}
# Graphs of each test as the unit tests take them (their `rounds`).
SOURCE = pathlib.Path(__file__).resolve().parents[1] / "unit/plan"


def usual_rounds():
    """Test name -> rounds, read from the tests."""
    known = {}
    for file in SOURCE.glob("*Test.cpp"):
        for test in re.split(r"\nTEST\(", file.read_text())[1:]:
            name = re.match(r"(\w+), (\w+)", test)
            count = re.search(r"round < rounds\((\d+)\)", test)
            if count:
                known[f"{name[1]}.{name[2]}"] = int(count[1])
    return known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=pathlib.Path)
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    usual, graphs, failed = usual_rounds(), 0, False
    for program, tests in TESTS.items():
        done = subprocess.run([options.tools / program, f"--gtest_filter={tests}"], capture_output=True, text=True,
                              env=dict(os.environ, PIPEC_BRUTE_FORCE_TIMES=str(options.times)))
        for state, test, milliseconds in re.findall(r"\[\s+(OK|FAILED)\s+\] (\w+\.\w+) \((\d+) ms\)", done.stdout):
            count = usual[test] * options.times
            graphs += count
            print(f"{test:45} {count:7} graphs {int(milliseconds) / 1e3:8.1f} s  {state}")
        failed |= done.returncode != 0
    print(f"{graphs} graphs")
    sys.exit(failed)


if __name__ == "__main__":
    main()
