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
import gpu_sums
import gpu_ways

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


class WhatFails(Checked):
    """Other ways of a run, whose losses come from a list."""

    def judge(self, answers, sums=None):
        """What becomes of a case whose runs have these losses or errors, and then 0.5 for ever; and what was run."""
        check, runs, answers = self.check(), [], iter(answers)

        def attempt(plan, inputs, data, steps, *words, environment=None, **_):
            more = {**check.way[1], **(environment or {})}
            runs.append(tuple(check.way[0]) + words + tuple(key for key in more if key not in gpu_ways.LOGS))
            loss = next(answers, 0.5)
            ranks = [{"peak_bytes": 1, "predicted_peak_bytes": 1}]
            if isinstance(loss, str):
                return gpu_runs.Done(None, None, None, loss)
            if environment and "PIPEC_CALL_SUMS" in environment and sums:
                pathlib.Path(environment["PIPEC_CALL_SUMS"]).write_text(sums)
            return gpu_runs.Done([loss], [1.0], {"ranks": ranks, "code": "ptx"}, None)
        check.attempt = attempt
        if sums:
            (check.target / "sums").mkdir()
            (check.target / "sums" / (CASE["name"] + ".jsonl")).write_text(
                '{"rank": 0, "call": 0, "name": "kernel0", "changed": 8, "sum": 2.5}\n'
                '{"rank": 0, "call": 1, "name": "product 2 x 2 x 2", "changed": 8, "sum": 2.5}\n')
        check.losses(CASE, {})
        return check, runs

    def test_right(self):
        check, runs = self.judge([1.0, 1.0])
        self.assertEqual((check.wrong, runs), ([], [(), ("--graphs", "off")]))
        self.assertIn("code ptx", self.said[-1])

    def test_it_comes_and_goes(self):
        """Wrong once, and right when nothing has changed: no way is that of all runs, since each would be right."""
        check, runs = self.judge([0.5, 1.0])
        self.assertEqual(len(check.wrong), 1)
        self.assertEqual(check.way, ((), {}))
        self.assertTrue(check.results["comes and goes"][CASE["name"]])
        self.assertEqual(runs[:2], [(), ()])
        self.assertTrue(any("it comes and goes" in text for text in self.said))

    def test_it_comes_and_goes_later(self):
        """Twice wrong, right with a way, and then right without it as well."""
        check, runs = self.judge([0.5, 0.5, 1.0, 1.0])
        self.assertEqual(check.way, ((), {}))
        self.assertTrue(check.results["comes and goes"][CASE["name"]])
        self.assertEqual(runs[:4], [(), (), ("--graphs", "off"), ()])

    def test_a_way_by_luck(self):
        check, _ = self.judge([0.5, 0.5, 1.0, 0.5, 0.5])
        self.assertEqual(check.way, ((), {}))
        self.assertIn("    and then wrong, with the same", self.said)

    def test_a_way(self):
        """It is right again and again, and the usual way never."""
        none = [0.5] * 2
        check, runs = self.judge(["exit 70: no PTX", "exit 70: no PTX", *none, 1.0, "exit 70: no PTX", 1.0, *none, *none, 1.0,
                                  1.0])
        self.assertEqual(check.way, ([], {"PIPEC_GPU_CODE": "ptx"}))
        self.assertEqual(runs[2:5], [("--graphs", "off"), ("--graphs", "off", "PIPEC_CALL_SYNC"), ("PIPEC_GPU_CODE",)])
        self.assertEqual(runs[-2], ("PIPEC_GPU_CODE",))
        self.assertEqual(check.wrong, ["mlp-1-1f1b-fp32: exit 70: no PTX"])

    def test_without_graphs(self):
        """What is right without graphs is so when the host waits as well, which says nothing more."""
        check, runs = self.judge([0.5, 0.5, 1.0, 0.5, 1.0])
        self.assertEqual(check.way, (["--graphs", "off"], {}))
        self.assertNotIn("PIPEC_CALL_SYNC=1", check.results["diagnoses"][CASE["name"]])

    def test_the_first_call_that_differs(self):
        sums = ('{"rank": 0, "call": 0, "name": "kernel0", "changed": 8, "sum": 2.5001}\n'
                '{"rank": 0, "call": 1, "name": "product 2 x 2 x 2", "changed": 8, "sum": 3.5}\n')
        check, runs = self.judge([0.5, 0.5], sums)
        found = check.results["first calls that differ"][CASE["name"]]
        self.assertEqual(len(found), 1)
        self.assertIn("call 1 of 2, product 2 x 2 x 2: its sum is 3.5, of 8 bytes; emulated: its sum is 2.5", found[0])
        self.assertIn("    differs from the emulation: " + found[0], self.said)

    def test_other_numbers(self):
        """A way that means other numbers has a first of its kind of its own."""
        check = self.check()
        check.way = ([], gpu_ways.NO_EPILOGUES)
        check.attempt = lambda *_, **__: gpu_runs.Done([1.0], [1.0], {"ranks": []}, None)
        references = {CASE["like"]: [1.00001]}
        check.losses(CASE, references)
        self.assertEqual(check.wrong, [])
        self.assertEqual(len(references), 2)


