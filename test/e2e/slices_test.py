"""Pieces of sequences: `--strategy seq1f1b --slices Q` trains causal language models.

The same bits for every number of ranks, within 1e-5 of whole sequences (sums over positions are made of the pieces'
sums), and what is no causal language model is refused.
"""
import json
import random
import struct
import unittest

from pipeline import (BAD_MODEL, NO_FIT, USAGE, Golden, PipelineTest, call, initializers, read_plan, write_npy)

STEPS = 3
LENGTH, WIDTH, WORDS = 7, 8, 11
CAUSAL = [[j <= i for j in range(LENGTH)] for i in range(LENGTH)]


def numbers(kind, name, shape, values):
    return "%s[%s] %s = {%s}" % (kind, ",".join(map(str, shape)), name, ",".join(values))


def tensor(name, shape):
    count = 1
    for size in shape:
        count *= size
    return numbers("float", name, shape, ["%.6f" % random.gauss(0, 0.5) for _ in range(count)])


def attention_model(mask, inputs="", tables=()):
    """Logits of one layer of attention; `mask` makes `masked` of `scores`."""
    random.seed(3)
    weights = [tensor("words", (WORDS, WIDTH)), tensor("places", (LENGTH, WIDTH)),
               *(tensor(name, (WIDTH, WIDTH)) for name in ("wq", "wk", "wv")), tensor("wo", (WIDTH, WORDS)), *tables]
    return """<ir_version: 8, opset_import: ["" : 17]>
g (int64[2,%d] input_ids%s) => (float[2,%d,%d] logits)
<%s>
{ e = Gather(words, input_ids)  x = Add(e, places)
  q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)
  kt = Transpose <perm = [0, 2, 1]> (k)
  scores = MatMul(q, kt)
  %s
  weights = Softmax <axis = -1> (masked)
  context = MatMul(weights, v)
  h = Add(context, x)  logits = MatMul(h, wo) }""" % (LENGTH, inputs, LENGTH, WORDS, ", ".join(weights), mask)


def float_mask(low):
    return numbers("float", "mask", (LENGTH, LENGTH), ["0" if seen else low for row in CAUSAL for seen in row])


BOOL_MASK = numbers("bool", "seen", (LENGTH, LENGTH), ["%d" % seen for row in CAUSAL for seen in row])
ADDED = attention_model("masked = Add(scores, mask)", tables=[float_mask("-3e38")])
# The padding of each sample beside the mask that is known.
PADDED = attention_model(
    """kept = Cast <to = 9> (padding)  row = Unsqueeze(kept, one)  both = And(seen, row)
       masked = Where(both, scores, low)""",
    ", int64[2,%d] padding" % LENGTH, [BOOL_MASK, "int64[1] one = {1}", "float low = {-3.4e38}"])


