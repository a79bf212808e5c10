#!/usr/bin/env python3
"""Where a process has no more of something (memory, threads, length of files) it says so, and what limits it."""
import resource, unittest

from pipeline import CANNOT_WRITE, NO_FIT, UNAVAILABLE, Golden, PipelineTest, call


def limited(kind, bytes):
    return lambda: resource.setrlimit(kind, (bytes, bytes))


class ExhaustedTest(PipelineTest):
    def test_files_may_not_become_so_large(self):
        golden = Golden("mlp")
        before = sorted(self.folder.iterdir())
        process = call("pipec", golden.model, *golden.arguments(), "--cpus", 2, "-o", self.folder / "plan",
                       preexec_fn=limited(resource.RLIMIT_FSIZE, 1024))
        self.check_exit(process, CANNOT_WRITE)
        self.assertRegex(process.stderr, r"cannot write .*plan.*\(ulimit -f\)")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_too_little_memory_is_no_crash(self):
        golden = Golden("gpt")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", 2, "--strategy", "1f1b")
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        refused = begun = 0
        for size in range(16, 176, 8):  # MiB; below the least of them not even the libraries find room
            limit = limited(resource.RLIMIT_AS, size << 20)
            if call("pipec-run", "--version", preexec_fn=limit).returncode:
                continue
            begun += 1
            process = call("pipec-run", plan, *data, "--steps", 1, "--transport", "inproc", "--quiet", preexec_fn=limit)
            self.assertIn(process.returncode, (0, NO_FIT, UNAVAILABLE), (size, process.stderr))
            if process.returncode == 0:
                break
            refused += 1
            self.assertRegex(process.stderr, "^pipec-run: error: ", (size, process.stderr))
            if process.returncode == NO_FIT:
                self.assertIn("(it may have %d KiB in all: ulimit -v)" % (size << 10), process.stderr)
        if not begun:
            self.skipTest("these programs do not begin under a limit of addresses")
        self.assertGreater(refused, 0)


if __name__ == "__main__":
    unittest.main()
