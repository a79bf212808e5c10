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


class Carried(GpuTest):
    """tools/gpu-check.sh: packed here, run where there is nothing else."""

    def test_pack_and_run(self):
        self.compile_for(Golden("gpt"), "1")  # skips this where no GPU code can be made
        sys.path.insert(0, str(MODELS.parent / "bench"))
        import gpu_check
        target, out = self.fresh(), self.fresh()
        out.mkdir()
        with mock.patch.multiple(gpu_check, MODELS=("mlp",), CASES=((1, "1f1b"), (2, "gpipe")), IMAGES=0,
                                 ORACLE=(("mlp", 2, 1, "1f1b", None), ("mlp", 2, 2, "pipedream", 1)), GPT2=dict(layers=1, width=32, heads=2, length=64, vocabulary=64), STEPS=5), \
                mock.patch.dict(os.environ, PIPEC_EMULATE=str(EMULATE)):
            gpu_check.pack(target, MODELS.parents[1], BIN.parent, None)
            self.judge(gpu_check, target, out)

    def programs_of_a_gpu(self, sanitizer):
        """A folder of programs that machines with GPUs have: nvidia-smi, and a compute-sanitizer that runs what it is given
        and leaves its own words."""
        folder = self.fresh()
        folder.mkdir()
        for name, text in (("nvidia-smi", "echo NVIDIA H200, 570.86, 143771 MiB"),
                           ("compute-sanitizer", 'words="$1 $2 $3 $5 $6"; echo "$words" >"$4"; shift 6; ' + sanitizer)):
            (folder / name).write_text("#!/bin/sh\n%s\n" % text)
            (folder / name).chmod(0o755)
        return mock.patch.dict(os.environ, PATH="%s:%s" % (folder, os.environ["PATH"]))

    def sanitizers(self, gpu_check, check):
        """How it is called, and that what it finds is told."""
        tools = ["memcheck of mlp-1-1f1b-fp32", "racecheck of mlp-1-1f1b-fp32", "memcheck of mlp-1-1f1b-bf16"]
        self.assertEqual(check.results["sanitizer"], dict.fromkeys(tools, True))
        self.assertEqual((check.out / "sanitizer-racecheck-mlp-1-1f1b-fp32.txt").read_text(),
                         "--tool racecheck --log-file --error-exitcode 99\n")
        self.assertIn("NVIDIA H200", (check.out / "machine.txt").read_text())
        found = gpu_check.Check(check.target, check.out, STANDIN, 5)
        said = []
        found.say = said.append
        case = json.loads((check.target / "cases.json").read_text())["cases"][0]
        with self.programs_of_a_gpu("exit 99"):
            self.assertEqual(gpu_check.device_name(), "NVIDIA H200, 570.86, 143771 MiB")
            found.sanitizer(case, ["memcheck"])
        self.assertEqual(len(found.wrong), 1)
        self.assertIn("exit 99", found.wrong[0])
        self.assertIn("see sanitizer-memcheck-mlp-1-1f1b-fp32.txt", said[-1])
        # A step that takes as long as the device's products alone.
        found.results["device"] = "NVIDIA H200, 570.86, 143771 MiB"
        found.row("gpt2", 65536 * gpu_check.TOKEN_FLOPS / 989.4e12, 65536, gpu_check.TOKEN_FLOPS, "bf16")
        self.assertIn("MFU 100.0 %", said[-1])

    def judge(self, gpu_check, target, out):
        (target / "bin").mkdir()
        shutil.copy(BIN / "pipec-run", target / "bin")
        self.old_system(gpu_check, target)
        self.packed_sanitizer(gpu_check, target)
        packed = json.loads((target / "cases.json").read_text())
        self.assertEqual(len(packed["cases"]), 4)
        self.assertEqual(len(packed["oracles"]), 2)
        self.assertEqual([times["model"] for times in packed["times"]], ["gpt2"])
        self.assertEqual(packed["times"][0]["plans"], [["bf16", 1], ["bf16", 2], ["fp32", 1], ["fp32", 2]])
        # PyTorch is a process of its own, which may end as it likes.
        shutil.copy(MODELS.parent / "bench/gpu_torch.py", target)
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
        self.environments(gpu_check, target, out)
        self.assertIsNone(check.torch("no model", "fp32", False))
        self.assertIn("Error", check.results["torch"]["no model fp32 False"])
        self.failures(gpu_check, target)
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
        with mock.patch.object(gpu_check.subprocess, "run", side_effect=subprocess.TimeoutExpired("", 1)) as run:
            check.torch("gpt2", "fp32", False)
            self.assertNotIn("env", run.call_args.kwargs)
            check.run(target / "plans" / "mlp-1-1f1b-fp32", [], target, 1)
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
        """What tools/gpu-check.sh makes of NVIDIA's wheel is found, where there is no other."""
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
        self.assertEqual(len(failed.wrong), 1)
        self.assertIn("cuStreamBeginCapture", failed.wrong[0])
        self.assertEqual(failed.diagnoses, 1)
        # What works is how all the others run, and that one once more.
        self.assertEqual(failed.results["way"], (["--graphs", "off"], {}))
        self.assertEqual(len(failed.results["losses"]), 4)
        self.assertEqual([name for name in failed.results["times"] if "pipec" in name and "off" not in name], [])
        for found in failed.results["diagnoses"].values():
            self.assertTrue(found["--graphs off"])
            self.assertFalse(any(map(found.get, ("CUDA_FORCE_PTX_JIT=1", "CUDA_MODULE_LOADING=EAGER"))))
        self.assertIn("    with --graphs off it is right: recording a step is at fault: docs/gpu.md, 'capture'", said)
        self.assertTrue(list((failed.out / "logs").glob("1-*.txt")))
        with mock.patch.object(gpu_check.Check, "oracle", side_effect=KeyError("broken")):
            code, failed, _ = check()
        self.assertEqual(code, 1)
        self.assertEqual(len(failed.wrong), 2)
        self.assertIn("KeyError: 'broken'", failed.wrong[0])
        self.assertEqual(len(failed.results["losses"]), 4)
        code, failed, said = check(minutes=0.1)
        self.assertEqual(len(failed.results["left out"]), 9)
        self.assertIn("left out, there was no time: sanitizer of mlp-1-1f1b-fp32", said)

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
