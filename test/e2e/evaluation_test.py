"""The loss of a pass over the data is the mean over what is counted in all samples.

Each sample counts once, whatever the microbatches are; the reference is worked out here
from the logits that the same pass writes. The same bits on every number of ranks.
"""
import array
import json
import math
import unittest

from pipeline import BAD_MODEL, BAD_NUMBERS, Golden, PipelineTest, call, read_npy, write_npy

IGNORED = -100


def numbers(path, code):
    values = array.array(code)
    values.frombytes(read_npy(path)[2])
    return values


def cross_entropy(logits, labels, weights=None, smooth=0.0):
    """Sum and count over rows of logits, in double."""
    total = count = 0.0
    for row, label in zip(logits, labels):
        if label == IGNORED:
            continue
        log_sum = max(row) + math.log(math.fsum(math.exp(x - max(row)) for x in row))
        share = weights or [1.0] * len(row)
        total += (1 - smooth) * share[label] * (log_sum - row[label])
        total += smooth / len(row) * math.fsum(w * (log_sum - x) for w, x in zip(share, row))
        count += share[label]
    return total, count


def binary(x, t):
    return max(x, 0) - x * t + math.log1p(math.exp(-abs(x)))


class EvaluationTest(PipelineTest):
    def evaluate(self, plan, data, *arguments, code=0):
        metrics = self.fresh(".jsonl")
        flags = [word for name, file in data.items() for word in ("--data", "%s=%s" % (name, file))]
        process = call("pipec-run", plan, *flags, "--evaluate", "--transport", "inproc",
                       "--metrics", metrics, *arguments)
        self.check_exit(process, code)
        self.assertNotIn("note", process.stderr)
        if code:
            return process.stderr
        return json.loads(metrics.read_text().splitlines()[0])["loss"]

    def check(self, golden, loss, data, reference, batches=(4, 3, 1), ranks=(1, 2, 3)):
        """The loss on ranks and with microbatches beside that of the logits."""
        for batch in batches:
            losses = set()
            for count in ranks:
                plan = self.compile(golden.model, "--dim", "batch=%d" % batch, "--microbatches", 2,
                                    "--loss", loss, "--cpus", count, "--stages", count, "--strategy", "1f1b")
                logits = self.fresh(".npy")
                losses.add(self.evaluate(plan, data, "--output", "logits=%s" % logits))
            self.assertEqual(len(losses), 1, losses)
            shape = read_npy(logits)[1]
            values, width = numbers(logits, "f"), shape[-1]
            total, counted = reference([values[at:at + width] for at in range(0, len(values), width)])
            self.assertAlmostEqual(losses.pop(), total / counted, delta=2e-6 * total / counted)

    def labels(self, golden):
        """Those of mlp; some are ignored: four in a row, and one of the last ones."""
        descr, shape, data = read_npy(golden.data["labels"])
        values = array.array("q")
        values.frombytes(data)
        for at in (1, 4, 5, 6, 7, 45):
            values[at] = IGNORED
        file = self.fresh(".npy")
        write_npy(file, descr, shape, values.tobytes())
        return file, values

    def test_cross_entropy(self):
        golden = Golden("mlp")
        self.assertEqual(golden.N, 46)  # the last microbatch of 4, and of 3, is not full
        file, labels = self.labels(golden)
        data = dict(golden.data, labels=file)
        self.check(golden, "cross-entropy", data, lambda logits: cross_entropy(logits, labels))
        weights, numbers = self.fresh(".npy"), [1.0, 0.5, 2.0, 0.25, 3.0, 1.5]
        write_npy(weights, "<f4", (6,), array.array("f", numbers).tobytes())
        self.check(golden, "cross-entropy:label_smoothing=0.25,weight=%s" % weights, data,
                   lambda logits: cross_entropy(logits, labels, numbers, 0.25), (4,), (1, 2))

    def test_mse_and_bce(self):
        golden = Golden("mlp")
        targets, file = array.array("f", [(7 * i % 11) / 11 for i in range(46 * 6)]), self.fresh(".npy")
        write_npy(file, "<f4", (46, 6), targets.tobytes())
        data = {"input": golden.data["input"], "targets": file}

        def mean(term):
            def of(logits):
                flat = [x for row in logits for x in row]
                return math.fsum(term(x, t) for x, t in zip(flat, targets)), len(flat)
            return of

        self.check(golden, "mse", data, mean(lambda x, t: (x - t) ** 2), (4,))
        self.check(golden, "bce", data, mean(binary), (4,), (1, 2))

    def test_next_token(self):
        golden = Golden("gpt")
        ids = next(iter(golden.data.values()))
        rows, length = read_npy(ids)[1]
        tokens = numbers(ids, "q")
        following = [tokens[i + 1] if (i + 1) % length else IGNORED for i in range(rows * length)]
        self.assertTrue(rows % 3)
        self.check(golden, "next-token:label=%s" % next(iter(golden.data)), golden.data,
                   lambda logits: cross_entropy(logits, following), (3,), (1, 2))

    def test_ids_that_are_labels_count_from_0(self):
        golden = Golden("gpt")
        descr, shape, data = read_npy(golden.data["input_ids"])
        values, file = array.array("q"), self.fresh(".npy")
        values.frombytes(data)
        # What marks labels would have a row, were it counted from the end.
        words = ["next-token:ignore_index=-2" if word == "next-token" else word for word in golden.arguments()]
        plan = self.compile(golden.model, *words, "--cpus", 1)
        for value in (-2, -1):
            values[2 * shape[1] + 5] = value
            write_npy(file, descr, shape, values.tobytes())
            self.assertIn("%s: value %d at [2, 5] is outside [0, " % (file, value),
                          self.evaluate(plan, {"input_ids": file}, code=BAD_MODEL))
        # The model alone reads the row before the end.
        plan = self.compile(golden.model, "--forward-only", "--dim", "batch=4", "--cpus", 2, "--stages", 2)
        process = call("pipec-run", plan, "--data", "input_ids=%s" % file)
        self.check_exit(process, 0)
        self.assertIn("pipec-run: note: %s: value -1 at [2, 5] of input 'input_ids' counts from the end" % file,
                      process.stderr)

    def test_all_labels_ignored(self):
        golden = Golden("mlp")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--stages", 2)
        file = self.fresh(".npy")
        write_npy(file, "<i8", (46,), array.array("q", [IGNORED] * 46).tobytes())
        self.assertIn("the data has no loss: all its labels are ignored",
                      self.evaluate(plan, dict(golden.data, labels=file), code=BAD_NUMBERS))

    def test_names_the_sample_that_is_not_a_number(self):
        golden = Golden("mlp")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--stages", 2)
        descr, shape, data = read_npy(golden.data["input"])
        values, file = array.array("f"), self.fresh(".npy")
        values.frombytes(data)
        values[22 * shape[1] + 3] = math.nan
        write_npy(file, descr, shape, values.tobytes())
        text = self.evaluate(plan, dict(golden.data, input=file), code=BAD_NUMBERS)
        self.assertIn("the loss of sample 22 is NaN; its data has NaN: value [22, 3] of input 'input'", text)
        values[22 * shape[1] + 3] = math.inf
        infinite = self.fresh(".npy")
        write_npy(infinite, descr, shape, values.tobytes())
        self.assertRegex(self.evaluate(plan, dict(golden.data, input=infinite), code=BAD_NUMBERS),
                         r"the loss of sample 22 is (NaN|infinite); its data has an infinite number: value \[22, 3\] of "
                         r"input 'input'")
        # Without a loss it is in the outputs, which may be meant so.
        plan = self.compile(golden.model, "--forward-only", "--dim", "batch=4", "--cpus", 2, "--stages", 2)
        process = call("pipec-run", plan, "--data", "input=%s" % file, "--output", "logits=%s" % self.fresh(".npy"))
        self.check_exit(process, 0)
        self.assertIn("pipec-run: note: output 'logits' has NaN, first of sample 22; its data has NaN: value [22, 3] "
                      "of input 'input' (%s)\n" % file, process.stderr)


if __name__ == "__main__":
    unittest.main()
