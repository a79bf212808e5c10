"""Weights of any floating type train; their masters are float32, the exported model has its own type again. With --precision
bf16 products round as PyTorch does them by the definition (test/models/rounded.py)."""
import json
import random
import struct
import unittest

import onnx_writer as onnx
from pipeline import Golden, PipelineTest, USAGE, call, initializers, read_plan, write_npy

SIZES = (12, 20, 5)
TOLERANCE = {onnx.FLOAT: 0, onnx.DOUBLE: 1e-6, onnx.FLOAT16: 3e-3, onnx.BFLOAT16: 3e-2}
FORMAT = {onnx.FLOAT: "f", onnx.DOUBLE: "d", onnx.FLOAT16: "e"}


class PrecisionTest(PipelineTest):
    def setUp(self):
        super().setUp()
        random.seed(11)
        # Numbers that every type holds exactly.
        self.weights = [[random.randrange(-64, 65) / 128 for _ in range(a * b)] for a, b in zip(SIZES, SIZES[1:])]
        self.data = {"input": self.fresh(".npy"), "labels": self.fresh(".npy")}
        rows = [random.randrange(-128, 129) / 64 for _ in range(32 * SIZES[0])]
        write_npy(self.data["input"], "<f4", (32, SIZES[0]), struct.pack("<%df" % len(rows), *rows))
        write_npy(self.data["labels"], "<i8", (32,), struct.pack("<32q", *(random.randrange(5) for _ in range(32))))

    def write_model(self, kind):
        path = self.fresh(".onnx")
        path.write_bytes(onnx.model(
            [onnx.node("Cast", ["input"], ["x"], to=kind), onnx.node("MatMul", ["x", "w0"], ["a"]),
             onnx.node("Relu", ["a"], ["b"]), onnx.node("MatMul", ["b", "w1"], ["logits"])],
            [onnx.tensor("w%d" % i, kind, (a, b), self.weights[i]) for i, (a, b) in enumerate(zip(SIZES, SIZES[1:]))],
            [onnx.value("input", onnx.FLOAT, (4, SIZES[0]))], [onnx.value("logits", kind, (4, SIZES[-1]))]))
        return path

    def plan_of(self, model, ranks):
        return self.compile(model, "--cpus", "1x%d" % ranks, "--stages", ranks, "--microbatches", 2, "--optimizer",
                            "sgd:lr=0.1,momentum=0.9")

    def train_in(self, kind, ranks):
        trained = self.fresh(".onnx")
        plan = self.plan_of(self.write_model(kind), ranks)
        return self.train(plan, self.data, 8, "--export", trained).losses, initializers(trained)

    def check(self, kind):
        want, expected = self.train_in(onnx.FLOAT, 1)
        for ranks in (1, 2):
            losses, tensors = self.train_in(kind, ranks)
            for a, b in zip(losses, want):
                self.assertLessEqual(abs(a - b), TOLERANCE[kind] * abs(b))
            for name, tensor in tensors.items():
                self.assertEqual(tensor.type, kind)
                if kind not in FORMAT:
                    continue
                values = struct.unpack("<%d%s" % (len(expected[name].values()), FORMAT[kind]), tensor.bytes)
                for a, b in zip(values, expected[name].values()):
                    self.assertLessEqual(abs(a - b), 2 * TOLERANCE[kind])

    def test_double(self):
        self.check(onnx.DOUBLE)

    def test_half(self):
        self.check(onnx.FLOAT16)

    def test_bfloat(self):
        self.check(onnx.BFLOAT16)
        # Products of f32 read no rounded weights, whatever the file has.
        self.assertNotIn("rounded", read_plan(self.plan_of(self.write_model(onnx.BFLOAT16), 1))["stages"][0])

    def evaluate(self, plan, *arguments):
        flags = [word for name, file in self.data.items() for word in ("--data", "%s=%s" % (name, file))]
        process = call("pipec-run", plan, *flags, "--evaluate", *arguments)
        self.check_exit(process, 0)
        return float(process.stdout.split("loss ")[1].split()[0])

    def test_evaluates_what_was_trained(self):
        """A checkpoint has the masters, the exported model their rounding."""
        for kind in (onnx.DOUBLE, onnx.FLOAT16, onnx.BFLOAT16):
            with self.subTest(kind=kind):
                plan, saved, trained = self.plan_of(self.write_model(kind), 2), self.fresh(), self.fresh(".onnx")
                before = self.evaluate(plan)
                self.train(plan, self.data, 8, "--checkpoint", saved, "--export", trained)
                after = self.evaluate(plan, "--resume", saved)
                self.assertLess(after, 0.95 * before)
                exported = self.evaluate(self.plan_of(trained, 1))
                self.assertLessEqual(abs(exported - after), max(1e-6, TOLERANCE[kind]) * after)


