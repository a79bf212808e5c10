"""A run that stopped at a checkpoint goes on bit for bit, on any number of ranks."""
import unittest

from pipeline import Golden, PipelineTest


class ResumeTest(PipelineTest):
    def plan(self, golden, ranks, strategy="1f1b"):
        return self.compile(golden.model, *golden.arguments("adamw:lr=0.005"), "--cpus",
                            "1x%d" % ranks, "--stages", ranks, "--strategy", strategy)

    def check(self, name):
        golden = Golden(name)
        plan = self.plan(golden, 2)
        whole = self.train(plan, golden.data, 6).losses
        checkpoint = self.folder / "checkpoint"
        first = self.train(plan, golden.data, 4, "--checkpoint", checkpoint,
                           "--checkpoint-every", "2")
        self.assertEqual(first.losses, whole[:4])
        for other in (plan, self.plan(golden, 1), self.plan(golden, 3, "gpipe")):
            rest = self.train(other, golden.data, 6, "--resume", checkpoint)
            self.assertEqual(rest.steps, [5, 6])
            self.assertEqual(rest.losses, whole[4:])

    def test_transformer_with_tied_weights(self):
        self.check("gpt")

    def test_running_statistics(self):
        self.check("cnn")

    def test_shuffled_data(self):
        golden = Golden("mlp")
        plan = self.plan(golden, 2)
        # 46 rows, 16 a step: the third step crosses into the next epoch.
        whole = self.train(plan, golden.data, 6, "--shuffle", "7").losses
        self.assertNotEqual(whole, self.train(plan, golden.data, 6).losses)
        checkpoint = self.folder / "checkpoint"
        self.train(plan, golden.data, 3, "--shuffle", "7", "--checkpoint", checkpoint)
        rest = self.train(plan, golden.data, 6, "--shuffle", "7", "--resume", checkpoint)
        self.assertEqual(rest.losses, whole[3:])


if __name__ == "__main__":
    unittest.main()
