"""Plans that are run and not trained: outputs, evaluation, and what they refuse.

Outputs agree with PyTorch's inference of the first microbatch (golden.json) and
have the same bits on every number of ranks.
"""
import array
import json
import math
import resource
import signal
import unittest

from pipeline import (BAD_MODEL, CANNOT_WRITE, NO_INPUT, USAGE, Golden, PipelineTest, call, read_npy, read_plan,
                      write_npy)


def floats(path):
    descr, shape, data = read_npy(path)
    values = array.array("f")
    values.frombytes(data)
    return descr, shape, values


def no_room():
    """Files of this process end after 4 KiB, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


class InferenceTest(PipelineTest):
    def infer(self, plan, data, *arguments, code=0, **options):
        flags = [word for name, file in data.items() for word in ("--data", "%s=%s" % (name, file))]
        process = call("pipec-run", plan, *flags, *arguments, **options)
        self.check_exit(process, code)
        return process

    def forward_plan(self, golden, *arguments):
        flags = list(golden.pipec_args)
        dims = [word for at, word in enumerate(flags) if "--dim" in flags[max(0, at - 1):at + 1]]
        return self.compile(golden.model, "--forward-only", *dims, *arguments)

    def model_data(self, golden, plan):
        names = read_plan(plan)["model"]["inputs"]
        return {name: file for name, file in golden.data.items() if name in names}

    def test_says_that_nothing_is_written(self):
        golden = Golden("mlp")
        plan = self.forward_plan(golden, "--cpus", "1")
        data = self.model_data(golden, plan)
        process = self.infer(plan, data)
        self.assertEqual(process.stderr, "pipec-run: note: no output is written: add --output logits=FILE.npy\n")
        for flags in (["--quiet"], ["--output", "logits=%s" % self.fresh(".npy")]):
            self.assertEqual(self.infer(plan, data, *flags).stderr, "")

    def check_logits(self, golden, path, samples):
        want = golden.logits["inference_of_first_microbatch"]
        descr, shape, values = floats(path)
        self.assertEqual(descr, "<f4")
        self.assertEqual(shape[0], samples)
        self.assertEqual(list(shape[1:]), want["shape"][1:])
        first = values[:math.prod(want["shape"])]
        for got, expected in zip(first, want["first4"]):
            self.assertAlmostEqual(got, expected, delta=1e-4 * max(1, abs(expected)))
        norm = math.sqrt(math.fsum(value * value for value in first))
        self.assertAlmostEqual(norm, want["l2"], delta=1e-4 * want["l2"])

    def check_model(self, name, ranks, *arguments):
        golden = Golden(name)
        first = None
        for count in ranks:
            with self.subTest(model=name, ranks=count):
                plan = self.forward_plan(golden, "--cpus", count, "--stages", count, "--microbatches", 3, *arguments)
                written = read_plan(plan)
                self.assertEqual(len(written["ranks"]), count)
                self.assertEqual({action["kind"] for rank in written["ranks"]
                                  for action in rank["program"]["actions"]}, {"F"})
                output = self.fresh(".npy")
                self.infer(plan, self.model_data(golden, plan), "--quiet", "--transport",
                           "inproc", "--output", "%s=%s" % (golden.logits["name"], output))
                self.check_logits(golden, output, golden.N)
                first = first or output.read_bytes()
                self.assertEqual(output.read_bytes(), first)

    def test_gpt(self):
        self.check_model("gpt", (1, 2, 3, 4))

    def test_cnn_with_batch_norm(self):
        self.check_model("cnn-dynamo", (1, 3))
        self.check_model("cnn", (2,))  # its batch norms are in training form
        self.check_model("cnn", (2,), "--bn", "inference")

    def test_processes_and_replicas(self):
        golden = Golden("mlp")
        whole = self.fresh(".npy")
        plan = self.forward_plan(golden, "--cpus", 1)
        self.infer(plan, self.model_data(golden, plan), "--output", "logits=%s" % whole)
        for shape in (("--stages", 3), ("--replicas", "2-1")):
            plan = self.forward_plan(golden, "--cpus", 3, "--microbatches", 2, *shape)
            output = self.fresh(".npy")
            process = self.infer(plan, self.model_data(golden, plan), "--output", "logits=%s" % output)
            self.assertIn("%d samples\n" % golden.N, process.stdout)
            self.assertEqual(output.read_bytes(), whole.read_bytes())

    def test_is_no_slower_than_its_baselines(self):
        golden = Golden("gpt")
        for ranks, microbatches in ((2, 1), (2, 3), (4, 2)):
            shown = call("pipec", golden.model, "--forward-only", "--dim", "batch=2", "--cpus", ranks, "--microbatches",
                         microbatches, "--dry-run", "--format", "json")
            self.check_exit(shown, 0)
            plan = json.loads(shown.stdout)
            self.assertIn("one device", [baseline["name"] for baseline in plan["baselines"]])
            for baseline in plan["baselines"]:
                self.assertLessEqual(plan["predicted"]["step_s"], 1.0001 * baseline["step_s"], baseline["name"])

    def test_evaluates_what_was_trained(self):
        golden = Golden("cnn-dynamo")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--stages", 2)
        before, after, exported = (self.fresh(suffix) for suffix in (".npy", ".npy", ".onnx"))
        evaluate = ("--evaluate", "--transport", "inproc")
        fresh = self.infer(plan, golden.data, *evaluate, "--output", "logits=%s" % before)
        self.check_logits(golden, before, golden.N)
        saved = self.folder / "checkpoint"
        self.train(plan, golden.data, 8, "--checkpoint", saved, "--export", exported,
                   "--transport", "inproc")
        trained = self.infer(plan, golden.data, *evaluate, "--resume", saved, "--output",
                             "logits=%s" % after)
        loss = [float(text.stdout.split("loss ")[1].split()[0]) for text in (fresh, trained)]
        self.assertLess(loss[1], loss[0])
        # The exported model computes what the checkpoint's does.
        golden.model = exported
        other, output = self.forward_plan(golden, "--cpus", 1), self.fresh(".npy")
        self.infer(other, self.model_data(golden, other), "--output", "logits=%s" % output)
        for got, want in zip(floats(output)[2], floats(after)[2]):
            self.assertAlmostEqual(got, want, delta=1e-5)

    def test_loss_of_a_pass(self):
        golden = Golden("mlp")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--stages", 2)
        data, rows = {}, golden.B * golden.M
        for name, file in golden.data.items():
            descr, shape, content = read_npy(file)
            data[name] = self.fresh(".npy")
            write_npy(data[name], descr, (rows, *shape[1:]), content[:len(content) // shape[0] * rows])
        metrics = self.fresh(".jsonl")
        self.infer(plan, data, "--evaluate", "--metrics", metrics)
        want = golden.runs[0]["losses_f64"][0]
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        self.assertAlmostEqual(lines[0]["loss"], want, delta=1e-4 * want)
        self.assertEqual(lines[1]["summary"]["samples"], rows)

    def test_usage(self):
        golden = Golden("mlp")
        plan = self.forward_plan(golden, "--cpus", 1)
        data, output = self.model_data(golden, plan), self.fresh(".npy")
        for code, part, arguments in (
                (USAGE, "it has logits", ("--output", "y=%s" % output)),
                (USAGE, "not NAME=FILE.npy", ("--output", "logits")),
                (USAGE, "twice", ("--output", "logits=a", "--output", "logits=b")),
                (USAGE, "leave out --steps", ("--steps", "3")),
                (USAGE, "leave out --shuffle", ("--shuffle", "3")),
                (USAGE, "leave out --export", ("--export", output)),
                (USAGE, "leave out --resume", ("--resume", self.folder)),
                (CANNOT_WRITE, "nowhere", ("--output", "logits=/proc/nowhere/y.npy"))):
            self.assertIn(part, self.infer(plan, data, *arguments, code=code).stderr)
        self.assertIn("--data", self.infer(plan, {}, "--output", "logits=%s" % output, code=USAGE).stderr)
        missing = {name: self.folder / "none.npy" for name in data}
        self.infer(plan, missing, "--output", "logits=%s" % output, code=NO_INPUT)
        wrong = self.fresh(".npy")
        write_npy(wrong, "<i8", (4, 1), bytes(32))
        self.infer(plan, {name: wrong for name in data}, code=BAD_MODEL)
        self.assertFalse(output.exists())
        process = call("pipec", golden.model, "--forward-only", "--cpus", 1, "--optimizer", "adam",
                       *golden.pipec_args[:2])
        self.check_exit(process, USAGE)
        self.assertIn("leave out --optimizer", process.stderr)

    def test_the_summary_has_what_inference_has(self):
        golden = Golden("mlp")
        process = call("pipec", golden.model, "--forward-only", "--cpus", 2, "--stages", 2, "--dry-run", *golden.pipec_args[:2])
        self.check_exit(process, 0)
        lines = process.stdout.splitlines()
        header = next(line for line in lines if line.startswith("stage  "))
        self.assertEqual(header.split()[-2:], ["parameters", "F"], header)
        at = [lines.index(header) + 1, lines.index(header) + 2]
        parameters = [int(lines[i][:header.index(" parameters") + len(" parameters")].split()[-1]) for i in at]
        self.assertEqual(sum(parameters), 1250, process.stdout)
        self.assertRegex(process.stdout, "\nrank +peak  workspace  weights, inputs, outputs\n")
        # A message that comes soon is seen at once: a link does not take longer than the step that it is in.
        self.assertRegex(process.stdout, "\nbound by +compute of stage")

    def test_training_needs_steps_and_keeps_outputs_for_evaluation(self):
        golden = Golden("mlp")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 1)
        self.assertIn("--steps", self.infer(plan, golden.data, code=USAGE).stderr)
        process = self.infer(plan, golden.data, "--steps", 1, "--output", "logits=x.npy", code=USAGE)
        self.assertIn("--evaluate", process.stderr)

    def test_full_disk_leaves_nothing(self):
        golden = Golden("gpt")
        plan = self.forward_plan(golden, "--cpus", 2)
        before = sorted(self.folder.iterdir())
        output = self.folder / "logits.npy"
        process = self.infer(plan, self.model_data(golden, plan), "--transport", "inproc", "--output",
                             "logits=%s" % output, code=CANNOT_WRITE, preexec_fn=no_room)
        self.assertIn("logits.npy", process.stderr)
        self.assertEqual(sorted(self.folder.iterdir()), before)


if __name__ == "__main__":
    unittest.main()
