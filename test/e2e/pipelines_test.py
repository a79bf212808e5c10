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
        for one, two in zip(read_plan(plan)["stages"], read_plan(again)["stages"], strict=True):
            for part in ("ranks", "first_node", "last_node"):
                self.assertEqual(one[part], two[part])
        self.assertNotEqual(read_plan(plan)["predicted"]["step_s"], read_plan(again)["predicted"]["step_s"])
        self.assertEqual(self.losses(again, golden, 3), self.losses(plan, golden, 3))

    def layout(self, plan):
        plan = read_plan(plan)
        return [stage["ranks"] for stage in plan["stages"]], [(rank["host"], rank["device"]) for rank in plan["ranks"]]

    def test_gpus_are_as_many_pipelines_as_pays(self):
        """On servers with slow links pipelines stay inside them, and ranks are where the plan has them."""
        golden = Golden("gpt")
        arguments = golden.arguments("sgd:lr=0.05")
        arguments[arguments.index("--microbatches") + 1] = "16"
        for strategy in ("interleaved-1f1b", "zb-v"):
            with self.subTest(strategy=strategy):
                words = (*arguments, "--gpus", "2x2", "--strategy", strategy)
                plan = self.compile(golden.model, *words)
                stages, ranks = self.layout(plan)
                for rank, (host, device) in enumerate(ranks):
                    self.assertEqual(rank, 2 * host + device)
                for copy in (0, 1):
                    self.assertEqual({ranks[stage[copy]][0] for stage in stages}, {copy})
                again = self.compile(golden.model, *words, "--stage-file", plan / "plan.json")
                self.assertEqual(self.layout(again), (stages, ranks))


if __name__ == "__main__":
    unittest.main()
