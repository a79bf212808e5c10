"""--profile: plans of times that were measured."""
import json
import os
import unittest

from pipeline import BAD_PLAN, NO_FIT, NO_INPUT, USAGE, Golden, PipelineTest, busy, call, read_plan


class ProfileTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("mlp")
        self.flags = [*self.golden.arguments(), "--cpus", "1x2", "--strategy", "1f1b", "--stages", "2"]

    def planned(self, *arguments, code=0):
        return self.dry_run(self.golden.model, *self.flags, *arguments, code=code)

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
            return self.dry_run(self.golden.model, *flags, "--strategy", strategy, *options)["stages"]

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
        for unknown in ("zb-v", "chimera", "file", "forward-only"):
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
        step = '{"version": 1, "step": {"strategy": "%s", "microbatches": 4, "seconds": 1, "recompute": []}}'
        for text, part in (("{", "not JSON"), ("{}", "version"),
                           ('{"version": 1, "microbatch_size": 77}', "microbatches of 77"),
                           ('{"version": 1, "nodes": [{"id": "x", %s}]}' % times, "no node 'x'"),
                           ('{"version": 1, "nodes": [{"id": "0", "forward_s": 1}]}', "backward_input_s"),
                           ('{"version": 1, "nodes": [{"id": "0", %s}]}' % times, "no times for node '1'"),
                           ('{"version": 1, "device": "gpu"}', "kind gpu, not cpu"),
                           ('{"version": 1, "device": "gpu"}', "profile %s does not fit the model" % file),
                           (step % "1f2b", "no strategy '1f2b' (did you mean 1f1b?)"),
                           (step % "", "has no \\\"strategy"),
                           ("{", "--profile-out FILE writes one"),
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


if __name__ == "__main__":
    unittest.main()
