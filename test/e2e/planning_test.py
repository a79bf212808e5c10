"""Planners, what-if tables, profiles, calibration: what `pipec` plans with, and what it says about it."""
import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import unittest.mock

from pipeline import BAD_PLAN, BIN, CANNOT_WRITE, NO_FIT, NO_INPUT, SOURCE, USAGE, Golden, PipelineTest, call, read_plan


def flags(words):
    """A line of options and values, of which a later one takes an earlier one's place."""
    return dict(zip(words[::2], words[1::2]))


@contextlib.contextmanager
def busy(count):
    """So many other programs, which compute when this begins."""
    code = "print(flush=True)\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(count)]
    try:
        for other in others:
            other.stdout.readline()
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()


class PlanningTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("gpt")

    def dry(self, *arguments, code=0):
        process = call("pipec", self.golden.model, *self.golden.arguments(), *arguments, "--dry-run",
                       "--format", "json", cwd=self.folder)
        self.check_exit(process, code)
        return json.loads(process.stdout) if code == 0 else process.stderr

    def test_every_planner_plans(self):
        rows = json.loads(call("pipec", "list", "planners", "--format", "json").stdout)
        names = [row["name"] for row in rows]
        self.assertIn("auto", names)
        self.assertIn("auto", call("pipec", "--help").stdout)
        steps = {}
        for name in names:
            shown = self.dry("--gpus", "1x4", "--strategy", "1f1b", "--planner", name)
            self.assertEqual(shown["stages"][0]["first_node"], 0)
            self.assertEqual(shown, self.dry("--gpus", "1x4", "--strategy", "1f1b", "--planner", name))
            steps[name] = shown["predicted"]["step_s"]
            self.dry("--cpus", "1x2", "--planner", name)  # strategies of one stage leave nothing to choose
        self.assertLessEqual(steps["auto"], min(steps.values()) * 1.02)

    def test_refuses_planners(self):
        self.assertIn("pipedream", self.dry("--cpus", "4", "--planner", "oracle", code=USAGE))
        file = self.folder / "stages.json"
        file.write_text('{"stages": [{"first_node": 0}]}')
        self.assertIn("--stage-file", self.dry("--cpus", "4", "--planner", "even", "--stage-file", file,
                                               code=USAGE))

    def test_auto_is_no_slower_than_what_it_shows_beside(self):
        for cluster in (("--cpus", "1x3"), ("--gpus", "2x2", "--device", "v100-16g")):
            shown = self.dry(*cluster)
            others = [row["step_s"] for row in shown["baselines"] if row["fits"] and row["step_s"] > 0]
            self.assertGreaterEqual(len(others), 3)
            self.assertLessEqual(shown["predicted"]["step_s"], min(others) * 1.000001)
            self.assertIn("a step", shown["predicted"]["second"])
            self.assertRegex(shown["predicted"]["bottleneck"], "compute|link|all-reduce")

    def test_twice_the_servers_are_not_slower(self):
        """Behind links that cost more than devices bring some stay idle: without plans for parts of them this is 5 %
        slower on eight servers than on four, and 3 % on four than on two."""
        golden, file, steps = Golden("mlp"), self.folder / "cluster.json", []
        for servers in (2, 4, 8):
            file.write_text(json.dumps({"device": "v100-16g", "levels": [
                {"name": "server", "count": servers, "bandwidth_GBps": 136.42, "latency_us": 4.637},
                {"name": "gpu", "count": 1, "bandwidth_GBps": 24.56, "latency_us": 0.555}]}))
            process = call("pipec", golden.model, "--dim", "batch=4", "--loss", "cross-entropy", "--optimizer",
                           "adamw:lr=1e-3", "--microbatches", "1", "--cluster", file, "--dry-run", "--format", "json")
            self.check_exit(process, 0)
            steps.append(json.loads(process.stdout)["predicted"]["step_s"])
        self.assertLessEqual(steps[1], steps[0] * 1.000001)
        self.assertLessEqual(steps[2], steps[1] * 1.000001)

    def test_as_many_replicas_at_both_ends(self):
        """Shapes as 1-6-1 and 1-2-1, which bounds alone leave out: 14 % slower over links ten times as fast, and slower
        than another planner's plan under a limit."""
        file = self.folder / "cluster.json"

        def step(*changed):
            words = {**flags(self.golden.arguments()), **flags(changed)}
            process = call("pipec", self.golden.model, *(word for pair in words.items() for word in pair), "--dry-run",
                           "--format", "json")
            self.check_exit(process, 0)
            return json.loads(process.stdout)["predicted"]["step_s"]

        steps = []
        for faster in (1, 10):
            file.write_text(json.dumps({"device": "cpu", "levels": [
                {"name": "server", "count": 4, "bandwidth_GBps": 6.572 * faster, "latency_us": 3.872},
                {"name": "cpu", "count": 2, "bandwidth_GBps": 0.10608 * faster, "latency_us": 0.1952}]}))
            steps.append(step("--cluster", file, "--microbatches", "6", "--optimizer", "adamw:lr=1e-3"))
        self.assertLessEqual(steps[1], steps[0] * 1.000001)
        tight = ("--dim", "batch=2", "--cpus", "4", "--microbatches", "4", "--memory-limit", "600KiB")
        self.assertLessEqual(step(*tight), step(*tight, "--planner", "flexflow") * 1.0001)

    def test_auto_compares_every_order_and_recomputation(self):
        for cluster in (("--cpus", "1x2"), ("--gpus", "1x2")):
            best = self.dry(*cluster)["predicted"]["step_s"]
            for strategy in ("1f1b", "gpipe", "zb", "zb-v", "searched", "chimera"):
                shown = self.dry(*cluster, "--strategy", strategy)
                self.assertLessEqual(best, shown["predicted"]["step_s"] * 1.001, strategy)
        # Little memory: what is computed again competes with what just fits.
        tight = ("--gpus", "1x4", "--memory-limit", "2MiB")
        best = self.dry(*tight)["predicted"]["step_s"]
        for strategy in ("1f1b", "naive"):
            for recompute in ("none", "full"):
                process = call("pipec", self.golden.model, *self.golden.arguments(), *tight, "--strategy", strategy,
                               "--recompute", recompute, "--dry-run", "--format", "json")
                self.assertIn(process.returncode, (0, 79), process.stderr)
                if process.returncode == 0:
                    self.assertLessEqual(best, json.loads(process.stdout)["predicted"]["step_s"] * 1.02)

    def test_a_plan_keeps_to_the_limit(self):
        """The planner does not count all that a plan takes; what is written does. Who follows the advice gets a plan,
        at once. A dry run shows the same bytes."""
        words = (*self.golden.arguments(), "--cpus", "1x3")
        refused = 0
        for strategy in ("1f1b", "zb"):
            free = read_plan(self.compile(self.golden.model, *words, "--strategy", strategy))
            most = max(rank["peak_bytes"] for rank in free["ranks"])
            for share in (0.9, 0.6, 0.35):
                limit = int(share * most)
                for attempt in range(2):
                    plan = self.fresh(".plan")
                    process = call("pipec", self.golden.model, *words, "--quiet", "--strategy", strategy, "--memory-limit",
                                   limit, "-o", plan)
                    if process.returncode == 0:
                        break
                    self.check_exit(process, NO_FIT)
                    self.assertEqual(attempt, 0, "what the error names does not work")
                    self.assertFalse(plan.exists())
                    advised = int(re.search("would fit with --memory-limit ([0-9]+)", process.stderr)[1])
                    self.assertGreater(advised, limit)
                    refused, limit = refused + 1, advised
                self.assertLessEqual(max(rank["peak_bytes"] for rank in read_plan(plan)["ranks"]), limit)
                dry = call("pipec", self.golden.model, *words, "--strategy", strategy, "--memory-limit", limit, "--dry-run",
                           "--format", "json")
                self.assertEqual([rank["peak_bytes"] for rank in json.loads(dry.stdout)["ranks"]],
                                 [rank["peak_bytes"] for rank in read_plan(plan)["ranks"]])
        self.assertGreater(refused, 0)

    def test_stages_that_turn_out_undivided_keep_to_the_limit(self):
        """Where groups of devices may divide them the planner's word counts, unless none does."""
        words = ("pipec", SOURCE / "examples/gpt2/model.onnx", "--gpus", "2x1", "--dim", "batch=4", "--microbatches", "8",
                 "--loss", "next-token", "--strategy", "1f1b", "--recompute", "none", "--planner", "alpa",
                 "--tensor-parallel", "auto", "--dry-run", "--format", "json")
        peak = lambda process: max(rank["peak_bytes"] for rank in json.loads(process.stdout)["ranks"])
        limit = peak(call(*words)) - 1
        process = call(*words, "--memory-limit", limit)
        self.check_exit(process, 0)
        self.assertLessEqual(peak(process), limit)
        process = call(*words, "--memory-limit", "1MiB")
        self.check_exit(process, NO_FIT)

    def test_the_same_need_is_named_whatever_is_asked(self):
        """Under that, and a little more, there is a plan."""
        words = ("pipec", SOURCE / "examples/lenet/model.onnx", "--dim", "batch=8", "--microbatches", "16", "--gpus", "2x8",
                 "--dry-run", "--format", "json", "--memory-limit")
        needs = set()
        for limit in (1000, 150000, 300000, 450000, 470000):
            process = call(*words, limit)
            self.check_exit(process, NO_FIT)
            needs.add(int(re.search("would fit with --memory-limit ([0-9]+)", process.stderr)[1]))
        self.assertEqual(len(needs), 1, needs)
        need = needs.pop()
        for limit in (need, need + 1, need * 33 // 32, need * 17 // 16):
            process = call(*words, limit)
            self.check_exit(process, 0)
            self.assertLessEqual(max(rank["peak_bytes"] for rank in json.loads(process.stdout)["ranks"]), limit)

    def test_remarks_are_made_once(self):
        """However many strategies are tried before nothing fits."""
        words = ("pipec", SOURCE / "examples/gpt2/model.onnx", "--cpus", "1x4", "--dim", "batch=4", "--loss", "next-token",
                 "--dry-run", "--memory-limit")
        process = call(*words, "1MiB")
        self.check_exit(process, NO_FIT)
        self.assertEqual(process.stderr.count("the exporter computed"), 1, process.stderr)
        advised = int(re.search("would fit with --memory-limit ([0-9]+)", process.stderr)[1])
        self.assertEqual(call(*words, advised).returncode, 0)

    def plan(self, options, code):
        """What a dry run prints, or says where it fails."""
        words = [word for flag, value in options.items() for word in (flag, value)]
        process = call("pipec", self.golden.model, *words, "--dry-run", "--format", "json", cwd=self.folder)
        self.check_exit(process, code)
        return process.stderr if code else process.stdout

    def test_what_would_fit_does(self):
        """Whatever the error names has been tried: who takes it gets a plan."""
        kinds = set()
        for share, words in ((60, "--gpus 1x2 --strategy gpipe --recompute none"), (60, "--cpus 1x2 --strategy 1f1b"),
                             (40, "--gpus 2x2 --strategy auto"), (60, "--cpus 2 --strategy pipedream --microbatches 1")):
            asked = flags(self.golden.arguments()) | flags(words.split())
            most = max(rank["peak_bytes"] for rank in json.loads(self.plan(asked, 0))["ranks"])
            tight = asked | {"--memory-limit": most * share // 100}
            said = json.loads(self.plan(tight, NO_FIT))["problems"][0]["remedy"]
            self.assertRegex(said, "^it would fit with --memory-limit ")
            for remedy in said.removeprefix("it would fit with ").split(", or with "):
                self.assertRegex(remedy, "^--[a-z-]+ [^ ]+$")
                kinds.add(remedy.split()[0])
                self.plan(tight | flags(remedy.split()), 0)
        self.assertLessEqual({"--memory-limit", "--strategy", "--dim", "--recompute", "--microbatches", "--gpus"}, kinds)

    def test_auto_fits_where_1f1b_does(self):
        words = (*self.golden.arguments(), "--cpus", "1x2")
        named = read_plan(self.compile(self.golden.model, *words, "--strategy", "1f1b", "--stages", "2"))
        limit = max(rank["peak_bytes"] for rank in named["ranks"])
        plan = read_plan(self.compile(self.golden.model, *words, "--memory-limit", limit))
        self.assertLessEqual(max(rank["peak_bytes"] for rank in plan["ranks"]), limit)

    def test_auto_is_as_fast_as_what_fits(self):
        """Where what it takes for the fastest fits in the planner's estimate alone."""
        words = ("pipec", SOURCE / "examples/lenet/model.onnx", "--dim", "batch=2", "--microbatches", "4", "--dry-run",
                 "--format", "json")
        for cluster, strategies in ((("--gpus", "1x3"), ("gpipe", "zb-h1")), (("--cpus", "1x3"), ("gpipe", "naive"))):
            for strategy in strategies:
                named = json.loads(call(*words, *cluster, "--strategy", strategy).stdout)
                limit = max(rank["peak_bytes"] for rank in named["ranks"])
                best = json.loads(call(*words, *cluster, "--memory-limit", limit).stdout)
                self.assertLessEqual(max(rank["peak_bytes"] for rank in best["ranks"]), limit)
                self.assertLessEqual(best["predicted"]["step_s"], named["predicted"]["step_s"] * (1 + 1e-9), strategy)

    def test_auto_leaves_devices_idle_that_only_slow_it_down(self):
        shown = json.loads(call("pipec", SOURCE / "examples/lenet/model.onnx", "--dim", "batch=8", "--cpus", "1x2", "--dry-run",
                                "--format", "json").stdout)
        alone = next(row["step_s"] for row in shown["baselines"] if row["name"] == "one device")
        self.assertLessEqual(shown["predicted"]["step_s"], alone * (1 + 1e-9))

    def test_memory_decides_about_recomputation(self):
        free = self.dry("--gpus", "1x2", "--strategy", "gpipe", "--stages", "2")
        self.assertFalse(free["recompute"])
        tight = ("--gpus", "1x2", "--strategy", "gpipe", "--stages", "2", "--memory-limit",
                 str(max(rank["peak_bytes"] for rank in free["ranks"]) * 7 // 10))
        self.assertTrue(self.dry(*tight)["recompute"])
        self.assertIn("nothing fits", self.dry(*tight, "--recompute", "none", code=79))

    def test_what_if(self):
        shown = self.dry("--gpus", "1x4", "--strategy", "1f1b", "--what-if", "devices,bandwidth,microbatches")
        values = {(row["axis"], row["value"]): row["step_s"] for row in shown["what_if"]}
        self.assertLess(values["bandwidth", "x10"], values["bandwidth", "x0.1"])
        self.assertIn(("devices", "8"), values)
        text = call("pipec", self.golden.model, *self.golden.arguments(), "--gpus", "1x4", "--dry-run",
                    "--what-if", "memory").stdout
        self.assertIn("as asked", text)
        text = call("pipec", self.golden.model, *self.golden.arguments(), "--gpus", "1x4", "--dry-run",
                    "--what-if", "memory", "--memory-limit", "2MiB").stdout
        for limit in ("1 MiB", "4 MiB"):
            self.assertRegex(text, f"(?m)^memory +{limit} ")
        self.assertIn("weather", self.dry("--gpus", "4", "--what-if", "weather", code=USAGE))
        self.assertIn("twice", self.dry("--gpus", "4", "--what-if", "memory,memory", code=USAGE))

    def test_code_that_is_shown_is_that_of_the_plan(self):
        """Under a limit that most plans are above of."""
        words = ("pipec", SOURCE / "test/models/gpt/model.onnx", "--dim", "batch=2", "--loss", "next-token", "--cpus", "4",
                 "--microbatches", "4", "--memory-limit")
        limit = int(re.search("would fit with --memory-limit ([0-9]+)", call(*words, 1000, "--dry-run").stderr)[1])
        for more in (0, limit // 32, limit // 16, limit // 8, limit // 4):
            plan = json.loads(call(*words, limit + more, "--dry-run", "--format", "json").stdout)
            code = call(*words, limit + more, "--emit", "pipe")
            self.check_exit(code, 0)
            self.assertEqual(len(re.findall(r"module @stage\d+", code.stdout)), len(plan["stages"]))
        for emit in ("pipe", "kernels"):
            self.check_exit(call(*words, limit // 2, "--emit", emit), NO_FIT)

    def test_one_device_has_one_stage(self):
        """Chunks of one device would only copy what they hand to each other."""
        for devices in ("--cpus", "--gpus"):
            plan = self.dry(devices, "1")
            self.assertEqual((plan["strategy"], len(plan["stages"])), ("1f1b", 1))

    def test_drawing(self):
        drawing = self.folder / "plan.dot"
        self.dry("--cpus", "1x2", "--stages", "2", "--dot", drawing)
        text = drawing.read_text()
        self.assertTrue(text.startswith("digraph"))
        self.assertIn('tooltip="stage 1"', text)
        self.dry("--cpus", "2", "--dot", "/proc/no/plan.dot", code=CANNOT_WRITE)


class ProfileTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("mlp")
        self.flags = [*self.golden.arguments(), "--cpus", "1x2", "--strategy", "1f1b", "--stages", "2"]

    def planned(self, *arguments, code=0):
        process = call("pipec", self.golden.model, *self.flags, *arguments, "--dry-run", "--format", "json")
        self.check_exit(process, code)
        return json.loads(process.stdout) if code == 0 else process.stderr

    def test_measured_stages_replace_the_model(self):
        plan = self.compile(self.golden.model, *self.flags)
        file = self.folder / "profile.json"
        self.train(plan, self.golden.data, 4, "--profile-out", file)
        profile = json.loads(file.read_text())
        self.assertEqual(profile["microbatch_size"], read_plan(plan)["training"]["microbatch_size"])
        self.assertEqual([profile["device"], profile["model_sha256"]], ["cpu", read_plan(plan)["model"]["sha256"]])
        self.assertEqual(profile["threads"], 1)  # the tests' environment
        self.assertEqual(len(profile["stages"]), 2)
        self.assertNotIn("nodes", profile)
        self.assertTrue(all(stage["forward_s"] > 0 and stage["update_s"] > 0 for stage in profile["stages"]))
        cuts = self.folder / "stages.json"
        cuts.write_text(json.dumps({"stages": [{"first_node": s["first_node"]} for s in profile["stages"]]}))
        shown = self.planned("--profile", file, "--stage-file", cuts)
        for stage, measured in zip(shown["stages"], profile["stages"]):
            self.assertAlmostEqual(stage["forward_s"], measured["forward_s"], delta=1e-9)
            self.assertAlmostEqual(stage["backward_input_s"], measured["backward_input_s"], delta=1e-9)
        # What the tasks' times leave of the measured step goes along: the same plan is predicted as it was measured,
        # unless the tasks alone took longer.
        step = profile["step"]
        self.assertEqual([step["strategy"], step["replicas"], step["recompute"]], ["1f1b", [1, 1], [False, False]])
        stages = profile["stages"]
        work = max(s["forward_s"] + s["backward_input_s"] + s["backward_weight_s"] for s in stages)
        least = step["microbatches"] * work
        predicted = shown["predicted"]["step_s"]
        self.assertGreater(predicted, max(least, 0.999 * step["seconds"]))
        if step["seconds"] > 2 * least:  # where all else takes as long as the work, which it does here
            self.assertAlmostEqual(predicted / step["seconds"], 1, delta=1e-3)
        self.assertEqual(read_plan(plan)["cluster"]["device"], "native")
        again = self.compile(self.golden.model, *self.flags, "--profile", file)
        self.assertEqual(read_plan(again)["cluster"]["device"], "profiled")
        # What would fit is looked for among what the profile says, of microbatches of its size.
        said = self.planned("--profile", file, "--memory-limit", "5KiB", code=NO_FIT)
        self.assertIn("nothing fits in memory", said)
        self.assertNotIn("measured with microbatches", said)

    def test_another_order_keeps_more_than_was_measured(self):
        """A profile of one order says of another what its stash costs besides, once memory is timed."""
        cluster = self.folder / "cluster.json"
        passes = [{"KiB": 1, "ns_per_KiB": 1}, {"KiB": 1024, "ns_per_KiB": 1e6}]
        cluster.write_text(json.dumps({
            "levels": [{"name": "cpu", "count": 2, "bandwidth_GBps": 5}], "cores": 2,
            "device": {"kind": "cpu", "memory_GiB": 4, "flops": {"fp32": 1e11}, "memory_GBps": 20, "own_cache_KiB": 1,
                       "passes": passes}}))
        flags = [*self.golden.arguments(), "--cluster", cluster, "--stages", "2"]
        flags[flags.index("--microbatches") + 1] = "16"

        def stages(strategy, *options):
            process = call("pipec", self.golden.model, *flags, "--strategy", strategy, *options, "--dry-run", "--format",
                           "json")
            self.check_exit(process, 0)
            return json.loads(process.stdout)["stages"]

        file, cuts = self.folder / "profile.json", self.folder / "stages.json"
        first = [stage["first_node"] for stage in stages("1f1b")]
        cuts.write_text(json.dumps({"stages": [{"first_node": node} for node in first]}))
        last = [stage["last_node"] for stage in stages("1f1b")]

        def profiled(measured, strategy, replicas=(1, 1)):
            file.write_text(json.dumps({
                "version": 1,
                "stages": [{"first_node": begin, "last_node": end, "forward_s": 1, "backward_input_s": 1,
                            "backward_weight_s": 1} for begin, end in zip(first, last)],
                "step": {"strategy": measured, "microbatches": 16, "replicas": list(replicas),
                         "recompute": [False, False], "seconds": 60}}))
            return [round(stage["forward_s"], 9) for stage in stages(strategy, "--profile", file, "--stage-file", cuts)]

        for strategy in ("1f1b", "gpipe"):
            for seconds in profiled(strategy, strategy):
                self.assertEqual(seconds, 1)
        self.assertTrue(all(seconds > 1 for seconds in profiled("1f1b", "gpipe")))
        self.assertTrue(all(seconds < 1 for seconds in profiled("gpipe", "1f1b")))
        # Of what the planner cannot price the times are as they were measured.
        for unknown in ("zb-v", "chimera", "no-such"):
            self.assertEqual(profiled(unknown, "gpipe"), [1, 1])
        # Steps that were never run are no way into the planner.
        for replicas in ([1, 2], [65536, 65536]):
            self.assertEqual(profiled("interleaved-1f1b", "gpipe", replicas), [1, 1])

    def test_a_profile_of_a_machine_that_others_use(self):
        plan = self.compile(self.golden.model, *self.flags)
        file = self.folder / "profile.json"
        with busy(len(os.sched_getaffinity(0))):
            self.train(plan, self.golden.data, 3000, "--profile-out", file)
        self.assertGreater(json.loads(file.read_text())["others_share"], 0.1)
        process = call("pipec", self.golden.model, *self.flags, "--profile", file, "--dry-run")
        self.check_exit(process, 0)
        self.assertRegex(process.stderr, r"note: other programs had \d+ % of the machine's cores while the profile was")

    def test_profiles_that_do_not_fit(self):
        file = self.folder / "profile.json"
        self.assertIn("profile.json", self.planned("--profile", file, code=NO_INPUT))
        times = '"forward_s": 1, "backward_input_s": 1, "backward_weight_s": 1'
        for text, part in (("{", "not JSON"), ("{}", "version"),
                           ('{"version": 1, "microbatch_size": 77}', "microbatches of 77"),
                           ('{"version": 1, "nodes": [{"id": "x", %s}]}' % times, "no node 'x'"),
                           ('{"version": 1, "nodes": [{"id": "0", "forward_s": 1}]}', "backward_input_s"),
                           ('{"version": 1, "nodes": [{"id": "0", %s}]}' % times, "no times for node '1'"),
                           ('{"version": 1, "device": "gpu"}', "kind gpu, not cpu"),
                           ('{"version": 1, "model_sha256": "0"}', "another file"),
                           ('{\n"version": 1,\n"nodes": [}\n}', "profile.json:3: not JSON"),
                           ('{"version": 1, "stages": [{"first_node": 0, "last_node": 999, %s}]}' % times, "999"),
                           ('{"version": 1, "nodes": [{"id": "0", %s}]}' % times.replace("1,", "-1,", 1),
                            "at least 0")):
            file.write_text(text)
            self.assertIn(part, self.planned("--profile", file, code=BAD_PLAN))
        everything = '{"version": 1, "threads": 64, "stages": [{"first_node": 0, "last_node": %d, %s}]}'
        nodes = self.planned()["stages"][-1]["last_node"]
        file.write_text(everything % (nodes, times))
        process = call("pipec", self.golden.model, *self.flags, "--profile", file, "--dry-run", "--format", "json")
        self.check_exit(process, 0)
        self.assertIn("measured on ranks of 64 threads", process.stderr)

    def test_not_with_the_oracle(self):
        plan = self.compile(self.golden.model, *self.flags)
        self.train(plan, self.golden.data, 1, "--oracle", "--profile-out", self.folder / "p.json", code=USAGE)


class LargeModelTest(PipelineTest):
    def test_weights_that_are_not_there_are_not_read(self):
        """Models of test/bench/large_models.py: sparse files of zeros, too large to be looked through."""
        spec = importlib.util.spec_from_file_location("large_models", SOURCE / "test/bench/large_models.py")
        large = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(large)
        for model, loss, flags in ((large.gpt3(layers=4), "next-token", ("--gpus", "2x2", "--microbatches", "8")),
                                   (large.llama(layers=2), "next-token", ("--gpus", "1x4", "--microbatches", "8")),
                                   (large.operators(count=2000), "mse", ("--cpus", "1x2"))):
            folder = self.fresh()
            model.save(folder)
            process = call("pipec", folder / "model.onnx", *flags, "--dim", "batch=1", "--loss", loss, "--dry-run",
                           "--format", "json")
            self.check_exit(process, 0)
            shown = json.loads(process.stdout)
            self.assertGreater(sum(stage["parameters"] for stage in shown["stages"]), 2e6)


    def test_a_wide_model_divides_operators(self):
        """Layers of GPT-3's width: two devices of 40 GB hold one with its optimizer."""
        spec = importlib.util.spec_from_file_location("large_models", SOURCE / "test/bench/large_models.py")
        large = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(large)
        folder = self.fresh()
        large.gpt3(layers=2).save(folder)
        shown = {}
        for groups in ("1", "4", "auto"):
            process = call("pipec", folder / "model.onnx", "--gpus", "1x8", "--device", "a100-40g", "--optimizer",
                           "adamw", "--microbatches", "8", "--dim", "batch=1", "--loss", "next-token", "--strategy",
                           "1f1b", "--planner", "alpa", "--tensor-parallel", groups, "--dry-run", "--format", "json")
            self.check_exit(process, 0)
            shown[groups] = json.loads(process.stdout)
        seconds = {groups: plan["predicted"]["step_s"] for groups, plan in shown.items()}
        self.assertLess(seconds["4"], 0.7 * seconds["1"])
        self.assertLessEqual(seconds["auto"], seconds["4"])
        stage = shown["4"]["stages"][0]
        self.assertEqual(stage["group"], 4)
        self.assertEqual(stage["devices"], list(range(4 * stage["replicas"])))
        self.assertIn("sum", [operator["by"] for operator in stage["operators"]])
        divided = {weight["name"] for weight in stage["weights"]}
        self.assertTrue(any("fc" in name or "mlp" in name for name in divided), divided)
        # What would do is found by trying.
        flags = ("--gpus", "1x4", "--device", "a100-40g", "--dim", "batch=1", "--loss", "next-token", "--strategy",
                 "1f1b", "--planner", "alpa", "--tensor-parallel", "4", "--microbatches", "4", "--dry-run")
        process = call("pipec", folder / "model.onnx", *flags, "--memory-limit", "4GiB")
        self.check_exit(process, NO_FIT)
        self.assertIn("no plan of groups of devices is found that keeps to the 4 GiB there are", process.stderr)
        limit = re.search(r"it would fit with --memory-limit (\d+)$", process.stderr.strip())[1]
        self.check_exit(call("pipec", folder / "model.onnx", *flags, "--memory-limit", limit), 0)
        # A quarter, and what is not divided.
        self.assertLess(stage["parameter_bytes"], 0.3 * 4 * sum(s["parameters"] for s in shown["1"]["stages"]))


class CalibrationTest(PipelineTest):
    def test_its_file_is_a_cluster(self):
        file = self.folder / "cluster.json"
        ranks = len(os.sched_getaffinity(0)) + 1  # take turns
        scratch = self.fresh()
        (scratch / "pipec-calibrate-0123abcd").mkdir(parents=True)  # of one that was killed
        # Not the job of a launcher that runs pipec itself.
        with unittest.mock.patch.dict(os.environ, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1", WORLD_SIZE="7",
                                      TMPDIR=str(scratch)):
            process = call("pipec", "calibrate", "--cpus", f"1x{ranks}", "-o", file)
        self.check_exit(process, 0)
        self.assertEqual(list(scratch.iterdir()), [])
        self.assertIn("mean error", process.stdout)
        cluster = json.loads(file.read_text())
        self.assertEqual([level["count"] for level in cluster["levels"]], [1, ranks])
        self.assertGreater(cluster["device"]["flops"]["fp32"], 1e8)
        self.assertGreater(cluster["device"]["ring_us"], 0)
        self.assertTrue(0 <= cluster["device"].get("crowd_turn_us", 0) < 200, cluster["device"])
        self.assertTrue(0 <= cluster["device"].get("crowd_seen_us", 0) < 200, cluster["device"])
        if 2 < ranks <= 64:
            self.assertNotIn("are not timed", process.stderr)
            self.assertGreater(cluster["device"]["step_us"], 0)
        self.assertGreater(cluster["device"]["turn_us"], 0)
        self.assertGreaterEqual(cluster["device"]["task_us"], 0)
        passes = cluster["device"]["passes"]
        self.assertGreater(passes[-1]["KiB"], 16 * passes[0]["KiB"])
        self.assertGreater(passes[-1]["ns_per_KiB"], passes[0]["ns_per_KiB"])
        for costs in ("kernels_ns", "far_kernels_ns"):
            self.assertEqual(set(cluster["device"][costs]),
                             {"product", "product-bf16", "generated", "copy", "gather", "scatter", "max-pool", "max-pool-grad", "avg-pool",
                              "avg-pool-grad", *(f"convolution-{of}-{path}"
                                                 for of in ("forward", "backward-input", "backward-weight")
                                                 for path in ("product", "rows", "winograd"))})
        self.assertTrue(any(cost > 0 for cost in cluster["device"]["kernels_ns"]["product"].values()))
        self.assertIn("convolution-forward-winograd", process.stdout)
        golden = Golden("mlp")
        flags = [*golden.arguments(), "--cluster", file, "--strategy", "1f1b", "--stages", "2"]
        run = self.train(self.compile(golden.model, *flags), golden.data, 2)
        self.assertEqual(len(run.losses), 2)
        self.assertIn("whole tasks", process.stdout)
        self.check_calls(cluster)

    def test_ranks_that_outnumber_the_cores(self):
        file = self.folder / "cluster.json"
        ranks = len(os.sched_getaffinity(0)) + 1
        alone = self.folder / "pipec"  # no pipec-run beside it
        shutil.copy(BIN / "pipec", alone)
        with busy(ranks // 2):
            process = subprocess.run([alone, "calibrate", "--cpus", f"1x{ranks}", "-o", file, "--quiet"],
                                     capture_output=True, text=True)
        self.check_exit(process, 0)
        self.assertRegex(process.stderr, r"note: other programs had \d+.* % of this machine's cores while it was timed")
        self.assertIn("note: messages between ranks are not timed", process.stderr)
        self.assertIn("pipec-run" if ranks > 2 else "one core", process.stderr)
        device = json.loads(file.read_text())["device"]
        self.assertNotIn("take_us", device)
        self.assertGreater(device["ring_us"], 0)
        self.assertIn("note: ranks that share cores are not timed", process.stderr)
        self.assertNotIn("crowd_turn_us", device)
        golden = Golden("mlp")
        shown = call("pipec", golden.model, *golden.arguments(), "--cluster", file, "--dry-run", "--format", "json")
        self.check_exit(shown, 0)
        self.assertGreater(json.loads(shown.stdout)["predicted"]["step_s"], 0)

    def check_calls(self, cluster):
        """Every call of the code is priced, once: a call of any kind costs 1 us here, and nothing else anything."""
        device = cluster["device"]
        device.update(threads=1, task_us=0, turn_us=0)
        for costs in ("kernels_ns", "far_kernels_ns"):
            device[costs] = {name: {amount: 1000.0 if amount == "call" else 0.0 for amount in amounts}
                             for name, amounts in device[costs].items()}
        cluster["levels"][-1]["count"] = cluster["cores"] = 1
        file = self.folder / "calls.json"
        file.write_text(json.dumps(cluster))
        for model in ("gpt", "cnn", "mlp", "unet", "translator"):
            golden = Golden(model)
            words = [golden.model, *golden.arguments(), "--cluster", file, "--strategy", "1f1b"]
            cost = read_plan(self.compile(*words))["stages"][0]["cost"]
            code = call("pipec", *words, "--emit", "kernels")
            self.check_exit(code, 0)
            calls, task = {}, None
            for line in code.stdout.splitlines():
                if "func.func" in line:
                    task = re.search(r"@(\w+)", line)[1]
                elif re.search(r"\bcall @(pipec_|kernel)", line):
                    calls[task] = calls.get(task, 0) + 1
            self.assertGreater(calls["pipec_forward"], 3)
            self.assertAlmostEqual(cost["forward_s"] * 1e6, calls["pipec_forward"], places=6)
            self.assertAlmostEqual((cost["backward_input_s"] + cost["backward_weight_s"]) * 1e6, calls["pipec_backward"],
                                   places=6)

    def test_refusals(self):
        self.check_exit(call("pipec", "calibrate", "--cpus", "0x2"), USAGE)
        self.check_exit(call("pipec", "calibrate", "-o", "/proc/no/cluster.json"), CANNOT_WRITE)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_one_that_is_ended_leaves_nothing(self):
        """Its scratch folder, in TMPDIR, says that it measures: that goes with the next one."""
        scratch, place = self.fresh(), self.fresh()
        scratch.mkdir()
        place.mkdir()
        environment = {**os.environ, "TMPDIR": str(scratch)}
        process = subprocess.Popen([str(BIN / "pipec"), "calibrate", "--cpus", "1", "-o", "new/way/it.json"], cwd=place,
                                   env=environment, stdout=subprocess.DEVNULL)
        while process.poll() is None and not list(scratch.iterdir()):
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(), -signal.SIGTERM)
        self.assertEqual(list(place.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
