"""Plans for GPUs, run by the true runtime on stand-ins of NVIDIA's libraries
(test/standin): kernels, products and convolutions are done on the processor, in
streams that run as late as their events allow, or at random moments."""
import ctypes.util
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time
import unittest
from unittest import mock

from golden_test import tolerance
from pipeline import (BAD_NUMBERS, BIN, NO_FIT, UNAVAILABLE, USAGE, Golden, PipelineTest, Run, call, initializers,
                      read_npy, read_plan)

PEER_LOST = 76
STANDIN = BIN.parent / "test" / "standin"
EMULATE = BIN.parent / "test" / "bin" / "emulate-stages"


def libdevice():
    """NVIDIA's math functions, where pipec looks for them; None where there are none."""
    roots = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)][:1]
    if not roots:
        ptxas = shutil.which("ptxas")
        roots = [*([pathlib.Path(ptxas).resolve().parents[1]] if ptxas else []), "/usr/local/cuda"]
    files = [pathlib.Path(root) / "nvvm/libdevice/libdevice.10.bc" for root in roots]
    return next((file for file in files if file.exists()), None)


class GpuTest(PipelineTest):
    """Compiles for GPUs, and runs on the stand-in."""

    def without_ptxas(self):
        """A toolkit with libdevice alone. ptxas takes two thirds of a compilation, and what it makes is not run here."""
        toolkit, functions = self.folder / "libdevice", libdevice()
        if functions and not toolkit.exists():
            (toolkit / "nvvm/libdevice").mkdir(parents=True)
            (toolkit / "nvvm/libdevice" / functions.name).symlink_to(functions)
        return {"CUDA_HOME": str(toolkit)} if functions else {}

    def compile_for(self, golden, devices, *words, optimizer="sgd:lr=0.05", machine=False, code=0):
        """The plan folder, its kernels beside it; with machine code where one device has all of them, or if asked."""
        plan, ir = self.fresh(".plan"), self.fresh(".ir")
        with mock.patch.dict(os.environ, {} if machine or devices in ("1", "1x1") else self.without_ptxas()):
            process = call("pipec", golden.model, *golden.arguments(optimizer), "--gpus", devices, *words, "--quiet",
                           "--dump-ir", ir, "-o", plan)
        if process.returncode == UNAVAILABLE and "libdevice.10.bc" in process.stderr:
            self.skipTest("no libdevice")
        self.check_exit(process, code)
        if code:
            return process
        for folder in (ir, ir / "evaluation"):
            if folder.exists():
                last = sorted(folder.glob("*.mlir"))[-1]
                self.check_exit(call(EMULATE, last, self.code_of(plan)), 0)
        return plan

    @staticmethod
    def code_of(plan):
        return pathlib.Path(str(plan) + ".code")

    def run_gpu(self, plan, golden, *words, code=0, kernels=None, quiet=True, libraries=STANDIN, **settings):
        metrics = self.fresh(".jsonl")
        flags = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        environment = dict(os.environ, OMP_NUM_THREADS="1", LD_LIBRARY_PATH=str(libraries),
                           PIPEC_STANDIN_CODE=str(kernels or self.code_of(plan)))
        environment.update({"PIPEC_STANDIN_" + name.upper(): str(value) for name, value in settings.items()})
        process = subprocess.run([BIN / "pipec-run", plan, *flags, "--metrics", metrics,
                                  *(["--quiet"] if quiet else []), *map(str, words)],
                                 capture_output=True, text=True, env=environment, timeout=300)
        self.check_exit(process, code)
        return Run(process, metrics)


