"""Pipedream and zero-bubble strategies on GPUs; on stand-ins of NVIDIA's libraries."""
import unittest
from unittest import mock

from gpu_test import GpuTest
from pipeline import Golden, read_plan


class PipeDream(GpuTest):
    """Weights change within a step: each microbatch reads the versions that the strategy names."""

    def plan(self, name, replicas, *words):
        golden = Golden(name)
        golden.pipec_args[golden.pipec_args.index("--microbatches") + 1] = "1"
        plan = self.compile_for(golden, "1x%d" % sum(replicas), "--strategy", "pipedream", "--stages", len(replicas),
                                "--replicas", "-".join(map(str, replicas)), *words, optimizer="sgd:lr=0.05,momentum=0.9")
        self.assertEqual([len(stage["ranks"]) for stage in read_plan(plan)["stages"]], list(replicas))
        return golden, plan

    def check(self, name, replicas, steps=11):
        golden, plan = self.plan(name, replicas)
        want = self.run_gpu(plan, golden, "--steps", steps, "--oracle").losses
        self.assertEqual(len(want), steps)
        for settings in ({}, {"order": "random:5"}):
            got = self.run_gpu(plan, golden, "--steps", steps, **settings)
            self.assertEqual(got.losses, want)
            for rank in got.summary["ranks"]:
                self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        return golden, plan, want

    def test_straight(self):
        golden, plan, want = self.check("mlp", (1, 1, 1))
        self.assertGreater(read_plan(plan)["stages"][0]["versions"], 1)
        self.assertEqual(self.run_gpu(plan, golden, "--steps", 11, "--transport", "nccl", devices=3).losses, want)
        folder = self.fresh()
        self.run_gpu(plan, golden, "--steps", 6, "--checkpoint", folder)
        self.assertEqual(self.run_gpu(plan, golden, "--steps", 11, "--resume", folder).losses, want[6:])

    def test_replicas_and_statistics(self):
        self.check("mlp", (2, 1))
        self.check("cnn", (2, 1), steps=5)

    def test_shared_weights(self):
        """An embedding that is the last stage's weight as well is summed after every round."""
        self.check("gpt", (1, 1), steps=5)

    def test_longer_than_one_run(self):
        """Runs are of 256 rounds; the pipeline drains between them, and the numbers do not see it."""
        golden, plan = self.plan("mlp", (1, 1))
        want = self.run_gpu(plan, golden, "--steps", 270, "--oracle").losses
        self.assertEqual(self.run_gpu(plan, golden, "--steps", 270).losses, want)


    def test_checkpoints_are_written_when_they_are_due(self):
        """And only then: not after the 256 rounds of a run (here 512 steps)."""
        golden, plan = self.plan("mlp", (2, 1))
        folder = self.fresh()
        every = ("--checkpoint", folder, "--checkpoint-every")
        run = self.run_gpu(plan, golden, "--steps", 513, *every, 600)
        self.assertIn("no checkpoint after step 513", run.stderr)
        self.assertFalse(folder.exists())
        run = self.run_gpu(plan, golden, "--steps", 7, *every, 4)
        self.assertIn("no checkpoint after step 7", run.stderr)
        self.assertEqual(self.run_gpu(plan, golden, "--steps", 7, "--resume", folder).losses, run.losses[4:])


class ZeroBubble(GpuTest):
    """What takes updates back on processors ends its steps with a barrier on GPUs: the same numbers."""

    def test_clipping(self):
        golden = Golden("mlp")
        words = ("--strategy", "zb-h2", "--clip-norm", "0.5", "--stages", "2")
        plan = self.compile_for(golden, "1x2", *words)
        self.assertFalse(read_plan(plan)["strategy"]["post_validation"])
        got = self.run_gpu(plan, golden, "--steps", 5).losses
        cpu = self.compile(golden.model, *golden.arguments("sgd:lr=0.05"), "--cpus", "2", *words)
        self.assertTrue(read_plan(cpu)["strategy"]["post_validation"])
        for one, two in zip(got, self.train(cpu, golden.data, 5, "--transport", "inproc").losses):
            self.assertAlmostEqual(one, two, delta=1e-5 * abs(one))

    def test_ranks_with_as_many_first_forwards(self):
        """Two microbatches on three ranks: none may wait for an update in the middle of a step."""
        golden = Golden("mlp")
        words = golden.arguments("sgd:lr=0.05")
        words[words.index("--microbatches") + 1] = "2"
        losses = []
        with mock.patch.object(golden, "arguments", lambda optimizer: words):
            for ranks in (1, 3):
                plan = self.compile_for(golden, "1x%d" % ranks, "--stages", ranks, "--strategy", "zb-h1")
                self.assertFalse(read_plan(plan)["strategy"]["post_validation"])
                losses.append(self.run_gpu(plan, golden, "--steps", 3, "--timeout", 20).losses)
        self.assertEqual(*losses)


if __name__ == "__main__":
    unittest.main()