class Sums(Checked):
    def test_differences(self):
        def ranks(*sums, names=("kernel0", "product", "kernel1", "kernel2")):
            return {0: [{"rank": 0, "call": i, "name": name, "changed": 4, "sum": sum_} for i, (name, sum_) in enumerate(zip(
                names, sums))]}
        want = ranks(1.0, 2.0, 3.0, 4.0)
        self.assertEqual(gpu_sums.differences(want, want, "fp32"), [])
        self.assertEqual(gpu_sums.differences(ranks(1.01, 2.0, 3.0, 4.0), want, "bf16"), [])
        found = gpu_sums.differences(ranks(1.0, 2.1, 3.5, 4.0), want, "fp32")
        self.assertEqual(len(found), 2)
        self.assertIn("call 1 of 4, product", found[0])
        # What is not a number is in no sum.
        odd = ranks(1.0, 2.0, 3.0, 4.0)
        odd[0][2]["no_numbers"] = 1
        self.assertIn("call 2 of 4, kernel1: its sum is 3.0, of 4 bytes, and 1 words are no numbers; emulated: its sum is 3.0",
                      gpu_sums.differences(odd, want, "fp32")[0])
        # Calls that only one of both makes are passed over: there a library adds the bias of a product.
        apart = ranks(1.0, 2.0, 9.0, 3.0, 4.0, names=("kernel0", "product", "bias", "kernel1", "kernel2"))
        added = ranks(1.0, 9.0, 3.0, 4.0, names=("kernel0", "product + bias", "kernel1", "kernel2"))
        self.assertEqual(gpu_sums.differences(apart, want, "fp32"), [])
        self.assertEqual(gpu_sums.differences(apart, added, "fp32"), [])
        self.assertIn("only 0 of 4 calls", gpu_sums.differences(ranks(1.0, names=("other",)), want, "fp32")[0])

    def test_files(self):
        """Of every rank, in the order of the calls."""
        folder = self.fresh()
        folder.mkdir()
        for rank in (1, 0):
            (folder / ("sums.rank%d" % rank)).write_text("".join('{"rank": %d, "call": %d, "name": "k", "changed": 0, '
                                                                 '"sum": 0}\n' % (rank, call) for call in (1, 0)))
        rows = gpu_sums.read(folder / "sums")
        self.assertEqual([(rank, [row["call"] for row in list_]) for rank, list_ in rows.items()], [(0, [0, 1]), (1, [0, 1])])
        gpu_sums.write(folder / "all", rows)
        self.assertEqual(gpu_sums.read(folder / "all"), rows)


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
        check.program = [self.program("sleep 20")]
        arguments = self.folder / "plans/mlp", [], self.folder, 1
        check.until = time.monotonic() + 1
        self.assertFalse(check.step(0, "a run", check.run, *arguments))
        self.assertEqual(check.wrong, [])
        check.until = check.end
        self.assertTrue(check.step(0, "a run", lambda: check.run(*arguments, limit=5)))
        self.assertEqual(check.wrong, ["mlp: did not end in 5 s: "])

    def test_asked_to_end(self):
        """What runs is ended, and what is known is kept."""
        check = self.check()
        number, brought = self.fresh(), self.fresh()
        program = self.program("sleep 1000 & echo $! >%s; wait" % number)
        text = ("import pathlib, signal, sys; sys.path.insert(0, %r); import gpu_check, gpu_runs\n"
                "out = pathlib.Path(%r)\n"
                "check = gpu_check.Check(pathlib.Path(%r), out, None, 9, pathlib.Path(%r))\n"
                "signal.signal(signal.SIGTERM, check.stop)\n"
                "check.note('known', 1)\n"
                "check.each([(0, 'a run', gpu_runs.finish, [%r], 500)])\n" % tuple(
                    map(str, (BENCH, check.out, check.target, brought, program))))
        process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)
        for _ in range(200):
            if number.exists() and number.read_text():
                break
            time.sleep(0.05)
        process.terminate()
        out, _ = process.communicate(timeout=20)
        self.assertEqual((process.returncode, out), (143, "stopped\n"))
        self.assertTrue(self.has_ended(number))
        self.assertEqual(json.loads((brought / "results.json").read_text())["known"], 1)
        with tarfile.open(brought / (check.out.name + ".tar.gz")) as archive:
            self.assertIn("results.json", archive.getnames())


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
            self.assertEqual([check.jobs(how) for _, how in gpu_check.PHASES.values()], [4, 1, 1, 4, 1, 4])
        with mock.patch.object(os, "sched_getaffinity", lambda _: range(2)):
            self.assertEqual(check.jobs(4), 1)


