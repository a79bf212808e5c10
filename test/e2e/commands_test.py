"""What the commands answer: exit codes, where results go, and what stays on disk."""
import array
import json
import math
import os
import shutil
import struct
import subprocess
import unittest

from pipeline import (BAD_MODEL, BAD_NUMBERS, BAD_PLAN, CANNOT_WRITE, NO_FIT, NO_INPUT, SOURCE, USAGE, Golden,
                      PipelineTest, call, read_npy, read_plan, write_npy)


class CompileTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("mlp")

    def pipec(self, *arguments, model=None):
        return call("pipec", model or self.golden.model, *arguments)

    def flags(self, *more):
        return [*self.golden.arguments(), "--cpus", "1x2", *more]

    def refused(self, code, *parts, arguments, model=None):
        process = self.pipec(*arguments, model=model)
        self.check_exit(process, code)
        self.assertEqual(process.stdout, "")
        for part in parts:
            self.assertIn(part, process.stderr)

    def test_usage(self):
        plan = self.folder / "plan"
        self.refused(USAGE, "--frobnicate", arguments=self.flags("--frobnicate"))
        self.refused(USAGE, "did you mean --strategy?", arguments=self.flags("--stratgy=1f1b"))
        self.refused(USAGE, "--cpus", arguments=[*self.golden.arguments(), "-o", plan])
        self.refused(USAGE, "pipedream", arguments=self.flags("--strategy", "magic", "-o", plan))
        for option, value, part in (("--loss", "hinge", "there are: cross-entropy, next-token"),
                                    ("--loss", "mse:axis=1", "axis"),
                                    ("--loss", "cross-entropy:ignore_index=x", "not an integer"),
                                    ("--loss", "cross-entropy:label_smoothing=2", "not a number from 0 to 1"),
                                    ("--loss", "bce:pos_weight=-1", "not a number of at least 0"),
                                    ("--optimizer", "lamb", "there are: sgd, adam, adamw"),
                                    ("--optimizer", "sgd:rate=1", "rate"),
                                    ("--dim", "batch=many", "batch"),
                                    ("--microbatches", "0", "--microbatches")):
            words = self.flags("-o", plan)
            if option in words:
                words[words.index(option) + 1] = value
            self.refused(USAGE, part, arguments=words)
        self.refused(USAGE, "--freeze", arguments=self.flags("--freeze", "(", "-o", plan))
        weights = self.folder / "weights.npy"
        for code, part, array in ((NO_INPUT, "No such file or directory; give a .npy file of a number for each class", None), (BAD_MODEL, "not a vector of float32", ("<i4", (2,))),
                                  (BAD_MODEL, "--loss has 2 class weights for", ("<f4", (2,)))):
            if array:
                write_npy(weights, *array, bytes(8))
            words = [w for w in self.flags("-o", plan) if w != "--loss" and not str(w).startswith("cross-entropy")]
            self.refused(code, part, arguments=[*words, "--loss", "cross-entropy:weight=%s" % weights])
        self.assertFalse(plan.exists())

    def test_models_that_are_none(self):
        plan = self.folder / "plan"
        garbage = self.folder / "garbage.onnx"
        garbage.write_bytes(os.urandom(1000))
        self.refused(BAD_MODEL, "garbage.onnx", arguments=self.flags("-o", plan), model=garbage)
        empty = self.folder / "empty.onnx"
        empty.write_bytes(b"")
        self.refused(BAD_MODEL, "empty.onnx", arguments=self.flags("-o", plan), model=empty)
        cut = self.folder / "cut.onnx"
        cut.write_bytes(self.golden.model.read_bytes()[:5000])
        self.refused(BAD_MODEL, "cut.onnx", arguments=self.flags("-o", plan), model=cut)
        missing = self.folder / "missing.onnx"
        self.refused(NO_INPUT, "missing.onnx", arguments=self.flags("-o", plan), model=missing)
        self.assertFalse(plan.exists())

    def test_all_weights_frozen(self):
        plan = self.folder / "plan"
        self.refused(USAGE, "the 8 weights of the model are all frozen by --freeze '.*'",
                     "remedy: leave some to train, or run the model as it is with --forward-only\n",
                     arguments=self.flags("--freeze", ".*", "-o", plan))
        self.refused(USAGE, "frozen by --freeze 'weight' --train-only 'weight'", arguments=self.flags(
            "--freeze", "weight", "--train-only", "weight", "-o", plan))
        self.assertFalse(plan.exists())

    def test_a_cut_data_file_is_one_problem(self):
        golden = Golden("mlp-external")
        for name in ("model.onnx", "model.onnx.data"):
            shutil.copy(golden.model.parent / name, self.folder)
        data = self.folder / "model.onnx.data"
        whole = data.stat().st_size
        os.truncate(data, 64)
        self.refused(BAD_MODEL, "pipec: error: %s: " % (self.folder / "model.onnx"), "(and 3 other tensors): its external data lies behind the end of "
                     "'model.onnx.data', which has 64 bytes and would need %d\n" % whole,
                     "copy the whole file", arguments=self.flags("--dry-run"), model=self.folder / "model.onnx")

    def test_names_the_dimension_to_fix(self):
        words = self.flags("-o", self.folder / "plan")
        at = words.index("--dim")
        del words[at:at + 2]
        self.refused(USAGE, "--dim batch=", arguments=words)

    def test_keeps_what_is_no_plan(self):
        folder = self.folder / "precious"
        folder.mkdir()
        (folder / "thesis.txt").write_text("words")
        self.refused(CANNOT_WRITE, "precious", arguments=self.flags("-o", folder))
        self.assertEqual([path.name for path in folder.iterdir()], ["thesis.txt"])
        self.assertEqual([path.name for path in self.folder.iterdir()], ["precious"])

    def test_replaces_a_plan(self):
        plan = self.folder / "plan"
        self.check_exit(self.pipec(*self.flags("--quiet", "-o", plan)), 0)
        (plan / "stages" / "leftover.so").write_text("old")
        (plan / "trained.onnx").write_text("mine")
        self.check_exit(self.pipec(*self.flags("--quiet", "-o", plan)), 0)
        self.assertFalse((plan / "stages" / "leftover.so").exists())
        self.assertTrue((plan / "trained.onnx").exists())
        self.assertEqual([path.name for path in self.folder.iterdir()], ["plan"])

    def test_summary(self):
        plan = self.folder / "plan"
        process = self.pipec(*self.flags("--strategy", "1f1b", "--stages", "2", "-o", plan))
        self.check_exit(process, 0)
        self.assertEqual(process.stderr, "")
        for part in ("model.onnx", "8 tensors with", "1f1b", "bubble", "0 |F0", "samples/s", "data parallel"):
            self.assertIn(part, process.stdout)
        again = self.pipec(*self.flags("--quiet", "-o", plan))
        self.assertEqual((again.returncode, again.stdout, again.stderr), (0, "", ""))

    def test_too_little_memory(self):
        plan = self.folder / "plan"
        self.refused(NO_FIT, "KiB", arguments=self.flags("--memory-limit", "4KiB", "-o", plan))
        self.assertFalse(plan.exists())

    def test_plans_for_a_cluster_that_is_not_there(self):
        golden = Golden("gpt")
        words = [*golden.arguments(), "--gpus", "2x8", "--device", "h100-sxm"]
        process = call("pipec", golden.model, *words, "--dry-run", "--format", "json",
                       cwd=self.folder)
        self.check_exit(process, 0)
        plan = json.loads(process.stdout)
        self.assertEqual(plan["cluster"], {"kind": "cuda", "device": "h100-sxm", "servers": 2,
                                           "devices_per_server": 8})
        self.assertTrue(plan["stages"] and plan["baselines"])
        self.assertTrue(all(rank["peak_bytes"] > 0 for rank in plan["ranks"]))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_says_where_the_plan_is_and_how_to_run_it(self):
        arrays = "data       input: float32 [N, 12]\n"
        for words, arrays, run in (
                ((), arrays + "           labels: int64 [N], values 0 to 5\n",
                 "--data input=FILE.npy --data labels=FILE.npy --steps 100"),
                (("--forward-only",), arrays, "--data input=FILE.npy --output logits=FILE.npy")):
            plan = self.fresh(".plan")
            flags = ("--dim", "batch=4", "--cpus", "1", *words, "-o", plan)
            process = self.pipec(*flags)
            self.check_exit(process, 0)
            self.assertTrue(process.stdout.endswith("\nwritten    %s (pipec inspect, report.html)\n%srun it     "
                                                    "pipec-run %s %s\n" % (plan, arrays, plan, run)), process.stdout)
            self.assertNotIn("written", self.pipec(*flags, "--dry-run").stdout)
            self.assertEqual(self.pipec(*flags, "--quiet").stdout, "")

    def test_emits_every_phase(self):
        for phase, part in (("nn", "nn.matmul"), ("pipe", "pipe.load"), ("kernels", "func.func"),
                            ("llvm", "define")):
            process = self.pipec(*self.flags("--emit", phase))
            self.check_exit(process, 0)
            self.assertIn(part, process.stdout)

    def test_dumped_ir_can_be_read_again(self):
        dump = self.folder / "ir"
        self.pipec(*self.flags("--strategy", "1f1b", "--stages", "2", "--dump-ir", dump, "--quiet",
                               "-o", self.folder / "plan"))
        files = sorted(dump.rglob("*.mlir"))
        self.assertGreaterEqual(len(files), 6)
        for file in files:
            self.check_exit(call("pipec-opt", file, "--verify-roundtrip", "-o", os.devnull), 0)

    def test_freezing(self):
        plan = self.compile(self.golden.model, *self.flags("--freeze", r"layers\.[01]\."))
        roles = {weight["name"]: weight["role"] for weight in read_plan(plan)["weights"]}
        self.assertEqual(roles["layers.0.weight"], "frozen")
        self.assertEqual(roles["layers.3.bias"], "weight")

    def test_stages_that_are_asked_for_are_on_ranks_of_their_own(self):
        plan = self.compile(self.golden.model, *self.flags("--stages", "2", "--strategy", "1f1b"))
        self.assertEqual([len(rank["stages"]) for rank in read_plan(plan)["ranks"]], [1, 1])

    def test_self_contained(self):
        model = self.folder / "copy.onnx"
        model.write_bytes(self.golden.model.read_bytes())
        plan = self.compile(model, *self.flags("--self-contained"))
        model.unlink()
        losses = self.train(plan, self.golden.data, 2).losses
        whole = self.train(self.compile(self.golden.model, *self.flags()), self.golden.data, 2).losses
        self.assertEqual(losses, whole)


class RunTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("mlp")
        self.plan = self.compile(self.golden.model, *self.golden.arguments(), "--cpus", "1x2", "--strategy", "1f1b")

    def refused(self, code, part, *arguments, plan=None):
        process = call("pipec-run", plan or self.plan, *arguments)
        self.check_exit(process, code)
        self.assertIn(part, process.stderr)

    def data(self, **replaced):
        files = {**self.golden.data, **replaced}
        return [word for name, file in files.items() for word in ("--data", "%s=%s" % (name, file))]

    def test_usage(self):
        self.refused(USAGE, "--steps", *self.data())
        self.refused(USAGE, "--frobnicate", *self.data(), "--steps", "1", "--frobnicate")
        self.refused(USAGE, "labels", "--data", "input=%s" % self.golden.data["input"], "--steps", "1")
        # What a run does: a peer is lost early enough for all ranks to end in time.
        self.assertIn("seconds within which the job ends when a peer does not answer: after half of them it is lost",
                      " ".join(call("pipec-run", "--help").stdout.split()))

    def test_files(self):
        missing = self.folder / "missing.npy"
        self.refused(NO_INPUT, "cannot read the array %s: No such file or directory; check the path" % missing,
                     *self.data(labels=missing), "--steps", "1")
        self.refused(BAD_MODEL, "labels", *self.data(labels=self.golden.data["input"]), "--steps", "1")
        self.refused(NO_INPUT, "nowhere", *self.data(), "--steps", "1", plan=self.folder / "nowhere")
        empty = self.fresh()
        empty.mkdir()
        for folder, why in ((missing, "No such file or directory"), (empty, "there is no checkpoint in it")):
            self.refused(NO_INPUT, "--resume %s: %s; give the folder of a run's --checkpoint, or leave --resume out to "
                         "begin anew\n" % (folder, why), *self.data(), "--steps", "1", "--resume", folder)
        (self.plan / "plan.json").write_text("{")
        self.refused(BAD_PLAN, "plan.json", *self.data(), "--steps", "1")

    def test_a_learning_rate_that_ends_before_the_run(self):
        for total, said in ((3, "pipec-run: note: --lr-schedule cosine:total=3: the learning rate is 0 from step 4 of 5 "
                             "on; total=5 ends with the run, min= keeps a share of the rate\n"), (5, "")):
            process = call("pipec-run", self.plan, *self.data(), "--steps", 5, "--lr-schedule", f"cosine:total={total}")
            self.check_exit(process, 0)
            self.assertEqual(process.stderr, said)

    def test_labels_that_are_all_ignored(self):
        labels = self.folder / "ignored.npy"
        write_npy(labels, "<i8", (46,), struct.pack("<46q", *[-100] * 46))
        run = call("pipec-run", self.plan, *self.data(labels=labels), "--steps=1")
        self.check_exit(run, BAD_NUMBERS)
        self.assertIn("microbatch 0 is NaN; all its labels are ignored, such a microbatch has no mean: leave these "
                      "samples out\n", run.stderr)

    def test_numbers_that_diverge(self):
        huge, infinite = self.folder / "huge.npy", self.folder / "infinite.npy"
        descr, shape, data = read_npy(self.golden.data["input"])
        values = array.array("f", [3e38 * (-1) ** i for i in range(len(data) // 4)])
        write_npy(huge, descr, shape, values.tobytes())
        values = array.array("f", data)
        values[3] = math.inf
        write_npy(infinite, descr, shape, values.tobytes())
        run = call("pipec-run", self.plan, *self.data(input=huge), "--steps=1")
        self.check_exit(run, BAD_NUMBERS)
        self.assertRegex(run.stderr, r"is (NaN|infinite); nothing is updated yet: the cause is in the model's "
                                     r"weights, in what it computes or in the data \(numbers too large, say\)\n")
        run = call("pipec-run", self.plan, *self.data(input=infinite), "--steps=1")
        self.check_exit(run, BAD_NUMBERS)
        self.assertRegex(run.stderr, r"is (NaN|infinite); its data has an infinite number: value \[0, 3\] of input "
                                     r"'input' \(.*infinite.npy\); if that is meant so, nothing is updated yet: ")
        # The first step's loss is of weights that no learning rate has touched, the others' are not.
        plan = self.compile(self.golden.model, *self.golden.arguments("sgd:lr=1e30"), "--cpus", 1)
        run = call("pipec-run", plan, *self.data(), "--steps=20")
        self.check_exit(run, BAD_NUMBERS)
        self.assertRegex(run.stderr, r"is (NaN|infinite); try a smaller learning rate or --clip-norm\n")

    def test_damaged_stages(self):
        whole = (self.plan / "stages" / "stage1.so").read_bytes()
        middle = len(whole) // 2
        written_over = whole[:middle] + bytes(3000) + whole[middle + 3000:]
        self.assertNotEqual(whole, written_over)
        for transport in ("inproc", "mpi") if shutil.which("mpirun") else ("inproc",):
            for damaged in (whole[:1000], whole[:-1], b"", written_over, None):
                plan = self.fresh(".plan")
                shutil.copytree(self.plan, plan)
                file = plan / "stages" / "stage1.so"
                file.unlink()
                if damaged is not None:
                    file.write_bytes(damaged)
                process = call("pipec-run", plan, *self.data(), "--steps", "1", "--transport", transport)
                self.check_exit(process, BAD_PLAN)
                why = "No such file" if damaged is None else "is not the stage program that was compiled"
                self.assertRegex(process.stderr, "%s: .*%s.*; copy the plan folder again or compile the model again"
                                 % (file, why))
                self.assertEqual(process.stderr.count("stage1.so"), 1, process.stderr)
                shown = call("pipec", "inspect", "--quiet", plan)
                self.check_exit(shown, BAD_PLAN)
                self.assertRegex(shown.stderr, "pipec: error: %s: .*%s" % (file, why))
        shutil.copytree(self.plan, plan := self.fresh(".plan"))
        self.check_exit(call("pipec", "inspect", "--quiet", plan), 0)
        shutil.rmtree(plan / "evaluation")
        for process in (call("pipec", "inspect", plan), call("pipec-run", plan, *self.data(), "--evaluate")):
            self.check_exit(process, NO_INPUT)
            self.assertIn("evaluation: the plan that evaluates what this one trains is missing; copy the plan folder",
                          process.stderr)

    def test_changed_model(self):
        model = self.folder / "model.onnx"
        model.write_bytes(self.golden.model.read_bytes())
        plan = self.compile(model, *self.golden.arguments(), "--cpus", "1x1")
        model.write_bytes(self.golden.model.read_bytes()[:-1] + b"x")
        self.refused(BAD_MODEL, "model.onnx", *self.data(), "--steps", "1", plan=plan)
        model.unlink()
        self.refused(NO_INPUT, "it holds the plan's initial weights: put it back there, or compile again (with "
                     "--self-contained the plan has a copy)", *self.data(), "--steps", "1", plan=plan)

    def test_diverging_training_stops(self):
        plan = self.compile(self.golden.model, *self.golden.arguments("sgd:lr=1e30"), "--cpus", "1x2")
        self.refused(77, "loss", *self.data(), "--steps", "8", plan=plan)


class ShowTest(PipelineTest):
    def test_version_and_help(self):
        for program in ("pipec", "pipec-run"):
            process = call(program, "--version")
            self.assertRegex(process.stdout, r"^pipec(-run)? \d+\.\d+\.\d+\n$")
            process = call(program, "--help")
            self.check_exit(process, 0)
            self.assertIn("--help", process.stdout)
        self.assertRegex(call("pipec-opt", "--version").stdout, r"^pipec-opt \d+\.\d+\.\d+\n$")

    def test_every_subcommand_has_help(self):
        for command in ("schedule", "partition", "list", "inspect", "calibrate"):
            process = call("pipec", command, "--help")
            self.check_exit(process, 0)
            self.assertIn("--format", process.stdout)

    @unittest.skipUnless(shutil.which("dpkg-query"), "the script is for Debian")
    def test_setup_names_what_is_missing_and_nothing_else(self):
        for words in ((), ("--bench", "--cuda")):
            process = subprocess.run([SOURCE / "tools" / "setup.sh", "--print", *words], capture_output=True, text=True)
            self.check_exit(process, 0)
            self.assertNotIn("", process.stdout.splitlines())

    def test_lists(self):
        for what in ("ops", "schedules", "strategies", "planners", "devices", "losses",
                     "optimizers"):
            process = call("pipec", "list", what, "--format", "json")
            self.check_exit(process, 0)
            rows = json.loads(process.stdout)
            self.assertGreater(len(rows), 2)
            self.assertEqual(len(rows), len({(row["name"], row.get("domain")) for row in rows}))
            text = call("pipec", "list", what).stdout
            for row in rows:
                self.assertIn(row["name"], text)

    def test_inspect(self):
        golden = Golden("cnn")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", "1x2", "--stages", "2")
        process = call("pipec", "inspect", plan)
        self.check_exit(process, 0)
        self.assertIn("stem.weight", process.stdout)
        text = call("pipec", "inspect", plan, "--format", "json").stdout
        shown = json.loads(text)
        # As docs/plan-format.md has it: what a compile shows is this, not plan.json.
        self.assertNotIn("edges", shown)
        flags = [golden.model, *golden.arguments(), "--cpus", "1x2", "--stages", "2", "--format", "json"]
        self.assertEqual(call("pipec", *flags, "--dry-run").stdout, text)
        self.assertEqual(call("pipec", *flags, "-o", self.folder / "again.plan").stdout, text)
        self.assertEqual([rank["peak_bytes"] for rank in shown["ranks"]],
                         [rank["peak_bytes"] for rank in read_plan(plan)["ranks"]])
        self.check_exit(call("pipec", "inspect", self.folder), NO_INPUT)

    def test_inspect_shows_every_level(self):
        golden, file = Golden("mlp"), self.folder / "cluster.json"
        file.write_text(json.dumps({"device": "cpu", "levels": [
            {"name": name, "count": count, "bandwidth_GBps": 1} for name, count in
            (("server", 1), ("socket", 2), ("core", 1))]}))
        plan = self.compile(golden.model, *golden.arguments(), "--cluster", file)
        self.assertEqual(read_plan(plan)["cluster"]["levels"], [["server", 1], ["socket", 2], ["core", 1]])
        self.assertIn(" · 1 server of 2 sockets of 1 CPU rank\n", call("pipec", "inspect", plan).stdout)
        shown = json.loads(call("pipec", "inspect", plan, "--format", "json").stdout)
        self.assertEqual(shown["cluster"]["levels"], [["server", 1], ["socket", 2], ["core", 1]])


if __name__ == "__main__":
    unittest.main()
