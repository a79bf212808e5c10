"""Several whole pipelines of any schedule: the numbers of as many replicas of 1F1B's stages."""
import unittest

from pipeline import Golden, PipelineTest, read_plan

CHUNKED = ("interleaved-1f1b", "looped-bfs", "interleaved-zb", "dualpipe-v", "zb-v", "v-half", "v-min", "v-flex", "1f1b-v")
STRATEGIES = ("zb-h1", "zb-h2", "zb", *CHUNKED)


class Pipelines(PipelineTest):
    def plan(self, golden, strategy, *words, microbatches="8", replicas=2):
        stages = 4 if strategy in CHUNKED else 2
        arguments = golden.arguments("sgd:lr=0.05,momentum=0.9")
        arguments[arguments.index("--microbatches") + 1] = microbatches
        plan = self.compile(golden.model, *arguments, "--cpus", 2 * replicas, "--strategy", strategy, "--replicas",
                            "-".join([str(replicas)] * stages), *words)
        for stage in read_plan(plan)["stages"]:
            self.assertEqual(len(stage["ranks"]), replicas)
        return plan

    def losses(self, plan, golden, steps, *words):
        run = self.train(plan, golden.data, steps, "--verify", "--transport", "inproc", *words)
        for rank in run.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        return run.losses

    def test_have_the_numbers_of_replicas(self):
        """Also where the last microbatch is one pipeline's alone, and with the norm of all gradients."""
        golden = Golden("gpt")
        for microbatches, words in (("8", ()), ("7", ("--clip-norm", "0.5"))):
            want = self.losses(self.plan(golden, "1f1b", *words, microbatches=microbatches), golden, 4)
            for strategy in STRATEGIES:
                with self.subTest(strategy=strategy, microbatches=microbatches):
                    plan = self.plan(golden, strategy, *words, microbatches=microbatches)
                    self.assertFalse(read_plan(plan)["strategy"]["post_validation"])
                    self.assertEqual(self.losses(plan, golden, 4), want)

    def test_between_processes(self):
        golden = Golden("cnn")
        plan = self.plan(golden, "interleaved-zb")
        want = self.losses(plan, golden, 3)
        self.assertEqual(self.train(plan, golden.data, 3).losses, want)

    def test_are_planned_by_their_own_profile(self):
        """A measured step of several pipelines is priced, and the plan made with it is the same again."""
        golden = Golden("gpt")
        plan = self.plan(golden, "zb-h1")
        profile = self.fresh()
        self.train(plan, golden.data, 4, "--transport", "inproc", "--profile-out", profile)
        again = self.plan(golden, "zb-h1", "--profile", profile, "--stage-file", plan / "plan.json")
        self.assertGreater(read_plan(again)["predicted"]["step_s"], 0)
        self.assertEqual(self.losses(again, golden, 3), self.losses(plan, golden, 3))

    def test_gpus_are_as_many_pipelines_as_pays(self):
        """On servers with slow links pipelines stay inside them, and ranks are where the plan has them."""
        golden = Golden("gpt")
        arguments = golden.arguments("sgd:lr=0.05")
        arguments[arguments.index("--microbatches") + 1] = "16"
        plan = self.compile(golden.model, *arguments, "--gpus", "2x2", "--strategy", "interleaved-1f1b")
        made = read_plan(plan)
        self.assertEqual(len({rank["host"] for rank in made["ranks"]}), 2)
        for stage in made["stages"]:
            self.assertEqual(len(stage["ranks"]), 2)
        for rank in made["ranks"]:
            self.assertEqual(rank["rank"], 2 * rank["host"] + rank["device"])


if __name__ == "__main__":
    unittest.main()
