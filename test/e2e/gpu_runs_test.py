"""How gpu_check.py runs and judges, without any GPU: what comes and goes, what does not end, what is kept when."""
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile
import threading
import time
import unittest
from unittest import mock

from pipeline import MODELS, BIN, PipelineTest

BENCH = MODELS.parent / "bench"
sys.path.insert(0, str(BENCH))
import gpu_check
import gpu_nccl
import gpu_runs

STANDIN = BIN.parent / "test" / "standin"
CASE = {"name": "mlp-1-1f1b-fp32", "model": "mlp", "ranks": 1, "like": "mlpfp32", "steps": 1, "inputs": [], "words": [],
        "losses": [1.0], "bound": 1e-4}


def is_there(process):
    """Whether it runs: what has ended is a zombie until somebody waits for it."""
    try:
        return pathlib.Path("/proc/%d/stat" % process).read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Checked(PipelineTest):
    def check(self, kind=gpu_check.Check, minutes=20, **more):
        target, out = self.fresh(), self.fresh()
        (target / "bin").mkdir(parents=True)
        out.mkdir()
        packed = {"build": "this", "cases": [], "oracles": [], "times": []}
        (target / "cases.json").write_text(json.dumps(packed))
        check = kind(target, out, None, minutes, **more)
        self.said = []
        check.say = self.said.append
        return check

    def has_ended(self, file):
        """The process whose number is in `file`."""
        number = int(file.read_text())
        for _ in range(100):
            if not is_there(number):
                return True
            time.sleep(0.05)
        os.kill(number, signal.SIGKILL)
        return False

    def program(self, text):
        path = self.fresh(".sh")
        path.write_text("#!/bin/sh\n%s\n" % text)
        path.chmod(0o755)
        return path


class Ends(Checked):
    """What does not end by itself, and what it has started."""

    def test_all_that_it_started(self):
        number = self.fresh()
        program = self.program("sleep 1000 & echo $! >%s; echo begun; wait" % number)
        start = time.monotonic()
        code, out, _ = gpu_runs.finish([program], 1)
        self.assertEqual((code, out), (None, "begun\n"))
        self.assertLess(time.monotonic() - start, 5)
        self.assertTrue(self.has_ended(number))
        self.assertEqual(gpu_runs.finish(["sh", "-c", "echo $0; exit 3", "word"], 5)[:2], (3, "word\n"))
        # Who ends all of a session from outside ends it, too.
        words = "import os; print(os.getsid(0), os.getpgrp() == os.getpid())"
        self.assertEqual(gpu_runs.finish([sys.executable, "-c", words], 20)[1], "%d True\n" % os.getsid(0))

    def test_a_slow_sanitizer(self):
        """It says nothing when it does not end: no failure, and nothing is left of what it checks."""
        check = self.check()
        number = self.fresh()
        program = self.program("sleep 1000 & echo $! >%s; wait" % number)
        check.sanitizer_program = lambda: program
        with mock.patch.object(gpu_check, "SANITIZER_LIMIT", 5):
            self.assertFalse(check.step(0, "memcheck", check.sanitizer, "memcheck", CASE))
            self.assertTrue(self.has_ended(number))
            # It has a second chance with more time, and only with that.
            number.unlink()
            check.until = time.monotonic() + 6
            self.assertFalse(check.step(0, "memcheck", check.sanitizer, "memcheck", CASE))
            self.assertFalse(number.exists())
        self.assertEqual(check.wrong, [])

    def test_too_little_time(self):
        """A run that is ended before its limit is left out, and one that had all of it is wrong."""
        check = self.check()
        begun = self.fresh()
        check.program = [self.program("echo >%s; sleep 20" % begun)]
        arguments = self.folder / "plans/mlp", [], self.folder, 1
        check.until = time.monotonic() + 6
        self.assertFalse(check.step(0, "a run", check.run, *arguments))
        self.assertEqual(check.wrong, [])
        # With next to none it does not begin: it would go on when all is over.
        begun.unlink()
        check.until = time.monotonic() + 1
        self.assertFalse(check.step(0, "a run", check.run, *arguments))
        self.assertFalse(begun.exists())
        self.assertEqual(check.wrong, [])
        check.until = check.end
        self.assertTrue(check.step(0, "a run", lambda: check.run(*arguments, limit=5)))
        self.assertEqual(check.wrong, ["mlp: did not end in 5 s: "])

    def test_asked_to_end(self):
        """What runs is ended and is not wrong, nothing begins, and what is known is kept: also what is to be done."""
        check = self.check()
        folder, brought = self.fresh(), self.fresh()
        folder.mkdir()
        program = self.program("echo $$ >%s/$1; sleep 1000" % folder)
        text = ("import pathlib, signal, sys, time; sys.path.insert(0, %r); import gpu_check, gpu_runs\n"
                "check = gpu_check.Check(*map(pathlib.Path, (%r, %r)), None, 9, pathlib.Path(%r))\n"
                "signal.signal(signal.SIGTERM, check.stop)\n"
                "check.note('known', 1)\n"
                "archive = check.archive\n"
                "check.archive = lambda: (time.sleep(1), archive())\n"
                "def run(name):\n"
                "    code = gpu_runs.finish([%r, name], 500)[0]\n"
                "    check.expect(code == 0, 'exit ' + str(code))\n"
                "check.note('left out', list('abcd'))\n"
                "check.each([(0, 'd', str)] + [(0, name, run, name) for name in 'abc'], 2)\n" % tuple(map(
                    str, (BENCH, check.target, check.out, brought, program))))
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        begun = [folder / "a", folder / "b"]
        for _ in range(200):
            if all(file.exists() and file.read_text() for file in begun):
                break
            time.sleep(0.05)
        process.terminate()
        out, _ = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out), (143, "stopped\n"))
        self.assertTrue(all(map(self.has_ended, begun)))
        self.assertFalse((folder / "c").exists())
        results = json.loads((brought / "results.json").read_text())
        self.assertEqual((results["known"], results["wrong"], results["left out"]), (1, [], ["a", "b", "c"]))
        with tarfile.open(brought / (check.out.name + ".tar.gz")) as archive:
            self.assertIn("results.json", archive.getnames())

    def test_time_since_the_script_began(self):
        with mock.patch.dict(os.environ, GPU_CHECK_BEGUN=str(time.time() - 60)):
            self.assertAlmostEqual(self.check(minutes=9).left(), 480, delta=10)
        self.assertAlmostEqual(self.check(minutes=9).left(), 540, delta=10)

    def test_a_device_that_does_not_answer(self):
        with mock.patch.object(subprocess, "run", side_effect=subprocess.TimeoutExpired("nvidia-smi", 20)):
            self.assertIn("does not answer", gpu_check.device_name())