class MixedTest(PipelineTest):
    """--precision bf16."""

    def losses(self, golden, run, *arguments):
        plan = self.compile(golden.model, *golden.arguments(run["optimizer"]), "--precision", "bf16", *arguments)
        self.assertEqual(read_plan(plan)["training"]["precision"], "bf16")
        result = self.train(plan, golden.data, golden.steps, "--transport", "inproc")
        for rank in result.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        return result.losses, result.summary

    def check(self, name, bound):
        golden = Golden(name)
        run = golden.runs[0]
        alone, _ = self.losses(golden, run, "--cpus", "1")
        # The first loss is the reference's; later ones part where a sum lies between two roundings.
        first = run["losses_bf16"][0]
        self.assertLessEqual(abs(alone[0] - first), 1e-6 * first)
        self.assertGreater(abs(alone[0] - run["losses_f64"][0]), 1e-5 * first)
        for got, want in zip(alone, run["losses_bf16"]):
            self.assertLessEqual(abs(got - want), bound * want)
        for ranks, strategy in ((2, "1f1b"), (3, "gpipe"), (2, "zb-h1")):
            with self.subTest(ranks=ranks, strategy=strategy):
                parted, _ = self.losses(golden, run, "--cpus", "1x%d" % ranks, "--stages", ranks, "--strategy", strategy)
                self.assertEqual(parted, alone, "other bits than one rank")
        again, _ = self.losses(golden, run, "--cpus", "1x2", "--stages", 2, "--strategy", "gpipe", "--recompute", "full")
        self.assertEqual(again, alone)

    def test_gpt(self):
        self.check("gpt", 3e-4)

    def test_cnn(self):
        self.check("cnn", 1e-3)

    def test_unet(self):
        self.check("unet", 1e-4)

    def rounding(self, way, ranks, strategy):
        """A plan for the GPT whose weights are kept rounded, or rounded again. Pipedream's numbers depend on the cut."""
        words = [str(word) for word in Golden("gpt").arguments(Golden("gpt").runs[0]["optimizer"])]
        if strategy == "pipedream":
            words[words.index("--microbatches") + 1] = "1"
            cut = self.folder / "cut.json"
            cut.write_text(json.dumps({"stages": [{"first_node": 0}, {"first_node": 100}]}))
            words += ["--stage-file", cut]
        else:
            words += ["--stages", {"dp": 1, "zb-v": 2 * ranks}.get(strategy, ranks)]
        words += ["--slices", 2] if strategy == "seq1f1b" else []
        return self.compile(Golden("gpt").model, *words, "--precision", "bf16", *self.cores(ranks), "--strategy", strategy,
                            "--rounded-weights", way)

    def test_rounded_weights(self):
        """Kept beside the weights or made in every task: the same numbers, for other memory."""
        golden = Golden("gpt")
        for ranks, strategy in ((1, "1f1b"), (2, "1f1b"), (2, "pipedream"), (2, "dp"), (2, "seq1f1b"), (2, "zb-v")):
            with self.subTest(ranks=ranks, strategy=strategy):
                kept, rest = (self.rounding(way, ranks, strategy) for way in ("keep", "again"))
                results = [self.train(plan, golden.data, golden.steps) for plan in (kept, rest)]
                self.assertEqual(results[0].losses, results[1].losses)
                if strategy != "seq1f1b":
                    oracle = self.train(kept, golden.data, golden.steps, "--oracle")
                    self.assertEqual(results[0].losses, oracle.losses)
                for rank in results[0].summary["ranks"]:
                    self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
                for ours, theirs in zip(read_plan(kept)["stages"], read_plan(rest)["stages"]):
                    self.assertNotIn("rounded", theirs)
                    for piece in ours.get("rounded", []):
                        more = ours["regions"]["weights"]["bytes"] - theirs["regions"]["weights"]["bytes"]
                        self.assertGreaterEqual(more, 2 * piece["rows"] * piece["pitch"])
                self.assertIn("rounded", read_plan(kept)["stages"][0])

    def test_rounded_weights_of_a_checkpoint(self):
        """Who fills in weights rounds them: a resumed run and an evaluation go on with the same numbers."""
        golden = Golden("gpt")
        for strategy in ("1f1b", "pipedream"):
            with self.subTest(strategy=strategy):
                plan, saved = self.rounding("keep", 2, strategy), self.fresh()
                whole = self.train(plan, golden.data, 6).losses
                half = self.train(plan, golden.data, 3, "--checkpoint", saved).losses
                rest = self.train(plan, golden.data, 6, "--resume", saved).losses
                self.assertEqual(half + rest, whole)
                if strategy == "pipedream":  # resumes on its own plan alone
                    continue
                flags = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
                losses = []
                for weights in ("keep", "again"):
                    process = call("pipec-run", self.rounding(weights, 2, strategy), *flags, "--evaluate", "--resume", saved)
                    self.check_exit(process, 0)
                    losses.append(process.stdout.split("loss ")[1].split()[0])
                self.assertEqual(*losses)

    def test_keeps_half(self):
        """What products read again is kept in bf16."""
        golden, kept = Golden("gpt"), {}
        for precision in ("fp32", "bf16"):
            plan = self.compile(golden.model, *golden.arguments(), "--precision", precision, "--cpus", "1")
            kept[precision] = read_plan(plan)["ranks"][0]["stash_bytes"]
        self.assertLess(kept["bf16"], 0.75 * kept["fp32"])

    def test_is_planned_with_its_rate(self):
        """Tensor cores multiply bf16 some fifteen times faster than fp32, and a weight's gradient, which is not rounded,
        is as much of a product."""
        model, width, step = self.fresh(".onnx"), 1024, {}
        model.write_bytes(onnx.model(
            [onnx.node("MatMul", ["x", "w"], ["y"])], [onnx.tensor("w", onnx.FLOAT, (width, width), [0.5] * width ** 2)],
            [onnx.value("x", onnx.FLOAT, (16384, width))], [onnx.value("y", onnx.FLOAT, (16384, width))]))
        for way in ("fp32", "bf16", "bf16 --rounded-weights again"):
            process = call("pipec", model, "--gpus", 1, "--device", "h100-sxm", "--loss", "mse", "--dry-run", "--format", "json",
                           "--precision", *way.split())
            self.check_exit(process, 0)
            planned = json.loads(process.stdout)
            step[way] = planned["predicted"]["step_s"]
            stage = planned["stages"][0]
            self.assertGreater(stage["backward_weight_s"], 0.5 * stage["forward_s"])
        self.assertLess(2 * step["bf16"], step["fp32"])
        self.assertLess(step["bf16"], step["bf16 --rounded-weights again"])

    def test_unknown(self):
        process = call("pipec", Golden("mlp").model, "--cpus", "1", "--precision", "fp8")
        self.check_exit(process, USAGE)
        self.assertIn("--precision", process.stderr)


if __name__ == "__main__":
    unittest.main()