class Training(GpuTest):
    def check(self, name, devices, ranks, *words, index=0):
        golden = Golden(name)
        run = golden.runs[index]
        plan = self.compile_for(golden, devices, "--stages", ranks, *words, optimizer=run["optimizer"], machine=True)
        log, exported = self.fresh(".log"), self.fresh(".onnx")
        result = self.run_gpu(plan, golden, "--steps", golden.steps, "--export", exported, *golden.run_args, log=log)
        self.assertEqual(len(result.losses), len(run["losses_f64"]))
        for step, (got, want) in enumerate(zip(result.losses, run["losses_f64"]), 1):
            self.assertLessEqual(abs(got - want) / max(1e-6, abs(want)), tolerance(run),
                                 "loss of step %d is %r, PyTorch's %r" % (step, got, want))
        lines = log.read_text().splitlines()
        for rank in result.summary["ranks"]:
            self.assertEqual(rank["peak_bytes"], rank["predicted_peak_bytes"])
            self.assertIn("allocate %d" % rank["predicted_peak_bytes"], lines)
        self.assertTrue(initializers(exported))
        # Recorded once, replayed in every later step.
        self.assertEqual(lines.count("capture begins"), 1)
        # Messages go first in graphs as well.
        self.assertEqual([line for line in lines if line.startswith("graph ") and "launch" not in line],
                         ["graph with its nodes' priorities"])
        self.assertEqual(sum(line.startswith("graph launch") for line in lines), golden.steps - 1)
        return golden, plan, result

    def test_models(self):
        for name, devices, ranks in (("mlp", "1", 1), ("cnn", "1x2", 2), ("gpt", "1x2", 2)):
            with self.subTest(name, devices=devices):
                self.check(name, devices, ranks, "--strategy", "1f1b")

    def test_four_ranks(self):
        golden, plan, first = self.check("mlp", "2x2", 4, "--strategy", "1f1b")
        self.assertEqual([rank["host"] for rank in read_plan(plan)["ranks"]], [0, 0, 1, 1])
        # The same bits whatever the order in which streams run, graphs or not.
        for words, settings in (((), {"order": "random:1"}), (("--graphs", "off"), {}),
                                (("--graphs", "off"), {"order": "random:2"}), (("--graphs", "off"), {"devices": 1})):
            with self.subTest(words=words, **settings):
                again = self.run_gpu(plan, golden, "--steps", golden.steps, *words, **settings)
                self.assertEqual(again.losses, first.losses)

    def test_replicas(self):
        """Gradients are summed over replicas, and the numbers stay."""
        golden = Golden("mlp")
        losses = []
        for devices, words in (("1", ("--stages", "1")), ("1x2", ("--stages", "1"))):
            plan = self.compile_for(golden, devices, "--strategy", "1f1b", *words)
            losses.append(self.run_gpu(plan, golden, "--steps", 4).losses)
        self.assertEqual(len(read_plan(plan)["stages"][0]["ranks"]), 2)
        for one, two in zip(*losses):
            self.assertAlmostEqual(one, two, delta=1e-5 * abs(one))

    def test_clipping(self):
        golden = Golden("mlp")
        words = ("--strategy", "1f1b", "--clip-norm", "0.5", "--stages", "2")
        plan = self.compile_for(golden, "1x2", *words)
        log = self.fresh(".log")
        got = self.run_gpu(plan, golden, "--steps", 5, log=log).losses
        want = self.train(self.compile(golden.model, *golden.arguments("sgd:lr=0.05"), "--cpus", "2", *words),
                          golden.data, 5, "--transport", "inproc").losses
        for one, two in zip(got, want):
            self.assertAlmostEqual(one, two, delta=1e-5 * abs(one))
        # A step is two graphs: the host looks at the norms between them.
        self.assertEqual(log.read_text().splitlines().count("capture begins"), 2)