class WhatIsKept(Checked):
    def archived(self, check):
        with tarfile.open(str(check.out) + ".tar.gz") as archive:
            return {name: archive.extractfile(name).read().decode() for name in archive.getnames()}

    def test_archive_after_every_phase(self):
        brought = self.fresh()
        check = self.check(bring=brought)
        seen = []

        def first():
            (check.out / "found.txt").write_text("something")

        def second():
            seen.append(self.archived(check))
            self.assertTrue((brought / (check.out.name + ".tar.gz")).exists())
            check.expect(False, "a thing:\nis wrong")
        check.work = lambda *_: {**{phase: [] for phase in gpu_check.PHASES}, "first": [(0, "one", first)],
                                 "oracles": [(0, "two", second), (10 ** 6, "three", second)]}
        self.assertEqual(check.all(), 1)
        self.assertEqual(seen[0]["found.txt"], "something")
        self.assertIn('"one"', seen[0]["results.json"])
        self.assertEqual(json.loads((brought / "results.json").read_text())["left out"], ["three"])
        self.assertIn('"two"', self.archived(check)["results.json"])
        self.assertEqual(self.said[-2:], ["  a thing: is wrong", "1 wrong"])
        # Only that, and with what is known of the first.
        again = self.check()
        again.work = lambda packed, references: self.assertEqual(references, {"mlp": [1]}) or check.work()
        earlier = {"build": "this", "left out": ["one"], "references": {"mlp": [1]}}
        self.assertEqual(again.all(None, earlier), 0)
        self.assertEqual(sorted(again.results["seconds"]), ["machine", "one"])

    def test_killed_in_mid_way(self):
        """At every moment what is there says what is to be done: also of phases that have not begun."""
        brought = self.fresh()
        seen = []

        def look():
            seen.append(json.loads((brought / "results.json").read_text()))

        def call(earlier=None):
            check = self.check(bring=brought)
            check.machine = lambda: None
            check.work = lambda *_: {**{phase: [] for phase in gpu_check.PHASES}, "rest": [(0, "three", look)],
                                     "first": [(0, "one", look), (0, "two", look)]}
            del seen[:]
            self.assertEqual(check.all(None, earlier), 0)
            self.assertEqual(json.loads((brought / "results.json").read_text())["left out"], [])
            return [one["left out"] for one in seen]
        self.assertEqual(call(), [["one", "two", "three"], ["two", "three"], ["three"]])
        self.assertEqual(call(dict(seen[1])), [["two", "three"], ["three"]])
        # One that was ended before it has listed anything.
        self.assertEqual(len(call({"build": "this"})), 3)

    def test_only_left(self):
        check = self.check()
        done = []
        check.work = lambda *_: {**{phase: [] for phase in gpu_check.PHASES},
                                 "first": [(0, name, done.append, name) for name in ("one", "two")],
                                 "rest": [(0, name, done.append, name) for name in ("three", "four")]}
        results = self.fresh()
        results.write_text(json.dumps({"build": "this", "left out": ["two", "four"]}))
        made = []
        with mock.patch.object(gpu_check, "Check", lambda *arguments: made.append(arguments) or check), \
                mock.patch.object(sys, "argv", ["", str(check.target), str(check.out), "--only-left", str(results)]), \
                mock.patch.object(signal, "signal"):
            self.assertEqual(gpu_check.main(), 0)
        self.assertEqual(done, ["two", "four"])
        self.assertEqual(made[0][3:], (9, None))

    def test_size_of_the_archive(self):
        """The small files first; what does not fit is named."""
        check = self.check()
        for name, size in (("a", 3 << 20), ("b", 1 << 10), ("c", 2 << 20)):
            (check.out / name).write_bytes(os.urandom(size))
        with mock.patch.object(gpu_runs, "MOST_BYTES", 16 << 20), mock.patch.object(gpu_runs, "MOST_PACKED", 4 << 20):
            check.archive()
        self.assertEqual(check.results["not in the archive"], {"a": 3 << 20})
        with tarfile.open(str(check.out) + ".tar.gz") as archive:
            self.assertEqual(sorted(archive.getnames()), ["b", "c", "results.json"])

    def test_what_is_printed(self):
        """Little of it comes back; OUT/log.txt has all."""
        check = self.check()
        del check.say
        with mock.patch("builtins.print") as printed:
            check.expect(False, "a run:" + "\nline" * 100)
        self.assertLess(len(printed.call_args.args[0].splitlines()), 6)
        self.assertEqual(len((check.out / "log.txt").read_text().splitlines()), 101)

    def test_what_is_printed_last(self):
        """A line for each kind of failure: only the end of what is printed may come back."""
        check = self.check()
        check.wrong = ["mlp: exit 69:\n  no device", "cnn: a loss", *["gpt-%d: exit 69:   no device" % i for i in range(5)],
                       *["gpt-%d: %d" % (i, i) for i in range(60)]]
        check.summary()
        self.assertEqual(self.said[:2], ["  mlp, gpt-0 and 4 more: exit 69: no device", "  cnn: a loss"])
        self.assertEqual(self.said[-2:], ["  and 22 more, in results.json", "67 wrong"])
        self.assertLess(sum(map(len, self.said)), 12000)

    def test_at_a_time(self):
        """Steps of small models, of which each waits for the other; one that fails stops none."""
        check = self.check()
        meeting = threading.Barrier(2)

        def fail():
            raise KeyError("broken")
        items = [(0, str(i), lambda: meeting.wait(20)) for i in range(4)] + [(0, "fails", fail), (10 ** 6, "long", fail)]
        self.assertEqual([item[1] for item in check.each(items, 2)], ["long"])
        self.assertEqual(len(check.wrong), 1)
        self.assertIn("KeyError: 'broken'", check.wrong[0])
        with mock.patch.object(os, "sched_getaffinity", lambda _: range(16)):
            self.assertEqual([check.jobs(how) for _, how in gpu_check.PHASES.values()], [8, 1, 1, 1, 8, 8])
        with mock.patch.object(os, "sched_getaffinity", lambda _: range(2)):
            self.assertEqual(check.jobs(4), 1)


