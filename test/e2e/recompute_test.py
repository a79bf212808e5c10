"""Stages that compute their activations again where memory asks for it, beside stages that keep theirs."""
import json
import unittest

from pipeline import Golden, PipelineTest, call, read_plan

STEPS = 3


def again(plan):
    return [stage["recompute"] for stage in read_plan(plan)["stages"]]


def peak(plan):
    return max(rank["peak_bytes"] for rank in read_plan(plan)["ranks"])


class Recompute(PipelineTest):
    """The stages of a plan without a limit, by hand, under smaller ones."""

    def plan(self, golden, strategy, ranks, *words):
        arguments = golden.arguments("sgd:lr=0.05,momentum=0.9")
        arguments[arguments.index("--microbatches") + 1] = "8"
        return self.compile(golden.model, *arguments, *self.cores(ranks), "--strategy", strategy, *words)

    def train_it(self, plan, golden, *words):
        run = self.train(plan, golden.data, STEPS, "--verify", *words)
        for rank in run.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        return run.losses

    def some(self, golden, strategy, ranks, mixed={False, True}):
        """Plans whose stages keep all, a part of and none of their activations."""
        stages = 2 * ranks if strategy in ("looped-bfs", "interleaved-1f1b") else ranks
        free = self.plan(golden, strategy, ranks, "--stages", stages)
        cuts = ("--stage-file", free / "plan.json")
        full = self.plan(golden, strategy, ranks, *cuts, "--recompute", "full")
        self.assertLess(peak(full), peak(free))
        limit = peak(full) + (peak(free) - peak(full)) * 3 // 4
        part = self.plan(golden, strategy, ranks, *cuts, "--memory-limit", limit)
        self.assertLessEqual(peak(part), limit)
        self.assertEqual(set(again(free)), {False})
        self.assertEqual(set(again(full)), {True})
        self.assertEqual(set(again(part)), mixed)
        return free, part, full

    def test_a_part_of_the_stages(self):
        """The same bits, no more memory than the limit, a step between those of all and none."""
        golden = Golden("gpt")
        for strategy, ranks in (("1f1b", 3), ("gpipe", 2), ("zb-h1", 3), ("zb-h2", 3), ("interleaved-1f1b", 2),
                                ("looped-bfs", 2), ("dualpipe", 4)):
            with self.subTest(strategy=strategy):
                self.check_all(golden, self.some(golden, strategy, ranks))

    def check_all(self, golden, plans):
        seconds = [read_plan(plan)["predicted"]["step_s"] for plan in plans]
        self.assertEqual(sorted(seconds), seconds)
        losses = [self.train_it(plan, golden, "--transport", "inproc") for plan in plans]
        self.assertEqual(losses[1:], [losses[0]] * 2)

    def test_fewer_microbatches_in_flight_instead(self):
        """Chimera has another order for that, which takes less time than computing again."""
        golden = Golden("gpt")
        self.check_all(golden, self.some(golden, "chimera", 4, mixed={False}))

    def test_a_timeline_has_the_second_forward_once(self):
        """Every backward takes as long as the stage's cost says, and all tasks together no longer than the step."""
        golden = Golden("gpt")
        for plan in self.some(golden, "gpipe", 2):
            shown = json.loads(call("pipec", "inspect", plan, "--format", "json").stdout)
            for task in (task for rank in shown["timeline"]["ranks"] for task in rank):
                stage = shown["stages"][task["stage"]]
                seconds = {"F": stage["forward_s"], "B": stage["backward_input_s"] + stage["backward_weight_s"]}
                self.assertAlmostEqual(task["end_s"] - task["start_s"], seconds[task["kind"]], delta=1e-9)
            self.assertLessEqual(shown["timeline"]["step_s"], shown["predicted"]["step_s"])

    def test_between_processes_and_with_a_profile(self):
        golden = Golden("gpt")
        free, part, _ = self.some(golden, "1f1b", 3)
        profile = self.fresh(".json")
        self.assertEqual(self.train_it(part, golden, "--profile-out", profile), self.train_it(free, golden))
        self.assertEqual(json.loads(profile.read_text())["step"]["recompute"], again(part))
        # The measured stages are without what they computed again, which the plan adds to their backward.
        planned = self.plan(golden, "1f1b", 3, "--stage-file", part / "plan.json", "--memory-limit", peak(part),
                            "--profile", profile)
        self.assertEqual(again(planned), again(part))
        measured = json.loads(profile.read_text())["stages"]
        for stage, times in zip(read_plan(planned)["stages"], measured, strict=True):
            cost = stage["cost"]
            forward = cost["forward_s"] if stage["recompute"] else 0
            self.assertAlmostEqual((cost["backward_input_s"] - forward) / cost["forward_s"],
                                   times["backward_input_s"] / times["forward_s"], delta=1e-6)


if __name__ == "__main__":
    unittest.main()
