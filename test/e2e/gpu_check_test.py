"""tools/gpu-check.sh, what it packs and how it judges, on stand-ins of NVIDIA's libraries."""
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import unittest
import zipfile
from unittest import mock

from gpu_test import EMULATE, STANDIN, GpuTest
from pipeline import BIN, MODELS, Golden

# Of a stage and of the helpers: libraries have races that they mean.
KERNELS = "regex=^(kernel[0-9]+|pipec_[a-z]+)$"


class Carried(GpuTest):
    """tools/gpu-check.sh: packed here, run where there is nothing else."""

    def test_pack_and_run(self):
        self.compile_for(Golden("gpt"), "1")  # skips this where no GPU code can be made
        sys.path.insert(0, str(MODELS.parent / "bench"))
        import gpu_check
        import gpu_pack
        import gpu_timed
        target, out = self.fresh(), self.fresh()
        target.mkdir(), out.mkdir()
        small = dict(layers=1, width=32, heads=2, length=64, vocabulary=64)
        with mock.patch.multiple(gpu_pack, MODELS=("mlp",), CASES=((1, "1f1b"), (2, "gpipe")),
                                 ORACLE=(("mlp", 2, 1, "1f1b", None), ("mlp", 2, 2, "pipedream", 1))), \
                mock.patch.multiple(gpu_timed, IMAGES=0, GPT2=small), mock.patch.object(gpu_check, "STEPS", 5), \
                mock.patch.dict(os.environ, PIPEC_EMULATE=str(EMULATE)):
            gpu_pack.pack(target, MODELS.parents[1], BIN.parent, None)
            self.judge(gpu_check, target, out)

    def test_strategies_are_those_of_the_list(self):
        sys.path.insert(0, str(MODELS.parent / "bench"))
        import gpu_pack
        golden = Golden("gpt")
        every = dict(gpu_pack.every_strategy(BIN.parent, golden, golden.runs[0], 1e-4))
        self.assertGreater(len(every), 15)
        self.assertFalse({"auto", "file:S.csv", "pipedream", "1f1b"} & set(every))
        self.assertEqual(every["zb-v"]["like"], "gptfp32")
        self.assertEqual(every["chimera"]["like"], "gptchimera")

    def programs_of_a_gpu(self, sanitizer):
        """A folder of programs that machines with GPUs have: nvidia-smi, and a compute-sanitizer that runs what it is given
        and leaves its own words."""
        folder = self.fresh()
        folder.mkdir()
        for name, text in (("nvidia-smi", "echo NVIDIA H200, 570.86, 143771 MiB"),
                           ("compute-sanitizer", 'log=$4; : >"$log"; while [ "${1#/}" = "$1" ] || [ "$1" = "$log" ]; do '
                            'echo "$1" >>"$log"; shift; done; ' + sanitizer)):
            (folder / name).write_text("#!/bin/sh\n%s\n" % text)
            (folder / name).chmod(0o755)
        return mock.patch.dict(os.environ, PATH="%s:%s" % (folder, os.environ["PATH"]))

    def sanitizers(self, gpu_check, check):
        """How it is called, and that what it finds is told."""
        self.assertEqual(check.results["sanitizer"], dict.fromkeys(("%s of mlp-1-1f1b-fp32" % tool for tool in (
            "memcheck", "racecheck")), True))
        for tool, more in (("memcheck", []), ("racecheck", ["--kernel-name", KERNELS])):
            log = check.out / ("sanitizer-%s-mlp-1-1f1b-fp32.txt" % tool)
            self.assertEqual(log.read_text().splitlines(), ["--tool", tool, "--log-file", str(log), "--error-exitcode", "99",
                                                            "--report-api-errors", "no", *more])
        self.assertIn("NVIDIA H200", (check.out / "machine.txt").read_text())
        found = gpu_check.Check(check.target, check.out, STANDIN, 5)
        said = []
        found.say = said.append
        case = json.loads((check.target / "cases.json").read_text())["cases"][0]
        with self.programs_of_a_gpu("exit 99"):
            self.assertEqual(gpu_check.device_name(), "NVIDIA H200, 570.86, 143771 MiB")
            found.sanitizer("memcheck", case)
        self.assertEqual(len(found.wrong), 1)
        self.assertIn("exit 99", found.wrong[0])
        self.assertIn("see sanitizer-memcheck-mlp-1-1f1b-fp32.txt", said[-1])
        with self.programs_of_a_gpu("echo 'Internal Sanitizer Error: no' >&2; exit 99"):
            found.sanitizer("racecheck", case)
        self.assertEqual(len(found.wrong), 1)
        self.assertIn("it fails itself", said[-1])
        # A step that takes as long as the device's products alone.
        found.results["device"] = "NVIDIA H200, 570.86, 143771 MiB"
        found.row("gpt2", 65536 * gpu_check.TOKEN_FLOPS / 989.4e12, 65536, gpu_check.TOKEN_FLOPS, "bf16")
        self.assertIn("MFU 100.0 %", said[-1])

    def judge(self, gpu_check, target, out):
        (target / "bin").mkdir()
        shutil.copy(BIN / "pipec-run", target / "bin")
        self.old_system(gpu_check, target)
        self.packed_sanitizer(gpu_check, target)
        self.libraries_that_are_opened()
        packed = json.loads((target / "cases.json").read_text())
        self.assertEqual(len(packed["cases"]), 4)
        self.assertEqual(len(packed["oracles"]), 2)
        self.assertEqual([times["model"] for times in packed["times"]], ["gpt2"])
        self.assertEqual(packed["times"][0]["plans"], [["bf16", 1], ["bf16", 2], ["fp32", 1], ["fp32", 2]])
        for file in ("gpu_check.py", "gpu_torch.py", "gpu_nccl.py"):
            self.assertTrue((target / file).exists(), file)
        sums = sorted(path.name for path in (target / "sums").iterdir())
        self.assertEqual(sums, ["mlp-1-1f1b-bf16.jsonl", "mlp-1-1f1b-fp32.jsonl"])
        check = gpu_check.Check(target, out, STANDIN, 20)
        check.say = lambda text: None
        with self.programs_of_a_gpu('exec "$@"'):
            self.assertEqual(check.all(), 0, check.wrong)
        ours = [name for name in check.results["times"] if "pipec" in name]
        self.assertEqual(len(ours), 10)  # of one rank also without epilogues
        theirs = ["gpt2 %s PyTorch %s" % how for how in (("bf16", "eager"), ("bf16", "compile"), ("fp32", "eager"),
                                                         ("fp32", "compile"))]
        if importlib.util.find_spec("torch"):
            self.assertEqual([name for name in check.results["times"] if name not in ours], theirs)
        else:
            self.assertEqual(len(check.results["torch"]), 4)
        for file in ("gpt2-fp32-1-trace.json", "gpt2-fp32-2-profile.json", "gpt2-fp32-2/rank-1.tsv"):
            self.assertTrue((out / file).exists(), file)
        self.sanitizers(gpu_check, check)
        for file in ("results.json", "machine.txt"):
            self.assertTrue((out / file).exists())
        self.assertEqual(set(check.results["nccl"].values()), {True})
        # What NCCL does not support says nothing, whatever comes of it.
        self.assertIn("NCCL between two processes on one device", check.results["tries"])
        self.environments(gpu_check, target, out)
        self.assertIsNone(check.torch("no model", "fp32", False))
        self.assertIn("Error", check.results["torch"]["no model fp32 False"])
        self.failures(gpu_check, target)
        self.a_kernel_that_does_nothing(gpu_check, target, packed["cases"][0])
        # What differs is said.
        packed["cases"][0]["losses"][1] *= 1.01
        (target / "cases.json").write_text(json.dumps(packed))
        self.assertEqual(check.all(), 1)
        self.assertIn("from PyTorch's", check.wrong[0])

    def environments(self, gpu_check, target, out):
        """What pipec-run needs is not put upon programs of the machine, and what is there twice is there once."""
        with mock.patch.dict(os.environ, GPU_CHECK_LIBRARIES="/nvidia", LD_LIBRARY_PATH="/own"):
            check = gpu_check.Check(target, out, None, 1)
        check.say = lambda text: None
        with mock.patch.object(subprocess, "Popen", side_effect=OSError("nothing runs")) as run:
            self.assertRaises(OSError, check.torch, "gpt2", "fp32", False)
            self.assertIsNone(run.call_args.kwargs["env"])
            self.assertRaises(OSError, check.run, target / "plans" / "mlp-1-1f1b-fp32", [], target, 1)
            self.assertEqual(run.call_args.kwargs["env"]["LD_LIBRARY_PATH"], "%s/lib:/nvidia:/own" % target)
        models = [target / "plans" / name / "model/model.onnx" for name in ("mlp-1-1f1b-fp32", "mlp-1-1f1b-bf16")]
        self.assertTrue(models[0].samefile(models[1]))

    def old_system(self, gpu_check, target):
        """What does not start by itself starts with the C library that was packed."""
        program = target / "bin/pipec-run"
        self.assertEqual(gpu_check.Check(target, self.folder, STANDIN, 1).program, [program])
        self.check_exit(subprocess.run(["bash", "-c", 'eval "$(sed -n "/^c_library()/,/^}/p" "$0")"; c_library "$1" "$2"',
                                        MODELS.parents[1] / "tools/gpu-check.sh", program, target / "libc"]), 0)
        program.chmod(0o644)
        words = gpu_check.Check(target, self.folder, STANDIN, 1).program
        self.assertEqual(words[-1], program)
        self.check_exit(subprocess.run([*words, "--help"], capture_output=True, text=True), 0)
        program.chmod(0o755)

    def packed_sanitizer(self, gpu_check, target):
        """What tools/gpu-check.sh makes of NVIDIA's wheel is found, where there is no other; it is asked for."""
        script = ('set -euo pipefail; '
                  'for name in libraries c_library python3 cp xargs tar du; do eval "$name() { :; }"; done; '
                  'sanitizer() { echo "sanitizer for $1"; }; here=/nowhere/tools; eval "$(sed -n "/^pack()/,/^}/p" "$0")"; '
                  'pack "$@"')
        folder = self.fresh()
        for words, said in (([folder], ""), (["--sanitizer", folder, "goldens"], "sanitizer for %s\n" % folder)):
            process = subprocess.run(["bash", "-c", script, MODELS.parents[1] / "tools/gpu-check.sh", *words],
                                     capture_output=True, text=True)
            self.check_exit(process, 0)
            self.assertEqual(process.stdout, said)
        wheel = self.folder / "sanitizer.whl"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr("nvidia/cu13/bin/compute-sanitizer", "#!/bin/sh\n")
            file.writestr("nvidia/cu13/include/sanitizer.h", "")
        script = ('set -euo pipefail; wheel=$1 real=$(command -v python3); '
                  'python3() { if [[ $2 == pip ]]; then mkdir -p "$7"; cp "$wheel" "$7"; else "$real" "$@"; fi; }; '
                  'eval "$(sed -n "/^sanitizer()/,/^}/p" "$0")"; sanitizer "$2"')
        self.check_exit(subprocess.run(["bash", "-c", script, MODELS.parents[1] / "tools/gpu-check.sh", wheel, target],
                                       capture_output=True, text=True), 0)
        with mock.patch.object(gpu_check.shutil, "which", lambda path: path if str(target) in path and os.access(
                path, os.X_OK) else None):
            found, ours = (gpu_check.Check(target, self.folder, libraries, 1).sanitizer_program() for libraries in (
                None, STANDIN))
        self.assertIsNone(ours)  # on a stand-in it would find nothing to run on
        self.assertEqual(found, str(target / "sanitizer/nvidia/cu13/bin/compute-sanitizer"))
        self.assertFalse((target / "sanitizer/nvidia/cu13/include").exists())

    def libraries_that_are_opened(self):
        """Of what wheels and toolkits have alike the first is read ahead, and nothing twice."""
        folder = self.fresh()
        for name in ("a/libcublas.so.13", "a/libcudnn.so.9", "a/libcudart.so.13", "b/libcublas.so.13.0.2",
                     "b/libcublasLt.so.13.0", "b/libcublas.so.12.4", "b/libnccl.so.2.27.3", "b/libcublas_static.a"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
        (folder / "b/libcublasLt.so.13").symlink_to("libcublasLt.so.13.0")
        script = 'set -euo pipefail; eval "$(sed -n "/^opened()/,/^}/p" "$0")"; opened "$1"'
        all_ = ["a/libcublas.so.13", "a/libcudnn.so.9", "b/libcublas.so.12.4", "b/libcublasLt.so.13.0", "b/libnccl.so.2.27.3"]
        for folders, wanted in (("%s/a:%s/b:%s/c" % ((folder,) * 3), all_), ("", [])):
            process = subprocess.run(["bash", "-c", script, MODELS.parents[1] / "tools/gpu-check.sh", folders],
                                     capture_output=True, text=True)
            self.check_exit(process, 0)
            self.assertEqual(sorted(process.stdout.split()), sorted(str(folder / name) for name in wanted))

    def a_kernel_that_does_nothing(self, gpu_check, target, case):
        """Of a model whose numbers are wrong the call that makes them so is the first that is not as emulated."""
        rows = [json.loads(line) for line in (target / "sums" / (case["name"] + ".jsonl")).read_text().splitlines()]
        wrong = next(row for row in rows if " kernel" in row["name"] and row["sum"])
        out = self.fresh()
        out.mkdir()
        check = gpu_check.Check(target, out, STANDIN, 20)
        said = []
        check.say = said.append
        with mock.patch.dict(os.environ, PIPEC_STANDIN_IDLE=wrong["name"].split()[1]):
            check.losses(case, {})
        self.assertTrue(check.wrong)
        found = check.results["first calls that differ"][case["name"]]
        self.assertTrue(found[0].startswith("rank 0, call %d of " % wrong["call"]), found)
        self.assertIn(wrong["name"], found[0])
        self.assertIn("    differs from the emulation: " + found[0], said)

    def failures(self, gpu_check, target):
        """One step stops no other; another way that works is found; what there is no time for is listed."""
        def check(minutes=20, **environment):
            out = self.fresh()
            out.mkdir()
            check = gpu_check.Check(target, out, STANDIN, minutes)
            said = []
            check.say = said.append
            with mock.patch.dict(os.environ, environment):
                code = check.all()
            self.assertEqual(json.loads((out / "results.json").read_text()), json.loads(json.dumps(check.results)))
            return code, check, said
        code, failed, said = check(PIPEC_STANDIN_CAPTURE="0")
        self.assertEqual(code, 1)
        self.assertEqual(len(failed.wrong), 2)
        for wrong in failed.wrong:  # also what NCCL does alone
            self.assertIn("cuStreamBeginCapture", wrong)
        self.assertEqual(failed.diagnoses, 1)
        # What works is how all the others run, and that one once more.
        self.assertEqual(failed.results["way"], (["--graphs", "off"], {}))
        self.assertEqual(len(failed.results["losses"]), 4)
        self.assertEqual([name for name in failed.results["times"] if "pipec" in name and "off" not in name], [])
        for found in failed.results["diagnoses"].values():
            self.assertTrue(found["--graphs off"])
            self.assertFalse(any(map(found.get, ("PIPEC_GPU_CODE=ptx", "CUDA_MODULE_LOADING=EAGER"))))
        self.assertIn("    with --graphs off it is right (once): recording a step is at fault: docs/gpu.md, 'capture'", said)
        self.assertTrue(list((failed.out / "logs").glob("1-*.txt")))
        with mock.patch.object(gpu_check.Check, "oracle", side_effect=KeyError("broken")):
            code, failed, _ = check()
        self.assertEqual(code, 1)
        self.assertEqual(len(failed.wrong), 2)
        self.assertIn("KeyError: 'broken'", failed.wrong[0])
        self.assertEqual(len(failed.results["losses"]), 4)
        code, failed, said = check(minutes=0.1)
        self.assertEqual(len(failed.results["left out"]), 32)
        told = next(text for text in said if text.startswith("left out"))
        for name in ("memcheck of mlp-1-1f1b-fp32", "gpt2 bf16 PyTorch eager", "NCCL with itself"):
            self.assertIn("\n  " + name, told)
        # Another call does some of them, and compares with what the first has found.
        failed.results.update({"left out": ["mlp-2-gpipe-fp32", "mlp-2-2-pipedream-oracle"], "references": {"mlpfp32": [1.0]}})
        again = gpu_check.Check(target, failed.out, STANDIN, 20)
        again.say = lambda text: None
        self.assertEqual(again.all(None, failed.results), 1)
        self.assertEqual(set(again.results["seconds"]), {"machine", "mlp-2-gpipe-fp32", "mlp-2-2-pipedream-oracle"})
        self.assertEqual(len(again.wrong), 1)
        self.assertIn("other bits than the first of its kind", again.wrong[0])

    def test_torch(self):
        """The models that are timed beside ours, tiny and on the processor."""
        if not importlib.util.find_spec("torch"):
            self.skipTest("no PyTorch")
        shape = dict(layers=1, width=32, heads=2, length=16, vocabulary=64)
        for model, precision in (("gpt2", "fp32"), ("gpt2", "bf16"), ("resnet", "fp32"), ("resnet", "bf16")):
            for compiled in (False, True) if model == "gpt2" else (False,):
                how = {"model": model, "shape": shape, "size": 2, "count": 2, "precision": precision, "compiled": compiled,
                       "seconds": 200, "device": "cpu", "pixels": 32}
                process = subprocess.run([sys.executable, MODELS.parent / "bench/gpu_torch.py", json.dumps(how)],
                                         capture_output=True, text=True, timeout=300)
                self.check_exit(process, 0)
                self.assertGreater(json.loads(process.stdout.splitlines()[-1]), 0)


if __name__ == "__main__":
    unittest.main()
