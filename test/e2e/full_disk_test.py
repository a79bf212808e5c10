"""A full disk: exit 73 says what could not be written, why and what to do; nothing is left, and nothing saved is lost."""
import os
import shutil
import subprocess
import unittest

from pipeline import BIN, CANNOT_WRITE, SOURCE, Golden, PipelineTest, call

WHY = "No space left on device; free some space there, or choose another place\n"


@unittest.skipUnless(os.geteuid() == 0 and shutil.which("mount"), "mounting a small disk needs to be root")
class FullDiskTest(PipelineTest):
    def mount(self, size):
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + size, "tmpfs", str(self.disk)],
                                 capture_output=True)
        if mounted.returncode:
            self.skipTest("no small disk can be mounted here")
        self.addCleanup(subprocess.run, ["umount", str(self.disk)])

    def check_refused(self, process, who, file):
        self.check_exit(process, CANNOT_WRITE)
        self.assertEqual(process.stderr, "%s: error: %scannot write %s: %s" % (*who, file, WHY))
        self.assertEqual(list(self.disk.iterdir()), [])

    def test_outputs_of_a_pass(self):
        self.mount("64k")
        golden = Golden("gpt")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--stages", 2)
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        file = self.disk / "logits.npy"
        for transport in ("inproc", "mpi", "mpi", "mpi"):
            process = call("pipec-run", plan, *data, "--evaluate", "--transport", transport, "--output",
                           "%s=%s" % (golden.logits["name"], file))
            self.check_refused(process, ("pipec-run", "rank 0 (stage 0): "), file)

    def test_a_plan_with_its_weights(self):
        self.mount("1m")
        source = SOURCE / "examples" / "gpt2" / "model.onnx"  # of 3.6 MB
        words = [source, "--dim", "batch=1", "--cpus", 1, "--loss", "next-token", "--quiet", "--self-contained", "-o"]
        plan = self.fresh(".plan")
        self.check_exit(call("pipec", *words, plan), 0)
        self.assertEqual((plan / "model" / "model.onnx").read_bytes(), source.read_bytes())
        plan = self.disk / "gpt.plan"
        self.check_refused(call("pipec", *words, plan), ("pipec", ""), plan / "model" / "model.onnx")


@unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full here")
class FullOutputTest(PipelineTest):
    def check_refused(self, program, *arguments):
        with open("/dev/full", "w") as full:
            process = subprocess.run([str(BIN / program), *map(str, arguments)], stdout=full, stderr=subprocess.PIPE,
                                     stdin=subprocess.DEVNULL, text=True, timeout=300)
        self.assertEqual(process.returncode, CANNOT_WRITE, (arguments, process.stderr))
        self.assertIn('"cause": "cannot write to standard output"' if "json" in arguments else
                      program + ": error: cannot write to standard output; where it goes to a file, free "
                      "some space there or choose another place\n", process.stderr)

    def test_results_that_cannot_be_printed(self):
        golden = Golden("mlp")
        words = [golden.model, *golden.arguments(), "--cpus", 2, "--stages", 2]
        plan = self.compile(*words)
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        for arguments in (["--help"], ["--version"], ["list", "ops"], ["list", "--format", "json", "devices"],
                          ["schedule", "1f1b", "--stages", 2, "--microbatches", 4], ["inspect", plan],
                          [*words, "--dry-run"], [*words, "--dry-run", "--format", "json"],
                          [*words, "--emit", "nn"], [*words, "--emit", "llvm"], [*words, "-o", self.fresh(".plan")]):
            self.check_refused("pipec", *arguments)
        run = [plan, *data, "--steps", 1]
        for arguments in (["--help"], ["--version"], [*run, "--oracle"], [*run, "--format", "json"],
                          [*run, "--transport", "inproc"], [*run, "--transport", "mpi"]):
            self.check_refused("pipec-run", *arguments)
        process = call("pipec", "list", "nothing")  # errors have their own codes
        self.assertNotIn(process.returncode, (0, CANNOT_WRITE))


if __name__ == "__main__":
    unittest.main()
