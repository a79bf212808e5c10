"""A run that stopped at a checkpoint goes on bit for bit, on any number of ranks."""
import unittest

from pipeline import USAGE, Golden, PipelineTest, call


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

    def test_steps_that_are_done(self):
        golden = Golden("mlp")
        plan = self.plan(golden, 2)
        checkpoint = self.folder / "checkpoint"
        self.train(plan, golden.data, 4, "--checkpoint", checkpoint)
        flags = [word for name, file in golden.data.items()
                 for word in ("--data", "%s=%s" % (name, file))]
        done = call("pipec-run", plan, *flags, "--resume", checkpoint, "--steps", 4,
                    "--profile-out", self.folder / "profile.json")
        self.check_exit(done, 0)
        self.assertEqual(done.stdout, "nothing left to do: the checkpoint in %s has done all 4 steps "
                         "(they count from the very first)\n" % checkpoint)
        self.assertFalse((self.folder / "profile.json").exists())  # it would be one of zeros
        early = call("pipec-run", plan, *flags, "--resume", checkpoint, "--steps", 3)
        self.check_exit(early, USAGE)
        self.assertIn("the checkpoint is of step 4, behind --steps 3", early.stderr)


if __name__ == "__main__":
    unittest.main()
