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
        if os.sysconf("SC_PAGESIZE") > 4096:
            self.skipTest("the smallest disk here is a page of more than 4 KiB")

    def check_refused(self, process, who, file):
        self.check_exit(process, CANNOT_WRITE)
        self.assertEqual(process.stderr, "%s: error: %scannot write %s: %s" % (*who, file, WHY))
        self.assertEqual(list(self.disk.iterdir()), [])

    def test_outputs_of_a_pass(self):
        self.mount("64k")
        golden = Golden("gpt")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--strategy", "1f1b")
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        file = self.disk / "logits.npy"
        for transport in ("inproc", "mpi", "mpi", "mpi"):
            process = call("pipec-run", plan, *data, "--evaluate", "--transport", transport, "--output",
                           "%s=%s" % (golden.logits["name"], file))
            self.check_refused(process, ("pipec-run", "rank 0 (stage 0): "), file)

    def test_what_a_training_writes(self):
        """Also where a checkpoint or the timeline does not fit any more: one error, and nothing half-written."""
        self.mount("8k")
        golden = Golden("gpt")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--strategy", "1f1b")
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        for transport in ("inproc", "mpi"):
            for option, name in (("--checkpoint", "saved"), ("--trace", "t.json"), ("--export", "m.onnx")):
                process = call("pipec-run", plan, *data, "--steps", 4, "--transport", transport, option, self.disk / name)
                self.check_exit(process, CANNOT_WRITE)
                self.assertRegex(process.stderr, r"^pipec-run: error: (rank \d \(stage \d\): )?cannot write %s\S*: %s$" %
                                 (self.disk / name, WHY))
                self.assertEqual([path for path in self.disk.rglob("*") if not path.is_dir()], [])

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

    def test_every_file_of_a_run(self):
        golden = Golden("gpt")
        words = [golden.model, *golden.arguments(), "--cpus", 2, "--strategy", "1f1b"]
        plan = self.compile(*words)
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        why = "cannot write /dev/full: " + WHY
        for transport in ("inproc", "mpi"):
            for option in ("--metrics", "--trace", "--profile-out", "--export"):
                process = call("pipec-run", plan, *data, "--steps", 1, "--transport", transport, option, "/dev/full")
                self.check_exit(process, CANNOT_WRITE)
                self.assertRegex(process.stderr, "^pipec-run: error: (rank 0 .stage 0.: )?%s$" % why)
            process = call("pipec-run", plan, *data, "--steps", 1, "--transport", transport, "--checkpoint", "/dev/full")
            self.check_exit(process, CANNOT_WRITE)
            self.assertEqual(process.stderr, "pipec-run: error: cannot write /dev/full: Not a directory; choose another "
                             "place\n")
        order = ["schedule", "1f1b", "--stages", 2, "--microbatches", 4]
        for command in ([*words, "--dry-run", "--dot", "/dev/full"], [*words, "--emit", "nn", "-o", "/dev/full"],
                        [*order, "-o", "/dev/full"], [*order, "--html", "/dev/full"],
                        [*order, "--perfetto", "/dev/full"]):
            process = call("pipec", *command)
            self.check_exit(process, CANNOT_WRITE)
            self.assertEqual(process.stderr.splitlines(True)[-1], "pipec: error: " + why)

    def test_results_that_cannot_be_printed(self):
        golden = Golden("mlp")
        words = [golden.model, *golden.arguments(), "--cpus", 2, "--strategy", "1f1b"]
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