class SlicesTest(PipelineTest):
    def onnx(self, text):
        source, target = self.fresh(".txt"), self.fresh(".onnx")
        source.write_text(text)
        self.check_exit(call("onnx-from-text", source, target), 0)
        return target

    def ids(self, rows, length=LENGTH, words=WORDS):
        random.seed(rows)
        path = self.fresh(".npy")
        write_npy(path, "<i8", (rows, length),
                  struct.pack("<%dq" % (rows * length), *(random.randrange(words) for _ in range(rows * length))))
        return path

    def golden(self, *flags, ranks=1, steps=STEPS, run=()):
        golden = Golden("gpt")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", ranks, *flags)
        result = self.train(plan, golden.data, steps, "--transport", "inproc", *run)
        for rank in result.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
        return result.losses

    def check_close(self, losses, reference):
        self.assertEqual(len(losses), len(reference))
        for a, b in zip(losses, reference):
            self.assertLess(abs(a - b) / abs(b), 1e-5)

    def test_same_bits_for_every_number_of_ranks(self):
        whole = self.golden("--strategy", "1f1b")
        for slices in (2, 5): # 24 positions: 5 pieces are not all equal
            one = self.golden("--strategy", "seq1f1b", "--slices", slices)
            self.check_close(one, whole)
            for ranks in (2, 4):
                with self.subTest(slices=slices, ranks=ranks):
                    self.assertEqual(self.golden("--strategy", "seq1f1b", "--slices", slices, ranks=ranks), one)

    def test_one_piece_is_1f1b(self):
        self.assertEqual(self.golden("--strategy", "seq1f1b", "--slices", 1, ranks=2),
                         self.golden("--strategy", "1f1b", ranks=2))

    def test_as_many_pieces_as_positions(self):
        self.check_close(self.golden("--strategy", "seq1f1b", "--slices", 24, ranks=2, steps=1),
                         self.golden("--strategy", "1f1b", ranks=2, steps=1))

    def test_recomputed_and_clipped(self):
        slices = ("--strategy", "seq1f1b", "--slices", 3)
        kept = self.golden(*slices, "--recompute", "none", ranks=2)
        self.assertEqual(self.golden(*slices, "--recompute", "full", ranks=2), kept)
        clipped = self.golden(*slices, "--clip-norm", "0.3", ranks=2)
        self.assertNotEqual(clipped, kept)
        self.check_close(clipped, self.golden("--strategy", "1f1b", "--clip-norm", "0.3"))

    def test_the_plan(self):
        golden = Golden("gpt")
        flags = ("--cpus", 2, "--strategy", "seq1f1b", "--slices", 3)
        written = self.compile(golden.model, *golden.arguments(), *flags)
        plan = read_plan(written)
        self.assertEqual(plan["strategy"]["slices"], 3)
        shown = call("pipec", "inspect", written).stdout
        self.assertIn("sequences in 3 pieces, stages for each", shown)
        self.assertEqual([stage["ranks"] for stage in plan["stages"]], [[0], [1]] * 3)
        # One set of weights for all pieces.
        for stage in plan["stages"][2:]:
            self.assertEqual(stage["weights"], [])
            self.assertEqual(stage["parameters"], 0)
            self.assertFalse({"weights", "gradients", "optimizer", "constants"} & set(stage["regions"]))
        whole = read_plan(self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--strategy", "1f1b",
                                       "--stage-file", written / "plan.json"))
        self.assertEqual([stage["first_node"] for stage in whole["stages"]] * 3,
                         [stage["first_node"] for stage in plan["stages"]])
        for rank, other in zip(plan["ranks"], whole["ranks"]):
            for part in ("weights_bytes", "gradients_bytes", "optimizer_bytes"):
                self.assertEqual(rank[part], other[part])
        self.assertGreater(plan["predicted"]["step_s"], 0)

    def test_less_is_kept_than_of_whole_microbatches(self):
        """The first of four ranks keeps 7/4 of a microbatch, not 4."""
        golden = Golden("gpt")
        words = golden.arguments()
        words[words.index("--microbatches") + 1] = 8
        words += ["--cpus", 4, "--recompute", "none"]
        plan = self.compile(golden.model, *words, "--strategy", "1f1b")
        cut = self.compile(golden.model, *words, "--strategy", "seq1f1b", "--slices", 4, "--stage-file", plan / "plan.json")
        whole, pieces = (read_plan(folder)["ranks"][0]["stash_bytes"] for folder in (plan, cut))
        self.assertLess(pieces, 0.75 * whole)

    def test_verified_by_the_oracle(self):
        golden = Golden("gpt")
        plan = self.compile(golden.model, *golden.arguments("adamw:lr=0.01"), "--cpus", 2, "--strategy", "seq1f1b",
                            "--slices", 3)
        self.train(plan, golden.data, STEPS, "--transport", "inproc", "--verify")

    def test_resumed_under_another_strategy(self):
        golden = Golden("gpt")
        plans = [self.compile(golden.model, *golden.arguments("adam:lr=0.01"), "--cpus", ranks, *flags)
                 for ranks, flags in ((2, ("--strategy", "seq1f1b", "--slices", 3)),
                                      (3, ("--strategy", "seq1f1b", "--slices", 3)), (1, ("--strategy", "1f1b")))]
        straight = self.train(plans[0], golden.data, 4, "--transport", "inproc").losses
        folder = self.fresh(".checkpoint")
        self.train(plans[0], golden.data, 2, "--transport", "inproc", "--checkpoint", folder, "--checkpoint-every", 2)
        resumed = [self.train(plan, golden.data, 4, "--transport", "inproc", "--resume", folder).losses
                   for plan in plans[1:]]
        self.assertEqual(resumed[0], straight[2:])
        self.check_close(resumed[1], straight[2:])

    def test_evaluated(self):
        golden = Golden("gpt")
        losses = []
        for flags in (("--strategy", "1f1b"), ("--strategy", "seq1f1b")):
            plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, *flags)
            process = call("pipec-run", plan, *(word for name, file in golden.data.items()
                                                for word in ("--data", "%s=%s" % (name, file))),
                           "--evaluate", "--transport", "inproc")
            self.check_exit(process, 0)
            losses.append(process.stdout.split("loss ")[1].split()[0])
        self.assertEqual(*losses)

    def test_measured_times_are_of_whole_stages(self):
        golden = Golden("gpt")
        flags = ("--cpus", 2, "--strategy", "seq1f1b", "--slices", 3)
        plan = self.compile(golden.model, *golden.arguments(), *flags)
        profile = self.fresh(".json")
        self.train(plan, golden.data, STEPS, "--transport", "inproc", "--profile-out", profile)
        stages = json.loads(profile.read_text())["stages"]
        self.assertEqual(len(stages), 2)
        self.compile(golden.model, *golden.arguments(), *flags, "--profile", profile)

    def test_padding_beside_a_causal_mask(self):
        model, ids = self.onnx(PADDED), self.ids(8)
        padding = self.fresh(".npy")
        rows = [[1] * LENGTH, [1] * 4 + [0] * (LENGTH - 4)] * 4
        write_npy(padding, "<i8", (8, LENGTH), struct.pack("<%dq" % (8 * LENGTH), *(x for row in rows for x in row)))
        data = {"input_ids": ids, "padding": padding}
        words = ("--loss", "next-token", "--optimizer", "sgd:lr=0.1", "--microbatches", 2)
        whole = self.train(self.compile(model, *words, "--cpus", 1, "--strategy", "1f1b"), data, STEPS).losses
        for ranks in (1, 2):
            plan = self.compile(model, *words, "--cpus", ranks, "--strategy", "seq1f1b", "--slices", 3)
            self.check_close(self.train(plan, data, STEPS, "--transport", "inproc").losses, whole)

    def test_labels_beside_the_input(self):
        """Cross-entropy with labels of positions, some not counted, and classes that weigh differently."""
        model, ids = self.onnx(ADDED), self.ids(8)
        labels = self.fresh(".npy")
        random.seed(1)
        values = [random.choice([-100, *range(WORDS)]) for _ in range(8 * LENGTH)]
        write_npy(labels, "<i8", (8, LENGTH), struct.pack("<%dq" % len(values), *values))
        data = {"input_ids": ids, "labels": labels}
        words = ("--loss", "cross-entropy:label_smoothing=0.1", "--microbatches", 2)
        whole = self.train(self.compile(model, *words, "--cpus", 1, "--strategy", "1f1b"), data, STEPS).losses
        plan = self.compile(model, *words, "--cpus", 2, "--strategy", "seq1f1b", "--slices", 3)
        self.check_close(self.train(plan, data, STEPS, "--transport", "inproc").losses, whole)

    def refused(self, model, *words, code=BAD_MODEL):
        process = call("pipec", model, "--cpus", 2, *words, "-o", self.fresh(".plan"))
        self.check_exit(process, code)
        return process.stderr

    def test_models_that_are_not_causal(self):
        words = ("--loss", "next-token", "--strategy", "seq1f1b", "--slices", 2)
        inputs = ", float[2,%d,%d] hidden" % (LENGTH, LENGTH)
        for text in (attention_model("masked = Identity(scores)"),
                     attention_model("masked = Add(scores, mask)", tables=[float_mask("-100")]),
                     attention_model("masked = Add(scores, hidden)", inputs)):
            said = self.refused(self.onnx(text), *words)
            self.assertIn("node 'scores'", said)
            self.assertIn("reads the whole sequence to compute a piece of it, so that a token sees later ones", said)
            self.assertIn("take another strategy", said)
            self.assertIn("pipec: error: ", said)
        cnn = Golden("cnn")
        said = self.refused(cnn.model, *cnn.arguments(), "--strategy", "seq1f1b")
        self.assertIn("node 'loss': the loss is no sum over the positions of a sequence", said)

    def test_options(self):
        golden = Golden("gpt")
        words = golden.arguments()
        self.assertIn("cannot cut sequences of 24 into 25 pieces: give a smaller --slices",
                      self.refused(golden.model, *words, "--strategy", "seq1f1b", "--slices", 25, code=USAGE))
        self.assertIn("strategy 1f1b does not cut sequences into pieces",
                      self.refused(golden.model, *words, "--strategy", "1f1b", "--slices", 2, code=USAGE))
        self.assertIn("--slices", self.refused(golden.model, *words, "--slices", 0, code=USAGE))
        self.assertRegex(self.refused(golden.model, *words, "--strategy", "seq1f1b", "--slices", 24,
                                      "--memory-limit", "2MiB", code=NO_FIT),
                         "needs .* on a device, .* more than the 2.00 MiB there are; it would fit with --memory-limit "
                         r"\d+, or with .*, or with --slices \d+")
        # Nobody gets pieces who has not asked for them.
        plan = read_plan(self.compile(golden.model, *words, "--cpus", 2))
        self.assertEqual(plan["strategy"]["slices"], 1)
        asked = read_plan(self.compile(golden.model, *words, "--cpus", 2, "--slices", 4))
        self.assertLessEqual(asked["predicted"]["step_s"], plan["predicted"]["step_s"] * 1.0001)

    def test_trained_weights(self):
        golden = Golden("gpt")
        tensors = []
        for flags in (("--strategy", "1f1b"), ("--strategy", "seq1f1b", "--slices", 5)):
            plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, *flags)
            exported = self.fresh(".onnx")
            self.train(plan, golden.data, STEPS, "--transport", "inproc", "--export", exported)
            tensors.append(initializers(exported))
        for name in golden.trainable:
            for a, b in zip(tensors[0][name].values(), tensors[1][name].values()):
                self.assertLess(abs(a - b), 1e-5 + 1e-4 * abs(a), name)


if __name__ == "__main__":
    unittest.main()
