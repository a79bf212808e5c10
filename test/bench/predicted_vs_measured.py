#!/usr/bin/env python3
"""Predicted beside measured step time and memory, on CPU: calibrated, and with a profile.

Usage: predicted_vs_measured.py BIN FOLDER [MODEL ...] [--ranks 1,2,4] [--strategy 1f1b] [--other gpipe] [--seconds 1]
       [--repeats 4] [--rounds 1] [--microbatches N] [--threads N] [--run-with 'nice -n -20']
       [--cluster RANKS=FILE] [--steady] [--markdown]

BIN holds pipec and pipec-run; FOLDER/MODEL/ holds model.onnx, golden.json (pipec_args: the options of training) and one
.npy file for each input, as test/models has them; examples/gpt2 works with its tokens.npy made. For every model and
number of ranks: `pipec calibrate` once, a plan made with it, and --repeats runs of it and one more, of which each
writes a profile. Errors of what is predicted: "calibrated" against the median run; "profile", a plan of the same stages
made with a profile, against the run after the one that wrote it, beside "own", the same against the run that wrote it,
and "apart", by how much one run differs from the next, which is all that keeps the two from being equal; the last, a
plan of strategy --other made with the same profile, against a run of that plan, which no profile knows; medians over
the runs. At the end of a row, "untimed": what is predicted of cores that nobody has timed, as a share of the median
run, and "slow", the largest share of looks at the cores that found one slow or far from the other during the row's
runs. With --steady what was measured while more than a quarter of them did is measured again, up to twenty times
(steady_cores.py), and calibrations are made as if nobody shared the cores. With --rounds all rows are calibrated for
and run so many times, by turns, of plans that are made in the first round; medians are then over what all rounds said,
and each round prints them as they are by then. Where neighbours come and go for minutes, calibrations and runs meet as
many of them, and what is left is closer to the prediction's own error. The time of a run is that of its median step,
the first one left out. Every rank has the threads that pipec-run gives it, or --threads. Calibration and runs begin
with the words of --run-with, which is where a machine is kept quiet. Memory is compared byte for byte. At the end
stands how many rows are within 15 and 5 %, of all and of those that were measured on steady cores and whose runs are
within 5 % of each other: of a machine that does not repeat itself nothing can be foretold. Of the second kind a profile
is within 5 % almost by itself, since it is fitted to one run and held against the next; what it says of --other and
what is calibrated is not. Needs Python's standard library alone.
"""
import argparse, collections, json, math, os, pathlib, shlex, statistics, subprocess, sys, tempfile

from steady_cores import SLOW, AnyCores, SteadyCores


def call(*command):
    environment = dict(os.environ)
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Case:
    def __init__(self, options, folder, scratch):
        self.tools, self.folder, self.scratch = options.tools, folder, pathlib.Path(scratch)
        self.quiet = shlex.split(options.run_with)
        self.threads = ["--threads", options.threads] if getattr(options, "threads", 0) else []
        golden = folder / "golden.json"
        if golden.exists():
            known = json.loads(golden.read_text())
            self.arguments = [word.replace("weight=", f"weight={folder}/") if word.startswith("cross-entropy:") else word
                              for word in known["pipec_args"]]
            data = {name: folder / file for name, file in known["data"].items()}
        else:
            self.arguments = ["--dim", "batch=4", "--microbatches", "8", "--loss", "next-token", "--optimizer",
                              "adamw:lr=1e-3"]
            data = {"input_ids": folder / "tokens.npy"}
        if options.microbatches:
            self.arguments[self.arguments.index("--microbatches") + 1] = str(options.microbatches)
        self.data = [word for name, file in data.items() for word in ("--data", f"{name}={file}")]

    def plan(self, folder, *options):
        subprocess.run(["rm", "-rf", str(folder)], check=True)
        call(f"{self.tools}/pipec", self.folder / "model.onnx", *self.arguments, *options, "--quiet", "-o", folder)

    def predicted(self, *options):
        shown = call(f"{self.tools}/pipec", self.folder / "model.onnx", *self.arguments, *options, "--dry-run",
                     "--format", "json")
        return json.loads(shown)["predicted"]["step_s"]

    def run(self, plan, steps, *options, profile=None):
        """The seconds of the median step, whether memory is as predicted, and what was written to `profile`."""
        metrics = self.scratch / "metrics.jsonl"
        options += ("--profile-out", profile) if profile else ()
        call(*self.quiet, f"{self.tools}/pipec-run", plan, *self.data, "--steps", steps, "--metrics", metrics,
             "--quiet", *self.threads, *options)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        summary = lines[-1]["summary"]
        exact = all(rank["peak_bytes"] == rank["predicted_peak_bytes"] for rank in summary["ranks"])
        return (statistics.median(line["seconds"] for line in lines[1:-1]), exact,
                pathlib.Path(profile).read_text() if profile else None)


