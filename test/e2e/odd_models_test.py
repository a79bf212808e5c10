"""Models that are valid and not as one expects them: what is said of them, and that nothing of them is lost."""
import math
import struct
import unittest

from onnx_writer import FLOAT, model, node, tensor, value
from pipeline import BAD_NUMBERS, USAGE, PipelineTest, call, read_plan, write_npy

RAW = "\n\x1b\x7f"  # a line that ends early, and colors
ESCAPED = r"\x0a\x1b\x7f"


class OddModelsTest(PipelineTest):
    def write(self, *parts):
        path = self.fresh(".onnx")
        path.write_bytes(model(*parts))
        return path

    def floats(self, *shape):
        file = self.fresh(".npy")
        count = math.prod(shape)
        write_npy(file, "<f4", shape, struct.pack("<%df" % count, *(i % 5 / 5 for i in range(count))))
        return file

    def product(self, name="x", weight="w", node_name="product", columns=2, first=0.25):
        values = [first] + [0.5] * (3 * columns - 1)
        return self.write([node("MatMul", [name, weight], ["y"], node_name)], [tensor(weight, FLOAT, [3, columns], values)],
                          [value(name, FLOAT, [4, 3])], [value("y", FLOAT, [4, columns])])

    def test_a_second_output(self):
        """The weights that only it reads are named, and not counted."""
        file = self.write([node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "w2"], ["y"]),
                           node("MatMul", ["a", "w3"], ["z"])],
                          [tensor(name, FLOAT, [3, 3], [0.5] * 9) for name in ("w", "w2", "w3")],
                          [value("x", FLOAT, [4, 3])], [value("y", FLOAT, [4, 3]), value("z", FLOAT, [4, 3])])
        for flags, output, lost, rest in (([], "y", "w3", ["w", "w2"]), (["--logits", "z"], "z", "w2", ["w", "w3"])):
            plan = self.fresh(".plan")
            process = call("pipec", file, "--cpus", 1, "--loss", "mse", *flags, "-o", plan)
            self.check_exit(process, 0)
            self.assertIn("note: the loss is of output '%s' alone: 1 weight that it does not depend on does not train: "
                          "'%s'; --logits NAME takes another output\n" % (output, lost), process.stderr)
            self.assertIn("2 tensors with 18 parameters train\n", process.stdout)
            self.assertEqual([weight["name"] for weight in read_plan(plan)["weights"]], rest)
        quiet = self.product()
        self.assertNotIn("does not depend", call("pipec", quiet, "--cpus", 1, "--loss", "mse", "--dry-run").stderr)

    def test_one_class(self):
        process = call("pipec", self.product(columns=1), "--cpus", 1, "--dry-run")
        self.check_exit(process, USAGE)
        self.assertIn("--loss cross-entropy of one class is always 0", process.stderr)
        self.assertIn("remedy: take --loss bce for yes or no, --loss mse for numbers, or another output with --logits\n",
                      process.stderr)

    def test_names_with_an_equals_sign(self):
        """The longest name that fits is meant: a file's may have one, too."""
        values = [0.5] * 9
        file = self.write([node("MatMul", ["in=put:0", "w"], ["a"]), node("Add", ["a", "in"], ["y=1"])],
                          [tensor("w", FLOAT, [3, 3], values)],
                          [value("in=put:0", FLOAT, [4, 3]), value("in", FLOAT, [4, 3])], [value("y=1", FLOAT, [4, 3])])
        plan = self.compile(file, "--cpus", 1, "--loss", "mse")
        odd = self.fresh("=1.npy")
        self.floats(4, 3).rename(odd)
        words = ["--data", "in=put:0=%s" % odd, "--data", "in=%s" % odd]
        self.check_exit(call("pipec-run", plan, *words, "--data", "targets=%s" % odd, "--steps", 1), 0)
        out = self.fresh(".npy")
        self.check_exit(call("pipec-run", plan, *words, "--data", "targets=%s" % odd, "--evaluate", "--output",
                             "y=1=%s" % out), 0)
        self.assertTrue(out.exists())
        for option, name in (("--data", "in=put:0"), ("--output", "y=1")):
            process = call("pipec-run", plan, *[option, "%s=a.npy" % name] * 2, "--evaluate")
            self.check_exit(process, USAGE)
            self.assertIn("%s %s=a.npy: the %s is given twice" % (option, name, option.strip("-").replace("data", "input")),
                          process.stderr)

    def test_control_characters(self):
        file = self.product(weight="w" + RAW, node_name="a" + RAW + "b")
        dot = self.fresh(".dot")
        plan = self.fresh(".plan")
        process = call("pipec", file, "--cpus", 1, "--loss", "mse", "--dot", dot, "-o", plan)
        self.check_exit(process, 0)
        inspected = call("pipec", "inspect", plan)
        self.check_exit(inspected, 0)
        frozen = call("pipec", self.write([node("MatMul", ["x", "w"], ["a"]), node("MatMul", ["a", "v" + RAW], ["y"])],
                                          [tensor(name, FLOAT, [3, 3], [0.5] * 9) for name in ("w", "v" + RAW)],
                                          [value("x", FLOAT, [4, 3])], [value("y", FLOAT, [4, 3])]),
                      "--cpus", 1, "--loss", "mse", "--freeze", "v", "--dry-run")
        self.check_exit(frozen, 0)
        noted = call("pipec", self.write([node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["x", "v" + RAW], ["z"])],
                                         [tensor(name, FLOAT, [3, 3], [0.5] * 9) for name in ("w", "v" + RAW)],
                                         [value("x", FLOAT, [4, 3])],
                                         [value("y", FLOAT, [4, 3]), value("z", FLOAT, [4, 3])]),
                     "--cpus", 1, "--loss", "mse", "--dry-run")
        self.check_exit(noted, 0)
        for text, expected in ((process.stdout, "a" + ESCAPED + "b"), (inspected.stdout, "w" + ESCAPED),
                               (frozen.stdout, "frozen: v" + ESCAPED), (noted.stderr, "train: 'v" + ESCAPED),
                               (dot.read_text(), ESCAPED.replace("\\", "\\\\"))):
            self.assertIn(expected, text)
            self.assertNotRegex(text, "[\x1b\x7f]")

    def test_not_a_number_before_any_update(self):
        """No learning rate is to blame."""
        data = self.floats(4, 3)
        words = ["--data", "x=%s" % data, "--data", "targets=%s" % self.floats(4, 2), "--steps", 1]
        plan = self.compile(self.product(first=math.nan), "--cpus", 1, "--loss", "mse")
        process = call("pipec-run", plan, *words)
        self.check_exit(process, BAD_NUMBERS)
        self.assertIn("is NaN; the model's weight 'w' has NaN before any update: mend the model\n", process.stderr)
        plan = self.compile(self.product(first=3e38), "--cpus", 1, "--loss", "mse")
        process = call("pipec-run", plan, *words)
        self.check_exit(process, BAD_NUMBERS)
        self.assertIn("is infinite; nothing is updated yet: the cause is in the model's weights, in what it computes or "
                      "in the data (numbers too large, say)\n", process.stderr)


if __name__ == "__main__":
    unittest.main()