class Nccl(Checked):
    def call(self, *folders, **environment):
        """What stdout has, as where nobody asks Python to write at once, which empties C's stdout as well."""
        all_ = {**os.environ, **environment}
        for name in ("PYTHONUNBUFFERED", "NCCL_DEBUG", "NCCL_DEBUG_FILE"):
            all_.pop(name, None)
        process = subprocess.run([sys.executable, BENCH / "gpu_nccl.py", *folders], capture_output=True, text=True, env=all_)
        self.check_exit(process, 0)
        self.assertNotIn("NCCL version", process.stdout)
        return json.loads(process.stdout.splitlines()[-1])

    def test_without(self):
        with mock.patch.object(ctypes, "CDLL", side_effect=OSError("no libcuda")), \
                mock.patch.dict(os.environ), mock.patch("builtins.print") as printed:
            gpu_nccl.main([])
        self.assertEqual(json.loads(printed.call_args.args[0]), {"left out": "no libcuda"})

    def test_with_itself(self):
        if not (STANDIN / "libnccl.so.2").exists():
            self.skipTest("no stand-ins")
        log = self.fresh()
        found = self.call(STANDIN, LD_LIBRARY_PATH=str(STANDIN), PIPEC_STANDIN_LOG=str(log))
        self.assertEqual(found, dict.fromkeys(("send and receive", "send and receive, recorded", "all-reduce",
                                               "all-reduce, recorded"), True))
        # Queued once, recorded once and replayed twice.
        lines = log.read_text().splitlines()
        self.assertEqual(sum(line.startswith("send peer 0") for line in lines), 2)
        self.assertEqual(sum(line.startswith("graph launch") for line in lines), 4)

    def test_how_it_is_told(self):
        check = self.check()
        for answer, wrong in (({"left out": "no device"}, 0), ({"all-reduce": True}, 0), ({"all-reduce": False}, 1)):
            # A library may say something behind it.
            with mock.patch.object(gpu_check, "finish", lambda *_: (0, json.dumps(answer) + "\nNCCL version 2.0.0\n", "")):
                check.nccl()
            self.assertEqual(len(check.wrong), wrong, answer)
        with mock.patch.object(gpu_check, "finish", lambda *_: (1, "", "RuntimeError: ncclSend returned 3")):
            check.nccl()
        self.assertIn("ncclSend returned 3", check.wrong[-1])
        # What was right stays so when the end of the communicator is not.
        with mock.patch.object(gpu_check, "finish", lambda *_: (None, '{"all-reduce": true}\n', "")):
            check.nccl()
        self.assertEqual(check.results["nccl"], {"all-reduce": True})
        self.assertEqual(check.wrong[2:], ["NCCL, when the communicator is given back: it did not end in 60 s: "])
        # With less time than it may take nothing is known of it.
        check.until = time.monotonic() + 10
        with mock.patch.object(gpu_check, "finish", lambda *_: (None, "", "")):
            self.assertFalse(check.step(0, "NCCL", check.nccl))
        self.assertEqual(len(check.wrong), 3)

    def test_what_stands_still(self):
        """Nothing behind it is tried, and the graph is given back."""
        called = []

        class Fake:
            def __getattr__(self, name):
                return lambda *_: called.append(name) or 0
        cuda, nccl = Fake(), Fake()
        cuda.library = Fake()
        with mock.patch.object(gpu_nccl, "stream_of", lambda _: None), \
                mock.patch.object(gpu_nccl, "wait", side_effect=[None, gpu_nccl.StandsStill("the stream stands still")]), \
                mock.patch("builtins.print") as printed:
            gpu_nccl.check(cuda, nccl)
        self.assertEqual(json.loads(printed.call_args.args[0]), {"send and receive": False, "send and receive, recorded":
                                                                 "the stream stands still"})
        self.assertEqual(called[-2:], ["cuGraphDestroy", "ncclCommDestroy"])

    def test_two_processes(self):
        """Each seems to be on a machine of its own. Whatever becomes of it is a try."""
        check = self.check()
        seen = []

        def attempt(*words, environment, limit, **_):
            self.assertEqual(words[-2:], ("--timeout", "50"))  # half of it is what a first connection may take
            self.assertEqual(limit, most)
            seen.append(environment)
            if environment["RANK"] == "1":
                raise OSError("no metrics")  # which are rank 0's
            return answer
        check.attempt = attempt
        for answer, text, left, most in (
                (gpu_runs.Done([1.0], [1.0], {}, None), "it works, and the losses are 0 from", 600, 40),
                (gpu_runs.Done(None, None, None, "exit 69: Duplicate GPU"), "it does not: exit 69: Duplicate", 31.5, 30)):
            check.until = time.monotonic() + left
            check.two_processes(CASE)
            self.assertIn(text, self.said[-1])
        self.assertEqual(check.wrong, [])
        self.assertEqual({one["NCCL_HOSTID"] for one in seen}, {"pipec-0", "pipec-1"})
        self.assertEqual({(one["NCCL_SOCKET_IFNAME"], one["PIPEC_NCCL_ONE_GPU"]) for one in seen}, {("lo", "1")})


if __name__ == "__main__":
    unittest.main()
