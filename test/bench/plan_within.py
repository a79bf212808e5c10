#!/usr/bin/env python3
"""PipeDream's problem under memory limits: what `pipec partition` finds, and how long it takes.

Usage: plan_within.py PIPEC FOLDER [--against OTHER] [--only TEXT] [--seconds X]

PIPEC is pipec or pipec-partition; FOLDER holds PipeDream's profiles. Each of them, and chains and branches made up here,
on several clusters, below 90, 70, 50 and 40 % of what the plan without a limit keeps, or with the limit that is named
where nothing fits. --against names an older build, whose objectives stand beside. Exit 1 when one is worse than the older
build's, or takes over X seconds of the processor (1) or 200 MB.
"""
import argparse, json, os, pathlib, random, re, subprocess, sys, tempfile

CLUSTERS = [("2x8", "3.125e9,3e10"), ("4x4", "1.25e9,1e10"), ("8x8", "1.25e9,1e10"), ("16x8", "1.25e9,1e10"),
            ("64x4", "1.25e9,1e10"), ("2x4x4", "1.25e9,1e10,3e10")]
SHARES = (0.9, 0.7, 0.5, 0.4)


def kept_bytes(path):
    """Weights and outputs of each node."""
    kept = {}
    for line in open(path):
        field = lambda name: sum(map(float, re.search(name + r"=\[?([0-9.eE+; -]*)", line)[1].rstrip("- ").split(";")))
        if not line.startswith("\t") and " -- " in line:
            kept[line.split(" -- ")[0]] = field("activation_size") + field("parameter_size")
    return kept


def most_kept(plan, kept):
    behind, most = 0, 0
    for stage in plan["stages"][::-1]:
        behind += stage["replicas"]
        most = max(most, sum(kept[v] for v in stage["nodes"]) * -(-behind // stage["replicas"]))
    return most


def made_up(folder):
    """Chains, one of them of equal layers, and a graph with branches."""
    for name, n, seed in [("chain120", 120, 1), ("chain300", 300, 2), ("chain400", 400, 3), ("equal300", 300, 0),
                          ("chain1000", 1000, 4), ("branches", 120, 5)]:
        rng = random.Random(seed)
        lines, edges = [], []
        for v in range(n):
            time, act, par = ((1.5, 10 ** 6, 2 * 10 ** 6) if name == "equal300" else
                              (round(rng.uniform(0.1, 20), 3), rng.randint(10 ** 4, 10 ** 7), rng.randint(0, 10 ** 7)))
            lines.append(f"node{v} -- L -- forward_compute_time={time / 4}, backward_compute_time={3 * time / 4}, "
                         f"activation_size={act}, parameter_size={par}")
            if name != "branches":
                edges += [f"\tnode{v - 1} -- node{v}"] if v else []
            elif v:
                edges.append(f"\tnode{v - 1 if v % 4 in (0, 1) else v - v % 4 + 1} -- node{v}")
                edges += [f"\tnode{v - i} -- node{v}" for i in (1, 2) if v % 4 == 0 and i > 1]
        file = folder / f"{name}.txt"
        file.write_text("\n".join(lines + edges) + "\n")
        yield file


def run(tool, words):
    words = [tool, *([] if os.path.basename(tool) == "pipec-partition" else ["partition"]), *words]
    # As a child of its own, so that its memory is not another's.
    code = ("import json, resource, subprocess, sys; d = subprocess.run(sys.argv[1:], capture_output=True, text=True); "
            "u = resource.getrusage(resource.RUSAGE_CHILDREN); "
            "print(json.dumps([d.returncode, d.stdout, d.stderr, u.ru_utime + u.ru_stime, u.ru_maxrss / 1024]))")
    done = subprocess.run([sys.executable, "-c", code, *words, "--format", "json"], capture_output=True, text=True)
    code, out, err, seconds, mib = json.loads(done.stdout)
    if code not in (0, 79):
        sys.exit(f"{' '.join(words)}: {err}")
    return (json.loads(out) if code == 0 else None), err, seconds, mib


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--against")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    bad, slowest, cases = 0, (0, ""), 0
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(options.folder.rglob("*.txt")) + list(made_up(pathlib.Path(folder))):
            kept = kept_bytes(path)
            for devices, bandwidth in CLUSTERS:
                case = f"{path.stem} {devices}"
                if options.only not in case:
                    continue
                words = [str(path), "--devices", devices, "--bandwidth", bandwidth]
                free = run(options.tool, words)[0]
                most = most_kept(free, kept)
                for share in SHARES:
                    limited = [*words, "--memory-limit", str(max(1, int(share * most)))]
                    plan, error, seconds, mib = run(options.tool, limited)
                    named = ""
                    if not plan:
                        named = re.search(r"--memory-limit (\d+)", error)[1]
                        limited[-1] = named
                        plan, error, more, mib = run(options.tool, limited)
                        seconds = max(seconds, more)
                    line = (f"{case} {share:.0%}{' ' + named if named else ''}: {plan['objective']:.9g} ms, "
                            f"{'exact' if plan['exact'] else 'searched'}, {seconds:.2f} s, {mib:.0f} MB")
                    is_bad = seconds > options.seconds or mib > 200
                    if options.against:
                        other, _, took, _ = run(options.against, limited)
                        line += f"; before {other['objective']:.9g} ms, {'exact' if other['exact'] else 'searched'}, {took:.2f} s"
                        is_bad |= plan["objective"] > other["objective"] * (1 + 1e-9)
                        line += " BETTER" if plan["objective"] < other["objective"] * (1 - 1e-9) else ""
                        line += " WORSE" if plan["objective"] > other["objective"] * (1 + 1e-9) else ""
                    bad += is_bad
                    cases += 1
                    slowest = max(slowest, (seconds, f"{case} {share:.0%}"))
                    print(line + (" !" if is_bad else ""), flush=True)
    print(f"{cases} cases, {bad} bad; at most {slowest[0]:.2f} s ({slowest[1]})")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
