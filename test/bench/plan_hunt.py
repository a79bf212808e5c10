#!/usr/bin/env python3
"""`pipec partition` on random inputs of the published kinds, each plan priced again from its nodes.

Usage: plan_hunt.py PARTITION [--kind pipedream|placement|piper] [--rounds N] [--seed S] [--seconds X] [--verbose]

PARTITION is `pipec` or `pipec-partition`. Of every input: exit 0, or 79 with a limit that then does fit; the same bytes
from a second run; no more than X seconds of the processor and 200 MB. PipeDream profiles, on one level to four: not
above its optimizer's own recursion, written here again (chains), with a limit as fast as an enumeration of all that fits
(short chains on at most 12 devices), nor above the slowest stage of the plan itself (one
level); `--straddle on` not above off. Placement graphs: every load and limit, colours and order kept, `--shape free` not
above contiguous. Piper graphs: every stage's time and memory, replicas that divide the batch, not below the printed
bound. Exit 1 when any fails.
"""
import argparse, functools, json, math, os, pathlib, random, re, resource, subprocess, sys, tempfile

INF = float("inf")


class Wrong(Exception):
    pass


def expect(holds, what):
    if not holds:
        raise Wrong(what)


def near(a, b):
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b)) + 1e-12


class Runner:
    def __init__(self, tool, seconds):
        name = os.path.basename(tool)
        self.words = [os.path.abspath(tool)] + (["partition"] if name == "pipec" else [])
        self.seconds, self.slowest, self.largest = seconds, (0, ""), 0

    def once(self, words, **env):
        process = subprocess.Popen([*self.words, *map(str, words), "--format", "json"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=dict(os.environ, **env))
        out, err = process.communicate()
        return process.returncode, out, err

    def plan(self, *words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        code, out, err = self.once(words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.slowest = max(self.slowest, (took, " ".join(map(str, words))))
        self.largest = max(self.largest, after.ru_maxrss)
        expect(took <= self.seconds, f"{took:.2f} s: {words}")
        expect(after.ru_maxrss <= 200 * 1024, f"{after.ru_maxrss / 1024:.0f} MB: {words}")
        expect(code in (0, 79), f"exit {code}: {err.strip()} {words}")
        if code == 79:
            return None, err
        plan = json.loads(out)
        again = json.loads(self.once(words, HUNT="x" * random.randint(1, 4000))[1])
        for clock in ("seconds", "wall_seconds"):
            plan.pop(clock), again.pop(clock)
        expect(plan == again, f"two runs differ: {words}")
        return plan, err

    def fits_as_named(self, error, words):
        """The limit that an error names does fit."""
        mark = "--memory-limit "
        if "no variant" in error or "runs on a CPU only" in error:
            return
        expect(mark in error, error)
        limit = re.match(r"\d+", error.split(mark)[1])[0]
        expect(self.plan(*words, "--memory-limit", limit)[0], f"{limit} does not fit: {words}")


# ---------------------------------------------------------------- PipeDream

def random_dag(rng, n, shape):
    edges = set()
    for v in range(1, n):
        if shape == "chain":
            edges.add((v - 1, v))
        elif shape == "diamonds":
            edges.add((v - 1, v) if v % 4 in (0, 1) else (v - v % 4 + 1, v))
            if v % 4 == 0:
                edges |= {(v - 1, v), (v - 2, v)}
        else:
            near_ = 6 if shape == "branches" else n
            edges.add((rng.randint(max(0, v - near_), v - 1), v))
            if rng.random() < 0.4:
                edges.add((rng.randint(max(0, v - near_), v - 1), v))
    return sorted(edges)


def pipedream_profile(rng, n, shape):
    kind = rng.choice(["usual", "usual", "free", "equal", "huge"])
    nodes = []
    for v in range(n):
        free = kind == "free" and rng.random() < 0.5
        t = 1.5 if kind == "equal" else 0 if free else round(rng.uniform(0, 20), 3)
        nodes.append((t, rng.randint(0, 10 ** 10 if kind == "huge" else 10 ** 7),
                      0 if free else 10 ** 5 if kind == "equal" else rng.randint(0, 10 ** 7)))
    return nodes, random_dag(rng, n, shape)


def pipedream_text(rng, nodes, edges):
    newline = rng.choice(["\n", "\r\n"])
    name = lambda v: f"node {v}" if odd else f"node{v}"
    odd = rng.random() < 0.3
    lines = [f"{name('in')} -- Input0 -- forward_compute_time=9.0, backward_compute_time=0.0, activation_size=1.0, "
             "parameter_size=0.0"]
    for v, (t, act, par) in enumerate(nodes):
        what = rng.choice(["Linear(in=3, out=4)", "Conv2d(3, 64) -- (3 -- 3)", "Add", "Concat(1)", ""])
        size = f"[{act / 2}; {act / 4}; {act / 4}]" if rng.random() < 0.2 else act
        lines.append(f"{name(v)} -- {what} -- forward_compute_time={t / 4}, backward_compute_time={3 * t / 4}, "
                     f"activation_size={size}, parameter_size={par}" + (" -- stage_id=0" if odd else ""))
    for a, b in [("in", v) for v in range(len(nodes)) if v not in {b for _, b in edges}] + edges:
        lines.append(f"\t{name(a)} -- {name(b)}")
        if rng.random() < 0.05:
            lines.append("")
    return newline.join(lines) + rng.choice(["", newline]), name


def published_chain(nodes, levels):
    """Its optimizer's recursion for a chain, activations charged, in seconds. A machine is never left idle."""
    n = len(nodes)
    total = lambda i, j, part: sum(node[part] for node in nodes[i:j])
    work = {(i, j): total(i, j, 0) / 1000 for i in range(n) for j in range(i + 1, n + 1)}
    weight = {(i, j): total(i, j, 2) for i in range(n) for j in range(i + 1, n + 1)}
    within, cost = 1, work
    for top, (machines, b) in zip([False] * (len(levels) - 1) + [True], levels):

        @functools.lru_cache(None)
        def best(i, j, m):
            value = (cost[i, j] + 4 * (m - 1) * weight[i, j] / (b * m) / within) / m
            for k in range(i + 1, j):
                for used in range(1, m):
                    stage = (cost[k, j] + 4 * (used - 1) * weight[k, j] / (b * used)) / used
                    stage = max(stage, 2 * nodes[k - 1][1] / (b * used))
                    if j < n:
                        stage = max(stage, 2 * nodes[j - 1][1] / (b * used))
                    if stage < value:
                        value = min(value, max(stage, best(i, k, m - used)))
            return value

        cost = {(i, j): best(i, j, machines) for i, j in work if not top or i == 0}
        within = machines
    return cost[0, n]


def fitting_chain(nodes, levels, limit):
    """The least seconds of all plans of a chain whose stages keep at most so many bytes on a device, any machines idle."""
    n = len(nodes)

    @functools.lru_cache(None)
    def component(level, i, j, copies, after):
        """Devices that are used from i on: best seconds of one of so many copies before `after` devices."""
        machines, b = levels[level]

        @functools.lru_cache(None)
        def before(e, left, behind):
            if e == i:
                return {behind: 0.0}
            best = {}
            for k in range(i, e):
                weights = sum(node[2] for node in nodes[k:e])
                edges = max(nodes[k - 1][1] if k else 0, 0 if e == n else nodes[e - 1][1])
                for m in range(1, left + 1):
                    if level:
                        inner = component(level - 1, k, e, copies * m, behind)
                    else:
                        used = copies * m
                        fits = sum(a + w for _, a, w in nodes[k:e]) * -(-(behind + used) // used) <= limit
                        inner = {behind + used: sum(node[0] for node in nodes[k:e]) / 1000} if fits else {}
                    for used, compute in inner.items():
                        exchange = 4 * (m - 1) * weights / (b * m)
                        if k == i:
                            t = (compute + exchange / (levels[level - 1][0] if level else 1)) / m
                        else:
                            t = max(compute + exchange, 2 * edges / b) / m
                        for all_, rest in before(k, left - m, used).items():
                            best[all_] = min(best.get(all_, INF), max(t, rest))
            return best

        return before(j, machines, after)

    return min(component(len(levels) - 1, 0, n, 1, 0).values(), default=INF)


def flat_seconds(nodes, edges, plan, number, b):
    where = {number[v]: s for s, stage in enumerate(plan["stages"]) for v in stage["nodes"]}
    expect(sorted(where) == list(range(len(nodes))), "nodes are not in one stage each")
    expect(all(where[a] <= where[c] for a, c in edges), "an edge runs backwards")
    worst, last = 0, len(plan["stages"]) - 1
    cut = [sum(nodes[v][1] for v in {a for a, c in edges if where[a] <= s < where[c]}) for s in range(last + 1)]
    for s, stage in enumerate(plan["stages"]):
        r, inside = stage["replicas"], [number[v] for v in stage["nodes"]]
        t = (sum(nodes[v][0] for v in inside) / 1000 + 4 * (r - 1) * sum(nodes[v][2] for v in inside) / (b * r)) / r
        worst = max(worst, t, 2 * cut[s - 1] / (b * r) if s else 0, 2 * cut[s] / (b * r) if 0 < s < last else 0)
    return worst


def hierarchy(rng, small):
    """Levels as (machines, bytes/s), outermost first, the number of devices, and the words that say so."""
    depth = rng.choice([1, 2, 2, 2, 3, 3, 4])
    if depth <= 2:
        counts = [rng.choice([1, 2, 3, 4] if small else [1, 2, 3, 8, 16, 64]),
                  rng.choice([1, 2, 3, 5] if small else [1, 4, 7, 8, 16])][-depth:]
    else:
        counts = [rng.choice([1, 2, 2, 3] if small else [1, 2, 3, 4]) for _ in range(depth)]
    levels = [(count, 10 ** rng.uniform(6, 11)) for count in counts]
    if rng.random() < 0.1:
        levels = [(count, levels[0][1]) for count in counts]
    bands = [repr(b) for _, b in levels]
    return levels, math.prod(counts), ["--devices", "x".join(map(str, counts)), "--bandwidth",
                                       ",".join(bands if len(set(bands)) > 1 else bands[:1])]


def pipedream(rng, run, folder):
    small = rng.random() < 0.5
    n = rng.choice([1, 2, 3, 8, 14]) if small else rng.choice([40, 120, 300])
    shape = rng.choice(["chain", "diamonds", "branches"] + ([] if n > 40 else ["any"]))
    nodes, edges = pipedream_profile(rng, n, shape)
    text, name = pipedream_text(rng, nodes, edges)
    file = folder / "profile.txt"
    file.write_bytes(text.encode())
    machines, devices, words = hierarchy(rng, small)
    words = [file, *words]
    off, _ = run.plan(*words, "--straddle", "off")
    expect(off, "no plan without a limit")
    seconds = off["objective"] / 1000
    expect(seconds >= off["lower_bound"] / 1000 * (1 - 1e-9), "below the bound")
    expect(seconds <= off["data_parallel"] / 1000 * (1 + 1e-9), "above data parallelism")
    levels = machines[::-1]
    if sum(m > 1 for m, _ in levels) <= 1:
        b = max(levels, key=lambda level: level[0])[1]
        found = flat_seconds(nodes, edges, off, {name(v): v for v in range(n)}, b)
        expect(near(found, seconds) or found < seconds, f"it takes {found}, not {seconds}")
    if shape == "chain" and small:
        best = published_chain(nodes, levels)
        expect(seconds <= best * (1 + 1e-9), f"{seconds} s where the published recursion has {best} s")
    if devices <= 256:
        on, _ = run.plan(*words, "--straddle", "on")
        expect(on["objective"] <= off["objective"] * (1 + 1e-9), "--straddle on is above off")
    limit = max(1, int(rng.uniform(0.02, 1.1) * sum(act + par for _, act, par in nodes)))
    tight, error = run.plan(*words, "--memory-limit", limit)
    if shape == "chain" and n <= 8 and devices <= 12:
        best, found = fitting_chain(nodes, levels, limit), tight["objective"] / 1000 if tight else INF
        expect(near(found, best) if best < INF else not tight, f"{found} s below the limit where {best} s is the least")
        expect(not tight or tight["exact"], "not all plans were looked at")
    if tight is None:
        run.fits_as_named(error, words)
    else:
        expect(tight["objective"] >= off["objective"] * (1 - 1e-9), "faster under a limit")
        behind = sum(stage["replicas"] for stage in tight["stages"])
        number = {name(v): v for v in range(n)}
        for stage in tight["stages"]:
            kept = sum(nodes[number[v]][1] + nodes[number[v]][2] for v in stage["nodes"])
            expect(kept * -(-behind // stage["replicas"]) <= limit * (1 + 1e-12), "a stage is above the limit")
            behind -= stage["replicas"]


# ---------------------------------------------------------------- placement

def placement_graph(rng, n, training):
    edges = random_dag(rng, n, rng.choice(["chain", "diamonds", "branches"]))
    cost = [rng.choice([0, rng.uniform(0, 5)]) for _ in range(2 * n)]
    nodes = []

    def add(v, backward, colour):
        t = rng.choice([0, rng.uniform(0.1, 20), rng.uniform(0.1, 20)])
        nodes.append({"id": v, "supportedOnFpga": int(rng.random() < 0.97), "cpuLatency": t * rng.uniform(1, 12),
                      "fpgaLatency": t, "isBackwardNode": int(backward), "colorClass": colour,
                      "size": rng.choice([0, rng.uniform(0, 9)])})

    for v in range(n):
        add(v, False, v if rng.random() < 0.95 or v == 0 else v - 1)
    every = [(a, b, cost[a]) for a, b in edges]
    if training:
        for v in range(n):
            add(n + v, True, nodes[v]["colorClass"] if rng.random() < 0.9 else 10 ** 6 + v)
        every += [(n + b, n + a, cost[n + b]) for a, b in edges] + [(n - 1, 2 * n - 1, 0)]
    total = sum(node["size"] for node in nodes)
    k = rng.choice([1, 2, 3, 6])
    return {"maxSizePerFPGA": rng.choice([1e9, total / k * rng.uniform(0.7, 2)]), "maxFPGAs": k,
            "maxCPUs": rng.choice([0, 1, 1]), "nodes": nodes,
            "edges": [{"sourceId": a, "destId": b, "cost": c} for a, b, c in every]}


def placement_load(graph, plan, contiguous):
    nodes = {str(node["id"]): node for node in graph["nodes"]}
    where = {v: d for d, stage in enumerate(plan["stages"]) for v in stage["nodes"]}
    expect(set(where) == set(nodes), "nodes are not on one device each")
    cpu = [stage["device_kind"] == "cpu" for stage in plan["stages"]]
    expect(sum(cpu) <= graph["maxCPUs"] and len(cpu) - sum(cpu) <= graph["maxFPGAs"], "too many devices")
    load, size, colours = [0.0] * len(cpu), [0.0] * len(cpu), {}
    for v, node in nodes.items():
        d = where[v]
        expect(cpu[d] or node["supportedOnFpga"], f"node {v} runs on a CPU only")
        expect(colours.setdefault(node["colorClass"], d) == d, "a colour is on two devices")
        load[d] += node["cpuLatency" if cpu[d] else "fpgaLatency"]
        size[d] += 0 if cpu[d] else node["size"]
    expect(max(size) <= graph["maxSizePerFPGA"] * (1 + 1e-9), "too many bytes")
    crossing = {}
    for edge in graph["edges"]:
        a, b = str(edge["sourceId"]), str(edge["destId"])
        if where[a] != where[b]:
            crossing.setdefault(a, (edge["cost"], set()))[1].add(where[b])
        if contiguous and not nodes[a]["isBackwardNode"] and not nodes[b]["isBackwardNode"]:
            expect(where[a] <= where[b], "a forward edge runs backwards")
    for a, (cost, to) in crossing.items():
        for d in [where[a], *to]:
            load[d] += 0 if cpu[d] else cost
    return max(load)


def placement(rng, run, folder):
    training = rng.random() < 0.5
    graph = placement_graph(rng, rng.choice([5, 12, 40, 100, 200]) // (2 if training else 1) or 1, training)
    file = folder / "placement.json"
    file.write_text(json.dumps(graph))
    tight, error = run.plan(file)
    free, other = run.plan(file, "--shape", "free")
    if tight:
        expect(near(placement_load(graph, tight, True), tight["objective"]), "another load")
        expect(tight["objective"] >= tight["lower_bound"] * (1 - 1e-9), "below the bound")
        expect(free and free["objective"] <= tight["objective"] * (1 + 1e-9), "free is above contiguous")
    else:
        run.fits_as_named(error, [file])
    if free:
        expect(near(placement_load(graph, free, False), free["objective"]), "another load, free")
    else:
        run.fits_as_named(other, [file, "--shape", "free"])


# -------------------------------------------------------------------- Piper

def piper_graph(rng, n):
    edges = random_dag(rng, n, rng.choice(["chain", "chain", "diamonds"]))
    before = {v: [a for a, b in edges if b == v] for v in range(n)}
    after = {v: [b for a, b in edges if a == v] for v in range(n)}
    alike = rng.random() < 0.5
    nodes, first = [], None
    for v in range(n):
        t, w, a = (rng.uniform(1e-3, 4e-2), rng.uniform(0, 8e8), rng.uniform(1e6, 8e8)) if not (alike and first) else first
        first = (t, w, a)
        table = {}
        for degree in (1, 2, 4, 8):
            if degree > 1 and rng.random() < 0.3:
                continue
            slower, sync = 1.0 + 0.15 * (degree - 1), 1e6 * (degree - 1)
            table[str(degree)] = [
                {"id": name, "timePerSample": t / degree * slower * (1.34 if name != "vanilla" else 1),
                 "parameterSize": w / degree, "memoryUsageA": (a if name == "vanilla" else a / 12) / degree,
                 "memoryUsageB": (2 * w + (0 if name == "vanilla" else a)) / degree,
                 "syncTimeFw": {str(u): sync for u in before[v]}, "syncTimeBw": {str(u): sync for u in after[v]}}
                for name in ("vanilla", "activation recomp")]
        nodes.append({"id": v, "name": "layer", "TMPCs": table})
    devices = rng.choice([2, 7, 16, 60, 256, 2048, 16384])
    return {"maxDevices": devices, "maxMemoryPerDevice": 2.0 ** rng.uniform(29, 37), "bandwidth": 10 ** rng.uniform(9, 11),
            "mbsInBatch": rng.choice([8, 60, 512, 1920, 16384]), "nodes": nodes,
            "edges": [{"sourceId": a, "destId": b, "communicationCost": rng.choice([0, 1e6, 3e7])} for a, b in edges]}


def piper_seconds(graph, plan):
    nodes = {str(node["id"]): node for node in graph["nodes"]}
    stages, batch = plan["stages"], graph["mbsInBatch"]
    where = {v: s for s, stage in enumerate(stages) for v in stage["nodes"]}
    expect(set(where) == set(nodes), "nodes are not in one stage each")
    expect(sum(s["replicas"] * s["tensor_parallel"] for s in stages) <= graph["maxDevices"], "too many devices")
    expect(sum(s["replicas"] for s in stages) <= batch, "more replicas than microbatches")
    worst, behind = 0, sum(stage["replicas"] for stage in stages)
    for s, stage in enumerate(stages):
        d, t, y = stage["replicas"], str(stage["tensor_parallel"]), -(-behind // stage["replicas"])
        expect(batch % d == 0, f"{d} replicas of {batch} microbatches")
        p = w = memory = cut = 0
        for v in stage["nodes"]:
            chosen = nodes[v]["TMPCs"][t][v in stage["recomputed"]]
            p, w = p + chosen["timePerSample"], w + chosen["parameterSize"]
            memory += chosen["memoryUsageA"] * y + chosen["memoryUsageB"]
            for edge in graph["edges"]:
                for mine, other, sync in (("sourceId", "destId", "syncTimeBw"), ("destId", "sourceId", "syncTimeFw")):
                    far = str(edge[other])
                    if str(edge[mine]) == v and where[far] != s:
                        expect((where[far] > s) == (mine == "sourceId"), "an edge runs backwards")
                        cut += 2 * (edge["communicationCost"] + chosen[sync][far]) / graph["bandwidth"]
        expect(memory <= graph["maxMemoryPerDevice"] * (1 + 1e-9), f"stage {s} takes {memory} bytes")
        worst = max(worst, (p + cut) / d + 4 * (d - 1) / (d * batch * graph["bandwidth"]) * w)
        behind -= d
    return worst


def piper(rng, run, folder):
    graph = piper_graph(rng, rng.choice([1, 3, 8, 20, 37, 60]))
    file = folder / "piper.json"
    file.write_text(json.dumps(graph))
    plan, error = run.plan(file)
    if not plan:
        return run.fits_as_named(error, [file])
    found = piper_seconds(graph, plan)
    expect(near(found, plan["objective"]), f"it takes {found}, not {plan['objective']}")
    expect(plan["lower_bound"] <= plan["objective"] * (1 + 1e-9), "below the bound")


KINDS = {"pipedream": pipedream, "placement": placement, "piper": piper}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="round to begin with")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.5)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for inputs that fail")
    options = parser.parse_args()
    run, failed = Runner(options.tool, options.seconds), 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kind or KINDS:
            run.slowest, run.largest = (0, ""), 0
            for round_ in range(options.first, options.first + options.rounds):
                try:
                    KINDS[kind](random.Random(f"{kind} {options.seed} {round_}"), run, pathlib.Path(folder))
                except Wrong as wrong:
                    failed += 1
                    print(f"{kind} {round_}: {wrong}", flush=True)
            print(f"{kind}: {options.rounds} inputs, at most {run.slowest[0]:.2f} s ({run.slowest[1]}) and "
                  f"{run.largest / 1024:.0f} MB", flush=True)
    print(f"{failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
