# ctest: one core
"""--memory-limit: plans keep to it, and an error names what would fit."""
import json
import re
import unittest

from pipeline import NO_FIT, SOURCE, Golden, PipelineTest, call, flags, read_plan


class MemoryLimitTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("gpt")

    def dry(self, *arguments, code=0):
        return self.dry_run(self.golden.model, *self.golden.arguments(), *arguments, code=code)

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

    def test_of_a_planner_that_knows_no_memory_its_plan_is_named(self):
        """The same one whatever is asked; the usual planner where that keeps to the limit."""
        words = ("--gpus", "1x4", "--recompute", "none", "--planner")
        free = max(rank["peak_bytes"] for rank in self.dry(*words, "pipedream")["ranks"])
        for limit in (1000, free // 8, free // 2, free - 1):
            said = self.dry(*words, "pipedream", "--memory-limit", limit, code=NO_FIT)
            self.assertEqual(int(re.search("would fit with --memory-limit ([0-9]+)", said)[1]), free)
        self.assertIn("--planner auto", said)
        self.dry(*words, "auto", "--memory-limit", limit)

    def test_of_divided_operators_the_same_need_is_named(self):
        """However little is asked; under it there is a plan."""
        words = ("--gpus", "2x2", "--strategy", "1f1b", "--planner", "alpa", "--tensor-parallel", "auto", "--memory-limit")
        needs = {int(re.search("would fit with --memory-limit ([0-9]+)", self.dry(*words, limit, code=NO_FIT))[1])
                 for limit in (1, 200000)}
        self.assertEqual(len(needs), 1, needs)
        need = needs.pop()
        self.assertLessEqual(max(stage["peak_bytes"] for stage in self.dry(*words, need)["stages"]), need)

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
        return self.dry_run(self.golden.model, *words, code=code)

    def test_what_would_fit_does(self):
        """Whatever the error names has been tried: who takes it gets a plan."""
        kinds = set()
        for share, words in ((60, "--gpus 1x2 --strategy gpipe --recompute none"), (60, "--cpus 1x2 --strategy 1f1b"),
                             (40, "--gpus 2x2 --strategy auto"), (60, "--cpus 2 --strategy pipedream --microbatches 1")):
            asked = flags(self.golden.arguments()) | flags(words.split())
            most = max(rank["peak_bytes"] for rank in self.plan(asked, 0)["ranks"])
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

    def test_auto_is_as_fast_as_a_searched_order_that_fits(self):
        """What it looks at quickly, or takes for too much, is 9 % slower here."""
        words = (SOURCE / "examples/lenet/model.onnx", "--dim", "batch=8", "--microbatches", "4", "--loss", "cross-entropy",
                 "--gpus", "1x3", "--memory-limit", "580000", "--strategy")
        best, named = (self.dry_run(*words, strategy)["predicted"]["step_s"] for strategy in ("auto", "zb"))
        self.assertLessEqual(best, named * (1 + 1e-9))

    def test_memory_decides_about_recomputation(self):
        free = self.dry("--gpus", "1x2", "--strategy", "gpipe", "--stages", "2")
        self.assertFalse(free["recompute"])
        tight = ("--gpus", "1x2", "--strategy", "gpipe", "--stages", "2", "--memory-limit",
                 str(max(rank["peak_bytes"] for rank in free["ranks"]) * 7 // 10))
        self.assertTrue(self.dry(*tight)["recompute"])
        self.assertIn("nothing fits", self.dry(*tight, "--recompute", "none", code=79))

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


if __name__ == "__main__":
    unittest.main()