class Nccl(Checked):
    def call(self, *folders, **environment):
        process = subprocess.run([sys.executable, BENCH / "gpu_nccl.py", *folders], capture_output=True, text=True,
                                 env={**os.environ, **environment})
        self.check_exit(process, 0)
        return json.loads(process.stdout.splitlines()[-1])

    def test_without(self):
        with mock.patch.object(ctypes, "CDLL", side_effect=OSError("no libcuda")), mock.patch("builtins.print") as printed:
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
            with mock.patch.object(gpu_check, "finish", lambda *_: (0, json.dumps(answer) + "\n", "")):
                check.nccl()
            self.assertEqual(len(check.wrong), wrong, answer)
        with mock.patch.object(gpu_check, "finish", lambda *_: (1, "", "RuntimeError: ncclSend returned 3")):
            check.nccl()
        self.assertIn("ncclSend returned 3", check.wrong[-1])

    def test_two_processes(self):
        """Each seems to be on a machine of its own. Whatever becomes of it is a try."""
        check = self.check()
        seen = []

        def attempt(*_, environment, **__):
            seen.append(environment)
            if environment["RANK"] == "1":
                raise OSError("no metrics")  # which are rank 0's
            return answer
        check.attempt = attempt
        for answer, text in ((gpu_runs.Done([1.0], [1.0], {}, None), "it works, and the losses are 0 from"),
                             (gpu_runs.Done(None, None, None, "exit 69: Duplicate GPU"), "it does not: exit 69: Duplicate")):
            check.two_processes(CASE)
            self.assertIn(text, self.said[-1])
        self.assertEqual(check.wrong, [])
        self.assertEqual({one["NCCL_HOSTID"] for one in seen}, {"pipec-0", "pipec-1"})
        self.assertEqual({(one["NCCL_SOCKET_IFNAME"], one["PIPEC_NCCL_ONE_GPU"]) for one in seen}, {("lo", "1")})


if __name__ == "__main__":
    unittest.main()