class OtherRuns(GpuTest):
    """What else pipec-run does with a plan."""

    def test_oracle_and_verify(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        losses = self.run_gpu(plan, golden, "--steps", 3, "--verify").losses
        self.assertEqual(self.run_gpu(plan, golden, "--steps", 3, "--oracle").losses, losses)

    def test_checkpoints(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2", optimizer="adam:lr=0.01")
        folder = self.fresh()
        whole = self.run_gpu(plan, golden, "--steps", 6).losses
        self.run_gpu(plan, golden, "--steps", 3, "--checkpoint", folder)
        self.assertEqual(self.run_gpu(plan, golden, "--steps", 6, "--resume", folder).losses, whole[3:])

    def test_evaluate(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        output = read_plan(plan / "evaluation")["outputs"][0]["name"]
        file = self.fresh(".npy")
        loss = self.run_gpu(plan, golden, "--evaluate", "--output", "%s=%s" % (output, file)).losses
        cpu = self.compile(golden.model, *golden.arguments("sgd:lr=0.05"), "--cpus", "2", "--stages", "2",
                           "--strategy", "1f1b")
        process = call("pipec-run", cpu, *[word for name, data in golden.data.items()
                                           for word in ("--data", "%s=%s" % (name, data))],
                       "--evaluate", "--metrics", self.fresh(".jsonl"), "--quiet", "--transport", "inproc", "--output",
                       "%s=%s" % (output, self.fresh(".npy")))
        self.check_exit(process, 0)
        self.assertEqual(len(loss), 1)
        self.assertTrue(file.stat().st_size > 100)

    def test_self_contained(self):
        """A plan that is made on one machine runs on another, without the model."""
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2", "--self-contained")
        want = self.run_gpu(plan, golden, "--steps", 2).losses
        sent = self.fresh(".plan")
        shutil.copytree(plan, sent)
        for file in json.loads((sent / "plan.json").read_text())["files"]:
            self.assertTrue((sent / file["relative"]).exists())
        (sent / "plan.json").write_text((sent / "plan.json").read_text().replace(str(golden.folder), "/elsewhere"))
        self.code_of(plan).rename(self.code_of(sent))
        shutil.rmtree(plan)
        self.assertEqual(self.run_gpu(sent, golden, "--steps", 2).losses, want)

    def test_profile(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        profile = self.fresh(".json")
        for graphs in ("on", "off"):
            run = self.run_gpu(plan, golden, "--steps", 4, "--profile-out", profile, "--graphs", graphs, quiet=False)
            # Times of events in the streams: of every task, and together not longer than the steps.
            stages = json.loads(profile.read_text())["stages"]
            self.assertEqual(len(stages), 2)
            for stage in stages:
                times = [stage[key] for key in ("forward_s", "backward_input_s", "backward_weight_s")]
                self.assertTrue(all(0 < seconds < 1 for seconds in times), times)
                self.assertLess(4 * sum(times), 2 * run.summary["step_s"])
            # Predicted beside measured, and what the arena does not hold.
            for row in ("step  ", "samples/s", "peak of rank 0.* equal", "context, libraries, code"):
                self.assertRegex(run.stdout, row)
            self.assertGreaterEqual(run.summary["ranks"][0]["overhead_bytes"], 32 << 20)
        self.check_exit(call("pipec", golden.model, *golden.arguments("sgd:lr=0.05"), "--gpus", "1x2", "--profile",
                             profile, "--dry-run"), 0)

    def test_call_times(self):
        """PIPEC_CALL_TIMES: of every kernel and library call, where they are queued one by one."""
        golden = Golden("cnn")
        plan = self.compile_for(golden, "1", "--strategy", "1f1b", "--stages", "1")
        for graphs in ("off", "on"):
            folder, log = self.fresh(), self.fresh(".log")
            folder.mkdir()
            with mock.patch.dict(os.environ, PIPEC_CALL_TIMES=str(folder)):
                self.run_gpu(plan, golden, "--steps", 3, "--graphs", graphs, log=log)
            rows = [line.split("\t") for line in (folder / "rank-0.tsv").read_text().splitlines()]
            self.assertEqual(rows.pop(0), ["milliseconds", "calls", "call"])
            self.assertEqual(rows, sorted(rows, key=lambda row: -float(row[0])))
            lines = log.read_text().splitlines()
            for what, word in (("kernel", "launch kernel"), ("matmul f32", "multiply")):
                found = sum(int(row[1]) for row in rows if what in row[2])
                # Of the last two of three steps, or of the first: a second is queued to be recorded.
                timed, queued = (2, 3) if graphs == "off" else (1, 2)
                self.assertEqual(found * queued, timed * sum(line.startswith(word) for line in lines))
            # Found by searches whose first offers are not run.
            self.assertRegex("\n".join(row[2] for row in rows), r"(?m)^conv dw of .*, algorithm 1, math 3$")

    @staticmethod
    def first_product(golden, is_biased):
        """The sum of the absolute values of a layer's first result."""
        tensors = initializers(golden.model)
        weights, biases = (tensors["layers.0." + name].values() for name in ("weight", "bias"))
        count = len(weights) // len(biases)
        _, shape, data = read_npy(golden.data["input"])
        rows = struct.unpack("<%df" % (4 * count), data[:16 * count])  # of four samples
        return sum(abs(sum(rows[row * count + k] * weights[to * count + k] for k in range(count)) + is_biased * biases[to])
                   for row in range(4) for to in range(len(biases)))

    def test_call_sums(self):
        """PIPEC_CALL_SUMS: of every call of the first step, the same in every order of streams."""
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        lists = []
        for words, settings in (((), {}), (("--graphs", "off"), {}), ((), {"order": "random:1"})):
            file, log = self.fresh(), self.fresh(".log")
            with mock.patch.dict(os.environ, PIPEC_CALL_SUMS=str(file)):
                self.run_gpu(plan, golden, "--steps", 2, *words, log=log, **settings)
            ranks = [[json.loads(line) for line in pathlib.Path("%s.rank%d" % (file, rank)).read_text().splitlines()]
                     for rank in (0, 1)]
            for rank, rows in enumerate(ranks):
                self.assertEqual([(row["rank"], row["call"]) for row in rows], [(rank, i) for i in range(len(rows))])
            calls = [line for line in log.read_text().splitlines()
                     if line.startswith("multiply") or line.startswith("launch kernel")]
            self.assertEqual(2 * sum(len(rows) for rows in ranks), len(calls))
            lists.append(ranks)
        products = [row for row in lists[0][0] if row["name"].startswith("matmul f32")]
        for row in products:
            self.assertTrue(abs(row["placed"]) < row["sum"] and 0 < row["length"] < row["sum"], row)
        # The first is known: the first microbatch times the first weights, with the biases where the library adds them.
        self.assertAlmostEqual(products[0]["sum"], self.first_product(golden, "+ bias" in products[0]["name"]), delta=1e-3)
        self.assertTrue(all(row["changed"] > 0 and row["sum"] > 0 for row in products), products)
        self.assertEqual(*lists[:2])
        self.assertEqual(*[[[(row["name"], row["changed"]) for row in rows] for rows in ranks]
                           for ranks in (lists[0], lists[2])])


class Processes(GpuTest):
    """A process and a GPU for each rank, connected by NCCL."""

    def plan(self):
        golden = Golden("mlp")
        return golden, self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")

    def test_nccl(self):
        golden, plan = self.plan()
        want = self.run_gpu(plan, golden, "--steps", 4).losses
        for graphs in ("on", "off"):
            log = self.fresh(".log")
            got = self.run_gpu(plan, golden, "--steps", 4, "--transport", "nccl", "--graphs", graphs, log=log).losses
            self.assertEqual(got, want)
            lines = log.read_text().splitlines()
            self.assertEqual(lines.count("communicator of 2"), 2)
            self.assertEqual(lines.count("capture begins"), 2 if graphs == "on" else 0)
            self.assertEqual((lines.count("destroy communicator"), lines.count("abort communicator")), (2, 0))

    def test_too_few_devices(self):
        golden, plan = self.plan()
        run = self.run_gpu(plan, golden, "--steps", 1, "--transport", "nccl", code=UNAVAILABLE, devices=1)
        self.assertIn("ranks 0 and 1 have the same GPU", run.stderr)

    def test_one_gpu_for_tests(self):
        """PIPEC_NCCL_ONE_GPU: whether ranks may share a GPU is NCCL's to say."""
        golden, plan = self.plan()
        words = ("--steps", 2, "--transport", "nccl")
        want = self.run_gpu(plan, golden, *words).losses
        with mock.patch.dict(os.environ, PIPEC_NCCL_ONE_GPU="1"):
            run = self.run_gpu(plan, golden, *words, code=UNAVAILABLE, devices=1)
            self.assertIn("ncclCommInitRank returned 5", run.stderr)
            with mock.patch.dict(os.environ, NCCL_HOSTID="another"):
                self.assertEqual(self.run_gpu(plan, golden, *words, devices=1).losses, want)

    def test_nccl_is_for_gpus(self):
        golden = Golden("mlp")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", "1")
        run = self.train(plan, golden.data, 1, "--transport", "nccl", code=USAGE)
        self.assertIn("--transport nccl connects GPUs", run.stderr)

    def test_a_dead_peer(self):
        golden, plan = self.plan()
        metrics = self.fresh(".jsonl")
        flags = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        environment = dict(os.environ, OMP_NUM_THREADS="1", LD_LIBRARY_PATH=str(STANDIN),
                           PIPEC_STANDIN_CODE=str(self.code_of(plan)))
        job = subprocess.Popen([BIN / "pipec-run", plan, *flags, "--steps", "100000", "--transport", "nccl", "--quiet",
                                "--timeout", "20", "--metrics", metrics], env=environment, stderr=subprocess.PIPE,
                               text=True)
        self.addCleanup(job.kill)
        until = time.monotonic() + 120
        while time.monotonic() < until and not (metrics.exists() and metrics.read_text().count("\n") > 3):
            time.sleep(0.1)
        victims = [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/environ")
                   if self.is_rank(path, str(plan), 1)]
        self.assertEqual(len(victims), 1)
        os.kill(victims[0], signal.SIGKILL)
        _, errors = job.communicate(timeout=60)
        self.assertEqual(job.returncode, PEER_LOST, errors)
        self.assertIn("rank 1", errors)

    @staticmethod
    def is_rank(environ, plan, rank):
        try:
            command = (environ.parent / "cmdline").read_bytes().split(b"\0")
            return (command[0].endswith(b"pipec-run") and plan.encode() in command and
                    b"OMPI_COMM_WORLD_RANK=%d" % rank in environ.read_bytes().split(b"\0"))
        except OSError:  # gone meanwhile
            return False


class Refusals(GpuTest):
    def test_what_is_missing(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1", "--strategy", "1f1b", "--stages", "1")
        for part, code, settings in (("the driver sees none", UNAVAILABLE, {"devices": 0}),
                                     ("cuInit says CUDA_ERROR_NO_DEVICE", UNAVAILABLE, {"devices": -1}),
                                     ("the driver is of CUDA 11.4, 12.0 is needed", UNAVAILABLE, {"driver": 11040}),
                                     ("does not take its code", UNAVAILABLE, {"kernels": "/nowhere"}),
                                     ("free; compile with more stages", NO_FIT, {"memory": 140000})):
            with self.subTest(part):
                self.assertIn(part, self.run_gpu(plan, golden, "--steps", 1, code=code, **settings).stderr)
        # What it says of either.
        run = self.run_gpu(plan, golden, "--steps", 1, code=UNAVAILABLE, kernels="/nowhere")
        self.assertRegex(run.stderr, r"CUDA_ERROR_INVALID_IMAGE \(a text\): ptxas fatal: an old image in PTX, "
                                     r"CUDA_ERROR_INVALID_IMAGE \(a text\): ptxas fatal: an old image in machine code")
        if ctypes.util.find_library("cuda"):
            return
        process = call("pipec-run", plan, *[word for name, data in golden.data.items()
                                            for word in ("--data", "%s=%s" % (name, data))], "--steps", 1)
        self.check_exit(process, UNAVAILABLE)
        self.assertIn("libcuda.so.1 cannot be opened", process.stderr)
        self.assertIn("install NVIDIA's driver", process.stderr)

    def test_code(self):
        """Machine code, else PTX, with a note; PTX where it is asked for."""
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1", "--strategy", "1f1b", "--stages", "1")
        usual = self.run_gpu(plan, golden, "--steps", 2)
        old = self.run_gpu(plan, golden, "--steps", 2, cubin=0)
        with mock.patch.dict(os.environ, PIPEC_GPU_CODE="ptx"):
            log = self.fresh(".log")
            asked = self.run_gpu(plan, golden, "--steps", 2, log=log)
        self.assertEqual([line for line in log.read_text().splitlines() if line.startswith("load")], ["load ptx"])
        self.assertEqual([run.summary["code"] for run in (usual, old, asked)], ["cubin", "ptx", "ptx"])
        self.assertEqual([run.losses for run in (old, asked)], [usual.losses] * 2)
        for run in (usual, asked):
            self.assertNotIn("PTX", run.stderr)
        self.assertIn("runs what the driver makes of PTX: of the machine code in", old.stderr)
        self.assertIn("ptxas fatal: an old image", old.stderr)

    def test_libraries(self):
        """Each is named when it is not there."""
        golden = Golden("cnn")
        plan = self.compile_for(golden, "1", "--strategy", "1f1b", "--stages", "1")
        alone = self.fresh()
        alone.mkdir()
        (alone / "libcuda.so.1").symlink_to(STANDIN / "libcuda.so.1")
        # Where NVIDIA's own are installed they are opened, and find no GPU.
        for more, part in ((None, "(?i)cudnn"), ("libcudnn.so.9", "(?i)cublaslt")):
            if more:
                (alone / more).symlink_to(STANDIN / more)
            environment = dict(os.environ, LD_LIBRARY_PATH=str(alone), PIPEC_STANDIN_CODE=str(self.code_of(plan)))
            flags = [word for name, data in golden.data.items() for word in ("--data", "%s=%s" % (name, data))]
            process = subprocess.run([BIN / "pipec-run", plan, *flags, "--steps", "1"], capture_output=True, text=True,
                                     env=environment)
            self.check_exit(process, UNAVAILABLE)
            self.assertRegex(process.stderr, part + ".* (cannot be opened|has failed)")

    def test_no_nccl(self):
        """Only ranks that are processes need it."""
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        folder = self.fresh()
        folder.mkdir()
        for name in ("libcuda.so.1", "libcublasLt.so.13", "libcudnn.so.9"):
            (folder / name).symlink_to(STANDIN / name)
        (folder / "libnccl.so.2").write_text("no library, also where NVIDIA's own is installed")
        self.run_gpu(plan, golden, "--steps", 1, libraries=folder)
        run = self.run_gpu(plan, golden, "--steps", 1, "--transport", "nccl", libraries=folder, code=UNAVAILABLE)
        self.assertIn("libnccl.so.2 cannot be opened", run.stderr)
        self.assertIn("or run all ranks in one process: --transport inproc", run.stderr)

    def test_nan(self):
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2", optimizer="sgd:lr=1e30")
        run = self.run_gpu(plan, golden, "--steps", 20, code=BAD_NUMBERS)
        self.assertIn("try a smaller learning rate", run.stderr)


if __name__ == "__main__":
    unittest.main()
