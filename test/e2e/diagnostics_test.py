"""Everything that is wrong with a model in one report: node, source, cause and remedy, as text and as JSON."""
import json
import math
import os
import subprocess
import unittest

import onnx_writer as onnx
from pipeline import BAD_MODEL, BAD_PLAN, BIN, MODELS, NO_INPUT, SOURCE, USAGE, PipelineTest, call, write_npy

PROBLEMS = [
    ("lost", "NoSuchOp", "the operator NoSuchOp is not supported", "pipec list ops"),
    ("sum", "Add", "shapes [2,3] and [5] do not broadcast", "--dim"),
    ("shape", "Reshape", "shape", "--constant"),
    ("drop", "Dropout", "its ratio 1.500000 is not between 0 and 1", ""),
    ("scores", "Softmax", "its axis 7 is none of a tensor of rank 2", ""),
]


class DiagnosticsTest(PipelineTest):
    def node(self, op, inputs, name, **more):
        line = [row[0] for row in PROBLEMS].index(name) + 10
        trace = 'File "/usr/lib/torch/nn/module.py", line 7, in call\n  File "model.py", line %d, in forward\n' % line
        return onnx.node(op, inputs, ["out_" + name], name, {"pkg.torch.onnx.stack_trace": trace}, **more)

    def broken(self):
        path = self.fresh(".onnx")
        path.write_bytes(onnx.model(
            [self.node("NoSuchOp", ["x"], "lost"), self.node("Add", ["x", "q"], "sum"),
             self.node("Reshape", ["x", "s"], "shape"), self.node("Dropout", ["x", "ratio", "train"], "drop"),
             self.node("Softmax", ["x"], "scores", axis=7), onnx.node("MatMul", ["x", "w"], ["y"], "fine")],
            [onnx.tensor("w", onnx.FLOAT, (3, 3), [1] * 9), onnx.tensor("ratio", onnx.FLOAT, (), [1.5]),
             onnx.tensor("train", onnx.INT64, (), [1])],
            [onnx.value("x", onnx.FLOAT, (2, 3)), onnx.value("q", onnx.FLOAT, (5,)), onnx.value("s", onnx.INT64, (2,))],
            [onnx.value("y", onnx.FLOAT, (2, 3))]))
        return path

    def test_text_and_json(self):
        model = self.broken()
        text = call("pipec", model, "--cpus", "1")
        self.check_exit(text, BAD_MODEL)
        self.assertIn("5 problems", text.stderr)
        answer = call("pipec", model, "--cpus", "1", "--format", "json")
        self.check_exit(answer, BAD_MODEL)
        report = json.loads(answer.stderr)
        self.assertEqual(report["exit"], BAD_MODEL)
        self.assertEqual([p["node"] for p in report["problems"]], [row[0] for row in PROBLEMS])
        for problem, (node, op, cause, remedy) in zip(report["problems"], PROBLEMS):
            where = "model.py:%d" % ([row[0] for row in PROBLEMS].index(node) + 10)
            self.assertEqual((problem["op"], problem["location"]), (op, where))
            self.assertIn(cause, problem["cause"])
            self.assertIn(remedy, problem["remedy"])
            self.assertIn("node '%s' (%s" % (node, op), text.stderr)
            self.assertIn("in the model's source: " + where, text.stderr)

    def test_names_of_all_kinds_in_json(self):
        odd = 'a"b\\c\nd/\u00e9'
        folder = self.folder / 'fol"der\n\\'
        folder.mkdir()
        model = folder / (odd.replace("/", "") + ".onnx")
        model.write_bytes(onnx.model(
            [onnx.node("MatMul", [odd + "x", odd + "w"], [odd + "y"], odd)], [onnx.tensor(odd + "w", onnx.FLOAT, (3, 3), range(9))],
            [onnx.value(odd + "x", onnx.FLOAT, (2, 3))], [onnx.value(odd + "y", onnx.FLOAT, (2, 3))]))
        plan, data = folder / "plan", folder / "x.npy"
        answer = call("pipec", model, "--cpus", "1", "--forward-only", "--format", "json", "-o", plan)
        self.check_exit(answer, 0)
        self.assertEqual(json.loads(answer.stdout)["model"]["path"], str(model))
        self.assertEqual(json.loads((plan / "plan.json").read_text())["stages"][0]["first_name"], odd)
        write_npy(data, "<f4", (2, 3), bytes(24))
        trace = self.folder / "trace.json"
        run = call("pipec-run", plan, "--data", "%sx=%s" % (odd, data), "--format", "json", "--trace", trace)
        self.check_exit(run, 0)
        json.loads(run.stdout)
        json.loads(trace.read_text())
        wrong = call("pipec", model, "--cpus", "1", "--format", "json", "--logits", odd)
        self.check_exit(wrong, USAGE)
        self.assertIn(odd, json.loads(wrong.stderr)["problems"][0]["cause"])
        self.assertIn("a\"b\\c\\x0ad", call("pipec", model, "--cpus", "1", "--logits", odd).stderr.splitlines()[0])

    def test_every_command_says_errors_in_json(self):
        """Also of a command line that cannot be understood, and of what has no subcommand of its own."""
        missing = self.folder / "missing"
        text = self.folder / "words.txt"
        text.write_text("hello world\n")
        mlp = MODELS / "mlp" / "model.onnx"
        for program, words, code, name, cause, remedy in (
                ("pipec", [mlp, "--cpuss", 2], USAGE, mlp, "there is no option --cpuss", "see pipec --help"),
                ("pipec", [mlp, "--cpus", "9x"], USAGE, mlp, "--cpus: '9x' is not", "write M or NxM"),
                ("pipec", ["--cpus", 2, mlp, mlp], USAGE, mlp, "unexpected", "see pipec --help"),
                ("pipec", ["lst", "ops"], USAGE, "lst", "'lst' is neither a command", "commands: "),
                ("pipec", ["schedule", "1f1b", "--stages"], USAGE, "1f1b", "--stages needs", "see pipec schedule --help"),
                ("pipec", ["schedule", "chimera", "--stages", 3, "--microbatches", 4], USAGE, "chimera", "even", "2 or 4"),
                ("pipec", ["partition", "--devices", 4], USAGE, "", "graph", "see pipec partition --help"),
                ("pipec", ["partition", "--devices", 4, text], BAD_MODEL, text, ":1: a PipeDream profile", "--graph-format"),
                ("pipec", ["inspect", missing], NO_INPUT, missing, "No such file", "give the folder"),
                ("pipec", ["inspect", missing, "--what"], USAGE, missing, "--what", "see pipec inspect --help"),
                ("pipec", ["list", "things"], USAGE, "things", "things", ""),
                ("pipec", ["calibrate", "--cpus", "x"], USAGE, "", "'x' is not a number", "write M or NxM"),
                ("pipec-run", [missing, "--stepps", 3], USAGE, missing, "--stepps", "see pipec-run --help"),
                ("pipec-run", ["--steps", 3, missing], NO_INPUT, missing, "No such file", "give the folder")):
            for where in (len(words), 0 if program == "pipec-run" else 1):
                for form in (["--format", "json"], ["--format=json"]):
                    answer = call(program, *words[:where], *form, *words[where:])
                    if where == 1 and words[0] == "--cpus":
                        continue
                    self.check_exit(answer, code)
                    self.assertEqual(answer.stdout, "")
                    report = json.loads(answer.stderr)
                    self.assertEqual(list(report), ["input", "exit", "problems", "notes"])
                    self.assertEqual((report["input"], report["exit"]), (str(name), code))
                    problem, = report["problems"]
                    self.assertEqual(problem["exit"], code)
                    self.assertIn(cause, problem["cause"])
                    self.assertIn(remedy, problem["remedy"])
            said = call(program, *words, "--format", "text")
            self.check_exit(said, code)
            self.assertTrue(said.stderr.startswith(program + ": error: "), said.stderr)

    def test_paths_that_are_no_text(self):
        model = bytes(self.folder) + b"/m\xff.onnx"
        with open(model, "wb") as file:
            file.write((MODELS / "mlp" / "model.onnx").read_bytes())
        words = [os.fsencode(BIN / "pipec"), model, b"--dim", b"batch=4", b"--cpus", b"1"]

        def pipec(*more):
            return subprocess.run([*words, *more], capture_output=True, cwd=self.folder, timeout=300)
        made = pipec(b"-o", b"plan")
        self.assertEqual(made.returncode, BAD_MODEL, made.stderr)
        self.assertIn(b"error: the model's path, or a name in it, is not valid UTF-8, which plan.json is; give it "
                      b"another name\n", made.stderr)
        shown = pipec(b"--dry-run", b"--format", b"json")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("m\ufffd.onnx", json.loads(shown.stdout)["model"]["path"])

    def test_names_that_are_no_text(self):
        """Of what is computed at compile time, which goes into a file of its own before plan.json is written."""
        model = self.folder / "m.onnx"
        source = (SOURCE / "examples" / "gpt2" / "model.onnx").read_bytes()
        model.write_bytes(source.replace(b"node_Add_182", b"node_Add_18\xff"))
        words = [model, "--dim", "batch=1", "--loss", "next-token", "--cpus", 1, "--quiet", "-o", self.folder / "plan"]
        made = call("pipec", *words)
        self.check_exit(made, BAD_MODEL)
        self.assertIn("the model's path, or a name in it, is not valid UTF-8", made.stderr)
        model.write_bytes(source)
        self.check_exit(call("pipec", *words), 0)
        self.assertIn(b"node_Add_182", (self.folder / "plan" / "weights.safetensors").read_bytes())

    def test_a_changed_file_of_weights(self):
        """One of the plan folder is the plan's fault, one beside it the model's; neither computes anything."""
        model, plan = self.folder / "m.onnx", self.folder / "plan"
        model.write_bytes((SOURCE / "examples" / "gpt2" / "model.onnx").read_bytes())
        words = [model, "--dim", "batch=1", "--loss", "next-token", "--cpus", 1, "--quiet", "-o"]
        self.check_exit(call("pipec", *words, plan), 0)
        whole = self.folder / "whole"
        self.check_exit(call("pipec", *words, whole, "--self-contained"), 0)
        copy = next(file for file in whole.rglob("*.onnx"))
        tokens = self.folder / "tokens.npy"
        write_npy(tokens, "<i8", (8, 64), bytes(8 * 64 * 8))
        ours, theirs = (BAD_PLAN, "copy the plan folder again"), (BAD_MODEL, "put the original back")
        training, both = [["--steps", 1]], [["--steps", 1], ["--evaluate"]]
        for folder, file, (code, remedy), ways in ((plan, plan / "weights.safetensors", ours, training),
                                                   (plan, model, theirs, both), (whole, copy, ours, both)):
            sound = file.read_bytes()
            for changed, what in ((sound[:-1], "size"), (sound[:-1] + bytes([sound[-1] ^ 1]), "digest")):
                file.write_bytes(changed)
                for way in ways:
                    run = call("pipec-run", folder, "--data", f"input_ids={tokens}", *way)
                    self.check_exit(run, code)
                    self.assertIn(f"{file.name}: is not the file that was compiled (its {what} differs); {remedy}, or "
                                  "compile the model again\n", run.stderr)
            file.write_bytes(sound)

    def after_weights(self, op, inputs, **attributes):
        """A product with a weight, then the operator."""
        path = self.fresh(".onnx")
        nodes = [onnx.node("MatMul", ["x", "w"], ["a"]), onnx.node(op, inputs, ["y"], "rest", **attributes)]
        path.write_bytes(onnx.model(nodes, [onnx.tensor("w", onnx.FLOAT, (3, 3), range(9))],
                                    [onnx.value("x", onnx.FLOAT, (2, 3))], [onnx.value("y", onnx.FLOAT, (2, 3))]))
        return call("pipec", path, "--cpus", "1", "--dry-run", "--format", "json")

    def test_weights_that_are_no_numbers(self):
        """Said where a plan is written; masks may be infinite, and types are the file's own."""
        sound, broken, infinite = [1.0] * 9, [1.0] * 5 + [math.nan] + [1.0] * 3, [1.0] * 8 + [-math.inf]
        for kind, values, mask, text in (
                (onnx.FLOAT, sound, -math.inf, ""), (onnx.FLOAT, broken, 0.0, "weight 'w' holds NaN, first at [1, 2]"),
                (onnx.FLOAT, infinite, 0.0, "weight 'w' is infinite, first at [2, 2]"),
                (onnx.FLOAT16, broken, 0.0, "weight 'w' holds NaN, first at [1, 2]")):
            path, floats = self.fresh(".onnx"), onnx.value("x", kind, (2, 3))
            path.write_bytes(onnx.model(
                [onnx.node("MatMul", ["x", "w"], ["a"]), onnx.node("Add", ["a", "m"], ["y"])],
                [onnx.tensor("w", kind, (3, 3), values), onnx.tensor("m", kind, (1, 3), [0.0, 0.0, mask])],
                [floats], [onnx.value("y", kind, (2, 3))]))
            words = [path, "--cpus", 1, "--train-only", "^w$"]
            made = call("pipec", *words, "-o", self.fresh(".plan"))
            self.check_exit(made, 0)
            notes = [line for line in made.stderr.splitlines() if "weight '" in line]
            self.assertEqual(len(notes), 1 if text else 0, made.stderr)
            if text:
                self.assertTrue(notes[0].startswith("pipec: note: " + text + ": what is computed from it"), notes)
            self.assertNotIn("weight 'w'", call("pipec", *words, "--dry-run").stderr)

    def test_a_loss_without_slope_trains_nothing(self):
        answer = self.after_weights("Hardmax", ["a"])
        self.check_exit(answer, BAD_MODEL)
        problem, = json.loads(answer.stderr)["problems"]
        self.assertEqual(problem["cause"], "the loss depends on no trained weight")
        self.assertEqual(problem["remedy"], "take the loss of another output with --logits, or run the model as it is "
                         "with --forward-only")

    def test_weights_repeated_for_a_fixed_batch(self):
        folded = {"pkg.onnxscript.optimizer.folded_from": "['positions.weight']"}
        signature = "positions: PARAMETER target='positions.weight'"
        for rows, said in (([1, 2, 3, 1, 2, 3], True), ([1, 2, 3, 4, 5, 6], False), ([1] * 6, False)):
            path = self.fresh(".onnx")
            path.write_bytes(onnx.model(
                [onnx.node("Add", ["x", "index"], ["y"])], [onnx.tensor("index", onnx.FLOAT, (2, 3), rows)],
                [onnx.value("x", onnx.FLOAT, (2, 3))], [onnx.value("y", onnx.FLOAT, (2, 3))],
                values=[onnx.value("index", onnx.FLOAT, (2, 3), folded)],
                metadata={"pkg.torch.export.ExportedProgram.graph_signature": signature}))
            process = call("pipec", path, "--cpus", "1", "--dry-run")
            self.check_exit(process, 0)
            text = "'index' repeats the same weights 2 times, for a batch that was fixed when the model was exported: " \
                "each repetition trains apart; --tie auto trains them as one"
            self.assertEqual(text in process.stderr, said, process.stderr)

    def test_remainders_train(self):
        self.check_exit(self.after_weights("Mod", ["a", "x"], fmod=1), 0)


if __name__ == "__main__":
    unittest.main()
