"""Trains one model under every synchronous strategy that `pipec list strategies` names.

A strategy with one copy of each stage has the bits of one process; one that sums
copies (data parallelism, bidirectional pipelines) or pieces of sequences is within
1e-5. Measured peak =
predicted peak.
"""
import json
import unittest

from pipeline import Golden, PipelineTest, call, read_plan

RANKS, MICROBATCHES, STEPS = 4, 8, 3


class StrategiesTest(PipelineTest):
    def losses(self, strategy, ranks, *extra):
        golden = Golden("gpt")
        words = golden.arguments()
        words[words.index("--microbatches") + 1] = MICROBATCHES
        plan = self.compile(golden.model, *words, "--cpus", ranks, "--strategy", strategy, *extra)
        run = self.train(plan, golden.data, STEPS, "--transport", "inproc")
        for rank in run.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        written = read_plan(plan)
        sums = written["strategy"]["slices"] > 1 or any(len(stage["ranks"]) > 1 for stage in written["stages"])
        return run.losses, sums

    def test_late_weight_gradients(self):
        """A weight gradient still reads what came in when the next microbatch's has come."""
        one, _ = self.losses("1f1b", 1)
        for name in ("zb-h1", "zb"):
            with self.subTest(strategy=name):
                self.assertEqual(self.losses(name, 3)[0], one)

    def rows(self):
        return json.loads(call("pipec", "list", "strategies", "--format", "json").stdout)

    def test_clipping_without_a_barrier(self):
        """Updates that are made before the norm of all stages is known, and made again."""
        free, _ = self.losses("1f1b", 1)
        names = [row["name"] for row in self.rows() if row["update"] == "validated"]
        self.assertIn("zb-h1", names)
        for limit in ("0.3", "1.2"):
            one, _ = self.losses("1f1b", 1, "--clip-norm", limit)
            self.assertNotEqual(one, free)
            for name in names if limit == "0.3" else names[:1]:
                with self.subTest(strategy=name, limit=limit):
                    self.assertEqual(self.losses(name, RANKS, "--clip-norm", limit)[0], one)

    def test_memory_of_updates_that_may_not_stand(self):
        """What an update may have to go back to is predicted, in the limit, and in the arena, to the byte."""
        golden = Golden("gpt")
        words = golden.arguments()
        words[words.index("--microbatches") + 1] = MICROBATCHES
        words[words.index("--optimizer") + 1] = "adamw"
        words += ["--cpus", RANKS]

        def plan_of(strategy, *extra):
            return self.compile(golden.model, *words, "--strategy", strategy, *extra)

        for strategy in ("zb-h1", "zb-v"):
            with self.subTest(strategy=strategy):
                free = read_plan(plan_of(strategy))["ranks"]
                plan = plan_of(strategy, "--clip-norm", "0.3")
                clipped = read_plan(plan)["ranks"]
                for rank, (before, after) in enumerate(zip(free, clipped)):
                    undo = before["weights_bytes"] + before["optimizer_bytes"] if rank + 1 < RANKS else 0
                    self.assertEqual(after["peak_bytes"] - before["peak_bytes"], undo)
                measured = self.train(plan, golden.data, STEPS, "--transport", "inproc").summary["ranks"]
                self.assertEqual([rank["peak_bytes"] for rank in measured], [rank["peak_bytes"] for rank in clipped])
        # 1f1b ends its steps with a barrier: nothing to go back to.
        free, clipped = (read_plan(plan_of("1f1b", *extra))["ranks"] for extra in ((), ("--clip-norm", "0.3")))
        self.assertEqual([rank["peak_bytes"] for rank in free], [rank["peak_bytes"] for rank in clipped])

    def test_every_synchronous_strategy(self):
        one, _ = self.losses("1f1b", 1)
        names = [row["name"] for row in self.rows() if row["synchronous"] == "yes"]
        self.assertIn("zb-h1", names)
        for name in names:
            with self.subTest(strategy=name):
                losses, sums = self.losses(name, RANKS)
                if not sums:
                    self.assertEqual(losses, one)
                for a, b in zip(losses, one):
                    self.assertLess(abs(a - b) / abs(b), 1e-5)


if __name__ == "__main__":
    unittest.main()