class Calibrations:
    """Cluster files of numbers of ranks: what is known, or one a round."""

    def __init__(self, options, scratch):
        self.options, self.scratch, self.alone = options, scratch, ["--alone"] if options.steady else []
        self.known = dict(entry.split("=", 1) for entry in options.cluster)
        self.count, self.made = 0, None  # (turn, ranks, the file)

    def cluster(self, turn, ranks):
        if ranks in self.known:
            return self.known[ranks]
        if not self.made or self.made[:2] != (turn, ranks):
            self.count += 1
            cluster = f"{self.scratch}/cluster{self.count}.json"
            call(*shlex.split(self.options.run_with), f"{self.options.tools}/pipec", "calibrate", "--cpus", ranks, "-o",
                 cluster, "--quiet", *self.alone)
            self.made = turn, ranks, cluster
        return self.made[2]


class Row:
    """A model on a number of ranks: its programs, and what all rounds said of them."""

    def __init__(self, case, ranks, options, cores, calibrations):
        self.case, self.ranks, self.options, self.cores, self.calibrations = case, ranks, options, cores, calibrations
        self.programs, self.steps = {}, 0
        self.samples = collections.defaultdict(list)

    def compile(self, cluster):
        for strategy in self.options.strategy, self.options.other:
            self.programs[strategy] = self.case.scratch / f"{self.case.folder.name}-{self.ranks}-{strategy}"
            self.case.plan(self.programs[strategy], "--strategy", strategy, "--cluster", cluster)
        seconds = self.case.run(self.programs[self.options.strategy], 4)[0]
        self.steps = max(6, min(10000, int(self.options.seconds / seconds)))

    def predicted(self, strategy, *words):
        return self.case.predicted("--strategy", strategy, *words, "--stage-file",
                                   self.programs[strategy] / "plan.json")

    def measure(self, turn):
        cluster = self.calibrations.cluster(turn, self.ranks)
        if not self.programs:
            self.compile(cluster)
        strategy, other = self.options.strategy, self.options.other
        profiles = [self.case.scratch / f"profile{run}.json" for run in range(self.options.repeats + 1)]
        runs, others, slow = [], [], []
        for profile in profiles:
            run, share = self.cores.take(
                lambda: self.case.run(self.programs[strategy], self.steps, profile=self.case.scratch / "profile.json"))
            profile.write_text(run[2])
            runs.append(run)
            slow.append(share)
            run, share = self.cores.take(lambda: self.case.run(self.programs[other], self.steps))
            others.append(run[0])
            slow.append(share)
        times = [run[0] for run in runs]
        said = {name: [self.predicted(name, "--cluster", cluster, "--profile", profile) for profile in profiles]
                for name in (strategy, other)}
        ratios = lambda above, below: [a / b for a, b in zip(above, below)]
        return {"times": times, "exact": [run[1] for run in runs], "slow": slow,
                "calibrated": [self.predicted(strategy, "--cluster", cluster) / statistics.median(times)],
                "untimed": [self.predicted(strategy, "--cpus", self.ranks) / statistics.median(times)],
                "profile": ratios(said[strategy], times[1:]), "own": ratios(said[strategy], times),
                "apart": [1 + abs(ratio - 1) for ratio in ratios(times[1:], times)],
                "other": ratios(said[other], others)}

    def take(self, samples):
        for name, values in samples.items():
            self.samples[name] += values

    def cells(self):
        ms = lambda s: f"{s * 1e3:.3g}"
        times = self.samples["times"]
        errors = [f"{100 * (statistics.median(self.samples[name]) - 1):+.0f} %"
                  for name in ("calibrated", "profile", "own", "apart", "other")]
        return [self.case.folder.name, self.ranks, ms(statistics.median(times)), f"{ms(min(times))} - {ms(max(times))}",
                *errors, "equal" if all(self.samples["exact"]) else "differs",
                f"{statistics.median(self.samples['untimed']):.2f}",
                "-" if None in self.samples["slow"] else f"{math.ceil(100 * max(self.samples['slow']))} %"]


