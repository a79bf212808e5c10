# ctest: one core
"""Code for GPUs, checked without one: PTX of every model, its assembly for both
chips, and its numbers under emulation against the CPU's."""
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from pipeline import BIN, CANNOT_WRITE, MODELS, SOURCE, UNAVAILABLE, USAGE, Golden, PipelineTest, call

# pipec takes the toolkit that the path has, as these tests do.
for variable in ("CUDA_HOME", "CUDA_PATH"):
    os.environ.pop(variable, None)
PTXAS = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
NVDISASM = shutil.which("nvdisasm")
CHIPS = ("sm_80", "sm_90")
NAMES = sorted(path.parent.name for path in MODELS.glob("*/golden.json"))
# Models with attention as one op: kernels of their own.
ATTEND = ("gpt", "translator")
# AdamW's update calls a function of libdevice.
CASES = [*((name, None) for name in NAMES), ("mlp", "adamw")]


class GpuCode(PipelineTest):
    def emit(self, name, phase, *arguments, optimizer=None):
        golden = Golden(name)
        output = self.fresh("." + phase)
        words = arguments if "--stages" in arguments else (*arguments, "--stages", "2")
        process = call("pipec", golden.model, *golden.arguments(optimizer), "--gpus", "2", "--strategy", "1f1b",
                       *words, "--emit", phase, "-o", output)
        if process.returncode == UNAVAILABLE and "libdevice.10.bc" in process.stderr:
            self.skipTest("no libdevice")
        self.check_exit(process, 0)
        return output

    def stages(self, output):
        """The text of a file for each of two stages."""
        files = sorted(output.parent.glob("%s.stage*%s" % (output.stem, output.suffix)))
        self.assertEqual([file.name for file in files],
                         ["%s.stage%d%s" % (output.stem, i, output.suffix) for i in range(2)])
        self.assertFalse(output.exists())
        return [file.read_text() for file in files]

    def test_ptx_of_every_model(self):
        for name, optimizer in CASES:
            with self.subTest(name, optimizer=optimizer):
                for text in self.stages(self.emit(name, "ptx", optimizer=optimizer)):
                    self.assertEqual(text.count(".version"), 1)
                    self.check_ptx(text, name in ATTEND)

    def test_ptx_to_read(self):
        """Without a name the stages follow one another, each under a line that says which."""
        golden = Golden("mlp")
        process = call("pipec", golden.model, *golden.arguments("sgd"), "--gpus", "2", "--stages", "2", "--emit", "ptx")
        self.check_exit(process, 0)
        self.assertEqual(re.findall(r"^// Stage (\d) of 2: cut here", process.stdout, re.M), ["0", "1"])
        self.assertEqual(process.stdout.count(".version"), 2)

    def check_ptx(self, text, attends):
        self.assertIn(".target sm_80", text)
        self.assertRegex(text, r"\.visible \.entry kernel0\(")
        # Sums have one order: nothing is added atomically.
        self.assertNotRegex(text, r"\b(atom|red)\.")
        # No flushing of small numbers, no approximations but the powers of two in attention and of what bf16 goes into, and
        # what a tanh begins its division with.
        if not attends:
            self.assertNotIn("ex2.approx", text)
        exact = re.sub(r"(ex2\.approx(\.ftz)?|rcp\.approx\.ftz)\.f32", "", text)
        self.assertNotRegex(exact, r"\.(approx|ftz)[.a-z]*\.f32")
        if PTXAS:
            self.check_assembly(text)

    def check_assembly(self, text):
        source = self.fresh(".ptx")
        source.write_text(text)
        kernels = text.count(".visible .entry")
        for chip in CHIPS:
            process = subprocess.run([PTXAS, "-v", "-arch=" + chip, source, "-o", self.fresh(".cubin")],
                                     capture_output=True, text=True)
            self.assertEqual(process.returncode, 0, process.stderr)
            spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", process.stderr)
            self.assertEqual(spills, [("0", "0")] * kernels, process.stderr)

    @staticmethod
    def large_models():
        spec = importlib.util.spec_from_file_location("large_models", SOURCE / "test/bench/large_models.py")
        large = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(large)
        return large

    def test_ptx_of_wide_layers(self):
        """A layer of GPT-3: rows of 12,288 and 50,257 columns."""
        folder = self.fresh()
        self.large_models().gpt3(layers=1).save(folder)
        process = call("pipec", folder / "model.onnx", "--gpus", "1", "--stages", "1", "--dim", "batch=4", "--loss",
                       "next-token", "--memory-limit", "4096GiB", "--emit", "ptx", "-o", folder / "ptx")
        self.check_exit(process, 0)
        self.check_ptx((folder / "ptx").read_text(), True)

    def attention(self, size, length, causal):
        """A folder with twelve heads that read one product's result, as GPT-2's."""
        large = self.large_models()
        m, width = large.Model(20), 12 * size
        m.inputs.append(("x", large.FLOAT, ["batch", length, width]))
        parts = m.op("Split", m.linear("x", "qkv", width, 3 * width), m.ints(width, width, width), outputs=3, axis=-1)
        q, k, v = (m.heads(part, 12, size) for part in parts)
        if causal:
            mixed = m.attend(q, k, v, m.causal(length), width, size)
        else:
            scores = m.op("MatMul", m.op("Mul", q, m.scalar(size ** -0.5)), m.op("Transpose", k, perm=[0, 1, 3, 2]))
            mixed = m.op("MatMul", m.op("Softmax", scores, axis=-1), v)
            mixed = m.op("Reshape", m.op("Transpose", mixed, perm=[0, 2, 1, 3]), m.ints(0, 0, width))
        m.outputs.append((m.linear(mixed, "out", width, width), large.FLOAT, ["batch", length, width]))
        folder = self.fresh()
        m.save(folder)
        return folder

    def test_registers_of_attention(self):
        """Forward and gradients keep to registers, also where the last tile has rows behind the end."""
        for size in (64, 128):
            for causal in (True, False):
                lengths = [(1024, "bf16"), (1024, "fp32"), (1000, "bf16"), *([(1000, "fp32")] if size == 128 else [])]
                for length, precision in lengths:
                    with self.subTest(size=size, causal=causal, length=length, precision=precision):
                        folder = self.attention(size, length, causal)
                        process = call("pipec", folder / "model.onnx", "--gpus", "1", "--stages", "1", "--dim",
                                       "batch=8", "--loss", "mse", "--optimizer", "sgd:lr=0.1", "--precision",
                                       precision, "--memory-limit", "4096GiB", "--emit", "ptx", "-o", folder / "ptx")
                        self.check_exit(process, 0)
                        text = (folder / "ptx").read_text()
                        # Forward, the gradient of queries, that of keys and values.
                        self.assertEqual(sum("ex2.approx" in part for part in text.split(".visible .entry")), 3)
                        self.check_ptx(text, True)

    def rows(self, widths, length=64):
        """A folder with sums of embeddings and both kinds of normalizations over rows of these lengths."""
        large = self.large_models()
        m = large.Model(20)
        m.inputs.append(("ids", large.INT64, ["batch", length]))
        total = None
        for width in widths:
            name = "of %d " % width
            weight = lambda what, *shape: m.weight(name + what, *shape)
            x = m.op("Add", m.op("Gather", weight("words", 100, width), "ids"), weight("places", length, width))
            y = m.op("LayerNormalization", x, weight("scale", width), weight("shift", width), axis=-1, epsilon=1e-5)
            x = m.op("Add", x, m.linear(m.op("Gelu", m.linear(y, name + "in", width, 64)), name + "out", 64, width))
            y = m.op("LayerNormalization", x, weight("scale 2", width), weight("shift 2", width), axis=-1, epsilon=1e-5)
            x = m.op("Add", x, m.linear(y, name + "mid", width, width, bias=False))
            mean = m.op("ReduceMean", m.op("Mul", x, x), m.ints(-1), keepdims=1)
            y = m.op("Div", x, m.op("Sqrt", m.op("Add", mean, m.scalar(1e-5))))
            y = m.linear(m.op("Mul", y, weight("scale 3", width)), name + "last", width, 64, bias=False)
            total = m.op("Add", total, y) if total else y
        m.outputs.append((total, large.FLOAT, ["batch", length, 64]))
        folder = self.fresh()
        m.save(folder)
        return folder

    def test_registers_of_rows(self):
        """Sums over the rows of GPT-2, BERT, Llama and others keep to registers, forward and gradients."""
        folder = self.rows((768, 1024, 1536, 4096))
        for precision in ("bf16", "fp32"):
            process = call("pipec", folder / "model.onnx", "--gpus", "1", "--stages", "1", "--dim", "batch=8", "--loss",
                           "mse", "--optimizer", "sgd:lr=0.1", "--precision", precision, "--memory-limit", "4096GiB",
                           "--emit", "ptx", "-o", folder / "ptx")
            self.check_exit(process, 0)
            self.check_ptx((folder / "ptx").read_text(), False)

    def test_calls_add_up(self):
        """AdamW reads four numbers of every trained one and writes three, and those rounded that products read so; a
        script adds up what calls move."""
        file = self.emit("gpt", "calls", "--stages", "1", "--precision", "bf16", optimizer="adamw")
        lines = file.read_text().splitlines()
        columns = lines[0].split("\t")
        rows = [dict(zip(columns, line.split("\t"))) for line in lines[1:]]
        updates = [row for row in rows if row["task"] == "update" and "sqrt" in row["ops"] and int(row["read"]) > 64]
        self.assertEqual(len({"cast" in row["ops"] for row in updates}), 2)
        for update in updates:
            size = 14 if "cast" in update["ops"] else 12
            weights = int(update["written"]) // size
            self.assertEqual(size * weights, int(update["written"]))
            self.assertIn(int(update["read"]) - 16 * weights, range(1, 64))  # scalars
        script = SOURCE / "test" / "bench" / "gpu_step.py"
        text = subprocess.run([script, file, "--tokens", "96"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(text, r"(?m)^all +%d +" % len(rows))
        self.assertRegex(text, r"(?m)^optimizer .*\n(?s:.*)^\d+ tokens/s$")

    @unittest.skipUnless(PTXAS, "no ptxas")
    def test_cubins(self):
        for chip in CHIPS:
            cubin = self.emit("mlp", "cubin", "--target-gpu", chip, "--stages", "1").read_bytes()
            self.assertEqual(cubin[:4], b"\x7fELF")

    @unittest.skipUnless(PTXAS, "no ptxas")
    def test_nowhere_for_temporary_files(self):
        golden, file = Golden("mlp"), self.fresh()
        process = subprocess.run(
            [BIN / "pipec", golden.model, *golden.arguments(), "--gpus", "1", "--emit", "cubin", "-o", file],
            capture_output=True, text=True, env=dict(os.environ, TMPDIR="/nonexistent"))
        self.check_exit(process, CANNOT_WRITE)
        self.assertIn("pipec: error: cannot write a temporary file: No such file or directory; ptxas needs one: set "
                      "TMPDIR to a folder where this user may write\n", process.stderr)
        self.assertFalse(file.exists())

    @unittest.skipUnless(PTXAS and NVDISASM, "no ptxas or nvdisasm")
    def test_machine_code(self):
        """Accesses of 128 bits, sums by shuffles; nothing in local memory, nothing atomic."""
        for chip in CHIPS:
            cubin = self.emit("gpt", "cubin", "--target-gpu", chip, "--stages", "1")
            code = subprocess.run([NVDISASM, cubin], capture_output=True, text=True, check=True).stdout
            used = set(re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z][A-Z0-9.]+)", code, re.M))
            for wanted in ("LDG.E.128", "STG.E.128", "SHFL.BFLY"):
                self.assertIn(wanted, used)
            for prefix in ("LDL", "STL", "ATOM", "RED."):
                self.assertFalse([name for name in used if name.startswith(prefix)], prefix)

    def test_attention_of_bf16(self):
        """By the tensor cores, whose operands shared memory hands out by the matrix."""
        for part in self.stages(self.emit("gpt", "ptx", "--precision", "bf16")):
            self.check_ptx(part, True)
            self.assertIn("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", part)
            for form in ("x4", "x4.trans"):
                self.assertIn("ldmatrix.sync.aligned.m8n8.%s.shared.b16" % form, part)

    def test_costs_are_those_of_calls(self):
        """A plan's times are what its calls take of an H100: bytes by its bandwidth or operations by its peak, and a launch."""
        golden = Golden("gpt")
        shown = call("pipec", golden.model, *golden.arguments(), "--gpus", "1", "--device", "h100-sxm", "--strategy", "1f1b",
                     "--stages", "1", "--dry-run", "--format", "json")
        self.check_exit(shown, 0)
        stage = json.loads(shown.stdout)["stages"][0]
        seconds = 0
        calls = self.emit("gpt", "calls", "--stages", "1").read_text().splitlines()
        names = calls[0].split("\t")
        for row in (dict(zip(names, line.split("\t"))) for line in calls[1:]):
            if row["task"] not in ("forward", "backward") or row["call"].startswith("clear"):
                continue
            flops = int(row["flops"])
            share = 0.28 if row["ops"].startswith("attention") else 0.72
            seconds += 4e-6 + max((int(row["read"]) + int(row["written"])) / (0.8 * 3350e9),
                                  (flops + 400e6) / (share * 67e12) if flops else 0)
        # What is computed again is a part of backward that counts as forward; what attention keeps is copied in the plan, and
        # lies where it is needed in the program (cuda/AttentionStash).
        self.assertAlmostEqual(sum(stage[key] for key in ("forward_s", "backward_input_s", "backward_weight_s")) / seconds, 1,
                               delta=0.08)

    def test_numbers_of_every_model(self):
        """The same device code under emulation of blocks and threads."""
        for name, optimizer in CASES:
            with self.subTest(name, optimizer=optimizer):
                stages = self.emit(name, "pipe", optimizer=optimizer)
                program = BIN.parent / "test" / "bin" / "target_test"
                process = subprocess.run([program, "--gtest_filter=Models.*"], capture_output=True, text=True,
                                         env=dict(os.environ, PIPEC_STAGES=str(stages), OMP_NUM_THREADS="1"))
                self.assertEqual(process.returncode, 0, process.stdout[-4000:])
                self.assertNotIn("SKIPPED", process.stdout)

    def test_refusals(self):
        golden = Golden("mlp")
        plan = self.folder / "plan"
        for words, part in ((("--gpus", "2", "--stages", "2", "--emit", "cubin"),
                             "writes a file a stage, this plan has 2: give -o FILE, or"),
                            (("--gpus", "1", "--target-gpu", "sm_80", "-o", plan), "the chip of --emit cubin"),
                            (("--cpus", "1", "--device", "cpu", "--emit", "ptx"), "is for GPUs"),
                            (("--cpus", "1", "--device", "h100-sxm", "-o", plan), "is a GPU"),
                            (("--gpus", "1", "--device", "cpu", "-o", plan), "is no GPU")):
            process = call("pipec", golden.model, *golden.arguments(), *words)
            self.check_exit(process, USAGE)
            self.assertIn(part, process.stderr)

    def test_without_a_toolkit(self):
        """PTX needs none, unless a function of libdevice is called."""
        golden = Golden("mlp")
        words = [BIN / "pipec", golden.model, *golden.arguments("sgd"), "--gpus", "1", "--stages", "1"]
        bare = dict(os.environ, CUDA_HOME=str(self.folder))
        process = subprocess.run([*words, "--emit", "ptx"], capture_output=True, text=True, env=bare)
        self.check_exit(process, 0)
        process = subprocess.run([*words, "--emit", "cubin"], capture_output=True, text=True, env=bare)
        self.check_exit(process, UNAVAILABLE)
        self.assertIn("no ptxas on this machine", process.stderr)
        process = subprocess.run([*words, "--emit", "object", "-o", self.folder / "stage.o"], capture_output=True,
                                 text=True, env=bare)
        self.check_exit(process, 0)
        self.assertIn("note: no ptxas on this machine: the code is PTX alone", process.stderr)
        words[words.index("sgd")] = "adam"
        process = subprocess.run([*words, "--emit", "ptx"], capture_output=True, text=True, env=bare)
        self.check_exit(process, UNAVAILABLE)
        self.assertIn("libdevice.10.bc", process.stderr)

    @unittest.skipUnless(PTXAS, "no ptxas")
    def test_a_killed_compile(self):
        """What it leaves while ptxas runs goes with the next one."""
        toolkit, scratch = self.fresh(), self.fresh()
        (toolkit / "bin").mkdir(parents=True)
        scratch.mkdir()
        slow = toolkit / "bin" / "ptxas"
        slow.write_text("#!/bin/sh\nexec sleep 300\n")
        slow.chmod(0o755)
        golden = Golden("mlp")
        words = [BIN / "pipec", golden.model, *golden.arguments("sgd"), "--gpus", "1", "--stages", "1", "--emit", "cubin",
                 "-o", self.folder / "cubin"]
        job = subprocess.Popen(words, env=dict(os.environ, CUDA_HOME=str(toolkit), TMPDIR=str(scratch)),
                               start_new_session=True)
        self.addCleanup(os.killpg, job.pid, signal.SIGKILL)
        until = time.monotonic() + 120
        while time.monotonic() < until and not list(scratch.glob("pipec-cuda-*/kernels.ptx")):
            time.sleep(0.05)
        job.kill()
        job.wait()
        self.assertEqual(len(list(scratch.iterdir())), 1)
        process = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, TMPDIR=str(scratch)))
        self.check_exit(process, 0)
        self.assertEqual(list(scratch.iterdir()), [])

    def test_is_for_gpus(self):
        golden = Golden("mlp")
        process = call("pipec", golden.model, *golden.arguments(), "--cpus", "1", "--emit", "ptx")
        self.check_exit(process, USAGE)
        self.assertIn("--emit ptx is for GPUs", process.stderr)


if __name__ == "__main__":
    unittest.main()
