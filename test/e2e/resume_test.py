"""A run that stopped at a checkpoint goes on bit for bit, on any number of ranks."""
import shutil
import unittest

from pipeline import BAD_PLAN, USAGE, Golden, PipelineTest, call


class ResumeTest(PipelineTest):
    def plan(self, golden, ranks, strategy="1f1b", optimizer="adamw:lr=0.005", more=()):
        return self.compile(golden.model, *golden.arguments(optimizer), "--cpus", "1x%d" % ranks, "--stages", ranks,
                            "--strategy", strategy, *more)

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

    def damaged(self, plan, data, checkpoint, name, change):
        """What is said of a copy of the checkpoint with one file changed."""
        copy = self.fresh()
        shutil.copytree(checkpoint, copy)
        file, = copy.glob("*/" + name)
        file.write_bytes(change(file.read_bytes()))
        process = call("pipec-run", plan, *data, "--resume", copy, "--steps", 4)
        self.check_exit(process, BAD_PLAN)
        self.assertNotIn("json.exception", process.stderr)
        return process.stderr

    def test_other_data_and_damage(self):
        golden = Golden("mlp")
        plan = self.plan(golden, 1)
        checkpoint = self.folder / "checkpoint"
        self.train(plan, golden.data, 2, "--checkpoint", checkpoint)
        other = self.folder / "other.npy"
        other.write_bytes(golden.data["input"].read_bytes()[:-4] + bytes(4))
        flags = ["--data", "labels=%s" % golden.data["labels"], "--data"]
        for file, noted in ((golden.data["input"], False), (other, True)):
            process = call("pipec-run", plan, *flags, "input=%s" % file, "--resume", checkpoint, "--steps", 3)
            self.check_exit(process, 0)
            self.assertEqual(process.stderr, "pipec-run: note: the checkpoint was trained on other data for 'input'; "
                             "from here on a step takes its rows from this\n" if noted else "")
        data = [*flags, "input=%s" % other]
        self.assertIn("is damaged: a member is missing, or is not what is written there; resume from another checkpoint",
                      self.damaged(plan, data, checkpoint, "commit.json",
                                   lambda text: text.replace(b'"step": 2', b'"step": "2"')))
        self.assertIn("is damaged: it is not JSON; resume from another checkpoint",
                      self.damaged(plan, data, checkpoint, "commit.json", lambda text: text[:40]))
        self.assertIn("is damaged, or no safetensors file: its header does not say what is in it",
                      self.damaged(plan, data, checkpoint, "*.safetensors",
                                   lambda text: text[:8] + b"!" + text[9:]))

    def test_other_settings(self):
        golden = Golden("mlp")
        heavy = self.plan(golden, 1, optimizer="sgd:lr=0.2,momentum=0.9")
        light = self.plan(golden, 1, optimizer="sgd:lr=0.01", more=["--clip-norm", "0.5"])
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        self.train(heavy, golden.data, 2, "--checkpoint", self.folder / "heavy")
        self.train(light, golden.data, 2, "--checkpoint", self.folder / "light")
        less = call("pipec-run", light, *data, "--resume", self.folder / "heavy", "--steps", 3)
        self.check_exit(less, 0)
        self.assertEqual(less.stderr, "pipec-run: note: the checkpoint was trained with clip-norm=0, lr=0.2, momentum=0.9, "
                         "the plan goes on with clip-norm=0.5, lr=0.01, momentum=0; the momentum that it has is left out\n")
        rate = call("pipec-run", heavy, *data, "--resume", self.folder / "heavy", "--steps", 3, "--lr-schedule",
                    "cosine:total=3")
        self.check_exit(rate, 0)
        self.assertEqual(rate.stderr, "pipec-run: note: the checkpoint was trained with --lr-schedule constant, this run "
                         "goes on with cosine:total=3\n")
        more = call("pipec-run", heavy, *data, "--resume", self.folder / "light", "--steps", 3)
        self.check_exit(more, BAD_PLAN)
        self.assertRegex(more.stderr, "has no tensor 'optimizer/[^']*'; resume it with a plan compiled with the "
                         "--optimizer settings that it was trained with\n")

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
        self.assertIn("the checkpoint is of step 4, past --steps 3; steps count from the very first: give more than 4\n",
                      early.stderr)
        shuffled = call("pipec-run", plan, *flags, "--resume", checkpoint, "--steps", 6, "--shuffle", 3)
        self.check_exit(shuffled, USAGE)
        self.assertIn("commit.json: was trained without --shuffle, leave it out\n", shuffled.stderr)


if __name__ == "__main__":
    unittest.main()