def together(rows):
    """How many of the rows (without their head) are as true as is asked for, by the whole percents that they print."""
    percent = lambda cell: abs(int(cell.split()[0]))
    lines = []
    steady = [row for row in rows if row[11] == "-" or percent(row[11]) <= 100 * SLOW]
    for name, among in (("all", rows), ("on steady cores, as far as is known", steady),
                        ("of these runs within 5 %", [row for row in steady if percent(row[7]) <= 5])):
        counts = [sum(percent(row[column]) <= bound for row in among) for column, bound in ((4, 15), (5, 5), (8, 5))]
        lines.append(f"{name}: of {len(among)} rows {counts[0]} calibrated within 15 %, {counts[1]} by a profile within "
                     f"5 %, {counts[2]} of the other strategy; memory equal in {sum(row[9] == 'equal' for row in among)}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--strategy", default="1f1b")
    parser.add_argument("--other", default="gpipe")
    parser.add_argument("--seconds", type=float, default=1, help="about how long each run takes")
    parser.add_argument("--repeats", type=int, default=4, help="profiles that are held against the predictions")
    parser.add_argument("--rounds", type=int, default=1, help="of a calibration and runs of every row")
    parser.add_argument("--microbatches", type=int, default=0, help="of a step (default: the model's)")
    parser.add_argument("--threads", type=int, default=0, help="of every rank (default: pipec-run's)")
    parser.add_argument("--run-with", default="", help="words before every command that is timed")
    parser.add_argument("--cluster", action="append", default=[], metavar="RANKS=FILE",
                        help="what pipec calibrate wrote for so many ranks (default: it is run)")
    parser.add_argument("--steady", action="store_true",
                        help="measure again what was measured while a core was slow, or far from the other")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    if min(options.rounds, options.repeats) < 1:
        parser.error("--rounds and --repeats are at least 1")
    names = options.models or sorted(f.name for f in options.folder.iterdir() if (f / "golden.json").exists())
    head = ["model", "ranks", "measured ms", "runs", "calibrated", "profile", "own", "apart", options.other, "memory",
            "untimed", "slow"]
    with SteadyCores() if options.steady else AnyCores() as cores, tempfile.TemporaryDirectory() as scratch:
        calibrations = Calibrations(options, scratch)
        rows = [Row(Case(options, options.folder / name, scratch), ranks, options, cores, calibrations)
                for ranks in options.ranks.split(",") for name in names]
        for turn in range(options.rounds):
            for row in rows:
                row.take(row.measure(turn))
                if not options.markdown:
                    print(*row.cells(), sep="\t", flush=True)
        told = cores.told()
    rows = [head] + [row.cells() for row in rows]
    print(told, together(rows[1:]), sep="\n", file=sys.stderr)
    if options.markdown:
        rows.insert(1, ["---"] * len(rows[0]))
        print("\n".join("| " + " | ".join(row) + " |" for row in rows))
        return
    width = [max(len(row[c]) for row in rows) for c in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.rjust(w) if c else cell.ljust(w) for c, (cell, w) in enumerate(zip(row, width))).rstrip())


if __name__ == "__main__":
    main()
