"""PipeDream is PipeDream: its losses equal the sequential oracle's at every step.

The oracle trains in one process, without a pipeline, and reads the weight
versions that the strategy names.
"""
import unittest

from pipeline import Golden, PipelineTest, read_plan, USAGE, call


class PipeDreamTest(PipelineTest):
    def flags(self, golden, ranks):
        words = golden.arguments("sgd:lr=0.05,momentum=0.9")
        words[words.index("--microbatches") + 1] = "1"
        return [*words, "--cpus", "1x%d" % ranks, "--strategy", "pipedream"]

    def check(self, name, ranks, replicas):
        golden = Golden(name)
        plan = self.compile(golden.model, *self.flags(golden, ranks), "--stages", len(replicas),
                            "--replicas", "-".join(map(str, replicas)))
        stages = read_plan(plan)["stages"]
        self.assertEqual([len(stage["ranks"]) for stage in stages], replicas)
        self.check_versions(stages, replicas)
        run = self.train(plan, golden.data, 12, "--verify", "--transport", "inproc")
        oracle = self.train(plan, golden.data, 12, "--oracle")
        self.assertEqual(run.losses, oracle.losses)
        return run.losses

    def check_versions(self, stages, replicas):
        """Weight versions of a stage: the microbatches in flight there (NOAM in
        the first stage), PipeDream section 3.2."""
        for stage, own in zip(stages, replicas):
            after = sum(replicas[stage["id"]:])
            self.assertEqual(stage["versions"], -(-after // own), "stage %d" % stage["id"])

    def test_straight_pipelines(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                self.check("mlp", ranks, [1] * ranks)

    def test_transformer(self):
        self.check("gpt", 3, [1, 1, 1])

    def test_replicated_first_stage(self):
        self.check("mlp", 3, [2, 1])
        self.check("mlp", 4, [3, 1])

    def test_running_statistics(self):
        self.check("cnn", 3, [2, 1])

    def test_is_not_synchronous(self):
        golden = Golden("mlp")
        stale = self.check("mlp", 3, [1, 1, 1])
        words = self.flags(golden, 3)
        words[words.index("pipedream")] = "1f1b"
        plan = self.compile(golden.model, *words, "--stages", "3")
        fresh = self.train(plan, golden.data, 12).losses
        self.assertEqual(stale[0], fresh[0])
        self.assertNotEqual(stale[3:], fresh[3:])

    def test_refuses_microbatches_in_a_step(self):
        golden = Golden("mlp")
        words = self.flags(golden, 2)
        words[words.index("--microbatches") + 1] = "4"
        process = call("pipec", golden.model, *words, "-o", self.fresh())
        self.check_exit(process, USAGE)
        self.assertIn("--microbatches", process.stderr)


class ReplicaTest(PipelineTest):
    def test_synchronous_replicas_are_close_to_one_rank(self):
        golden = Golden("mlp")
        flags = golden.arguments("sgd:lr=0.05,momentum=0.9")
        one = self.compile(golden.model, *flags, "--cpus", "1x1", "--strategy", "1f1b")
        want = self.train(one, golden.data, 8).losses
        for ranks, replicas in ((3, "2-1"), (4, "2-2")):
            plan = self.compile(golden.model, *flags, "--cpus", "1x%d" % ranks, "--strategy", "1f1b",
                                "--stages", "2", "--replicas", replicas)
            got = self.train(plan, golden.data, 8, "--transport", "inproc").losses
            for a, b in zip(got, want):
                self.assertLessEqual(abs(a - b), 1e-5 * abs(b))

    def test_data_parallelism(self):
        golden = Golden("mlp")
        flags = golden.arguments("sgd:lr=0.05,momentum=0.9")
        one = self.compile(golden.model, *flags, "--cpus", "1x1", "--strategy", "1f1b")
        want = self.train(one, golden.data, 8).losses
        plan = self.compile(golden.model, *flags, "--cpus", "1x4", "--strategy", "dp")
        self.assertEqual(len(read_plan(plan)["stages"]), 1)
        for a, b in zip(self.train(plan, golden.data, 8).losses, want):
            self.assertLessEqual(abs(a - b), 1e-5 * abs(b))


if __name__ == "__main__":
    unittest.main()
