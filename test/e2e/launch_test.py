"""Processes over Open MPI compute what threads of one process do, however they start."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from pipeline import BIN, UNAVAILABLE, USAGE, Golden, PipelineTest, Run, call


def descendants(process):
    """Of a process, itself included, that are still there."""
    found, processes = [process], [int(name) for name in os.listdir("/proc") if name.isdigit()]
    parents = {}
    for other in processes:
        try:
            parents[other] = int(pathlib.Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for one in found:
        found.extend(other for other, parent in parents.items() if parent == one)
    return found


def masks_of(process):
    """The cores of each of pipec-run's threads."""
    try:
        if os.path.basename(os.readlink(f"/proc/{process}/exe")) != "pipec-run":
            return []
        return [os.sched_getaffinity(int(thread)) for thread in os.listdir(f"/proc/{process}/task")]
    except OSError:
        return []


@unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
class LaunchTest(PipelineTest):
    def setUp(self):
        super().setUp()
        self.golden = Golden("mlp")
        self.plan = self.compile(self.golden.model, *self.golden.arguments(), "--cpus", "1x3",
                                 "--stages", "3", "--strategy", "1f1b")
        self.want = self.train(self.plan, self.golden.data, 4, "--transport", "inproc").losses

    def test_starts_its_own_ranks(self):
        self.assertEqual(self.train(self.plan, self.golden.data, 4, "--transport", "mpi").losses,
                         self.want)

    def test_script_of_the_plan(self):
        metrics = self.folder / "script.jsonl"
        data = [word for name, file in self.golden.data.items()
                for word in ("--data", "%s=%s" % (name, file))]
        process = subprocess.run(
            [str(self.plan / "launch" / "mpirun.sh"), *data, "--steps", "4", "--metrics", str(metrics),
             "--quiet"],
            env=dict(os.environ, PIPEC_RUN=str(BIN / "pipec-run"), OMP_NUM_THREADS="1"),
            capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
        self.check_exit(process, 0)
        self.assertEqual(Run(process, metrics).losses, self.want)

    def test_ranks_with_files_of_their_own(self):
        """As on machines of which one has an older plan, or other data: a rank finds it under the same name."""
        stale = self.folder / "stale"
        shutil.copytree(self.plan, stale)
        (stale / "plan.json").write_text((self.plan / "plan.json").read_text() + "\n")
        name, file = next(iter(self.golden.data.items()))
        other = self.folder / "other.npy"
        content = bytearray(pathlib.Path(file).read_bytes())
        content[-1] ^= 1
        other.write_bytes(content)
        metrics = self.folder / "none.jsonl"
        data = [word for each in self.golden.data.items() for word in ("--data", "%s=%s" % each)]
        for own, theirs, what in (self.plan, stale, "plan.json [0-9a-f]{16}"), (file, other, f"--data {name} .*"):
            program = self.fresh(".sh")
            program.write_text('#!/bin/bash\nwords=("$@")\n'
                               f"""[[ $OMPI_COMM_WORLD_RANK == 1 ]] && words=("${{words[@]/'{own}'/'{theirs}'}}")\n"""
                               f'exec {BIN / "pipec-run"} "${{words[@]}}"\n')
            program.chmod(0o755)
            process = subprocess.run(
                [str(self.plan / "launch" / "mpirun.sh"), *data, "--steps", "4", "--metrics", str(metrics), "--quiet"],
                env=dict(os.environ, PIPEC_RUN=str(program), OMP_NUM_THREADS="1"),
                capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
            self.check_exit(process, USAGE)
            self.assertRegex(process.stderr, f"the ranks do not run the same: rank 1 .stage 1. has {what}, rank 0 "
                             f".stage 0. has {what}; give all of them the same options and the same files\n")
            self.assertFalse(metrics.exists())

    def with_launcher(self, steps, what, *options):
        """A run whose mpirun gets the signal `what` in the middle of its steps."""
        metrics = self.folder / "launched.jsonl"
        data = [word for name, file in self.golden.data.items() for word in ("--data", f"{name}={file}")]
        job = subprocess.Popen([BIN / "pipec-run", self.plan, *data, "--steps", str(steps), "--transport", "mpi",
                                "--metrics", metrics, *options], env=dict(os.environ, OMP_NUM_THREADS="1"),
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        while not metrics.exists() or not metrics.stat().st_size:
            self.assertIsNone(job.poll(), "the run ended before it began")
            time.sleep(0.01)
        family = descendants(job.pid)
        launcher = next(one for one in family[1:] if b"mpirun" in pathlib.Path(f"/proc/{one}/cmdline").read_bytes())
        os.kill(launcher, what)
        errors = job.communicate(timeout=60)[1]
        deadline = time.monotonic() + 20
        while any(os.path.exists(f"/proc/{one}") for one in family):
            self.assertLess(time.monotonic(), deadline, "somebody is still there")
            time.sleep(0.01)
        return job.returncode, errors

    def test_a_launcher_that_is_killed_takes_the_job_with_it(self):
        code, errors = self.with_launcher(10**7, signal.SIGKILL)
        self.assertEqual(code, 76, errors)
        self.assertIn("the launcher of the ranks was killed by signal 9 while they ran", errors)

    # As Open MPI's does that finds no ssh in a slim container.
    def test_a_launcher_that_starts_nobody_is_told_about(self):
        launcher = self.folder / "mpirun"
        launcher.write_text("#!/bin/sh\nexit 243\n")
        launcher.chmod(0o755)
        data = [word for name, file in self.golden.data.items() for word in ("--data", f"{name}={file}")]

        def refusal():
            process = subprocess.run([BIN / "pipec-run", self.plan, *data, "--steps", "2", "--transport", "mpi"],
                                     env=dict(os.environ, PATH=str(self.folder)),
                                     capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
            self.check_exit(process, UNAVAILABLE)
            return process.stderr

        self.assertIn("(the launcher's exit status is 243): mpirun needs ssh or rsh on PATH", refusal())
        shutil.copy(launcher, self.folder / "rsh")
        self.assertIn("(the launcher's exit status is 243; what it says stands above); with --transport inproc", refusal())

    # All is done, only the launcher does not end.
    def test_a_launcher_that_stops_holds_up_nobody(self):
        code, errors = self.with_launcher(20000, signal.SIGSTOP, "--timeout", "4")
        self.assertEqual((code, errors), (0, ""))

    def test_ranks_of_a_launcher_say_once_what_all_find_wrong(self):
        def message(ranks, *arguments):
            process = subprocess.run(
                ["mpirun", "-q", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks),
                 str(BIN / "pipec-run"), str(self.plan), *arguments],
                capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
            self.check_exit(process, USAGE)
            return process.stderr

        self.assertEqual(message(3, "--step=3"),
                         "pipec-run: error: there is no option --step, did you "
                         "mean --steps?; see pipec-run --help\n")
        self.assertEqual(message(2, "--steps", "3"),
                         "pipec-run: error: the plan has 3 ranks, the launcher has started 2 (which "
                         "transport mpi has found); start 3, as the scripts in the plan's launch/ do, or name another "
                         "--transport\n")

    def test_ranks_that_outnumber_the_cores_keep_to_one(self):
        """So that the same ranks take turns in every step, as the planner has it; both cores have ranks."""
        cores = set(sorted(os.sched_getaffinity(0))[:2])
        self.plan = self.compile(self.golden.model, *self.golden.arguments(), "--cpus", "1x4", "--stages", "4",
                                 "--strategy", "1f1b")
        for transport in ("mpi", "inproc"):
            for wish, kept in (("", 4), ("free", 0)):
                with self.subTest(transport=transport, wish=wish):
                    masks = self.masks_of_ranks(transport, wish, cores, kept)
                    own = [mask for mask in masks if len(mask) == 1]
                    if len(cores) == 2:
                        self.assertGreaterEqual(len(own), kept)
                        self.assertEqual(len(own) > 0, kept > 0)
                        self.assertEqual(set().union(*own), cores if kept else set())

    def test_a_stop_before_the_ranks_have_come(self):
        data = [word for name, file in self.golden.data.items() for word in ("--data", f"{name}={file}")]
        job = subprocess.Popen([BIN / "pipec-run", self.plan, *data, "--steps", "100000000", "--quiet",
                                "--transport", "mpi"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(job.kill)
        status, caught = pathlib.Path(f"/proc/{job.pid}/status"), 0
        while not caught >> (signal.SIGTERM - 1) & 1:
            caught = int(re.search(r"SigCgt:\s*(\w+)", status.read_text())[1], 16)
        job.terminate()
        errors = job.communicate(timeout=60)[1]
        self.assertEqual(job.returncode, 75, errors)
        self.assertRegex(errors, "stopped on request after step [0-9]+;")

    def masks_of_ranks(self, transport, wish, cores, kept):
        """Of the threads of pipec-run, while it trains."""
        (self.folder / "metrics.jsonl").unlink(missing_ok=True)
        flags = [word for name, file in self.golden.data.items() for word in ("--data", f"{name}={file}")]
        job = subprocess.Popen([BIN / "pipec-run", self.plan, *flags, "--steps", "1000000", "--quiet", "--transport",
                                transport, "--metrics", self.folder / "metrics.jsonl"],
                               env=dict(os.environ, PIPEC_RANK_CORES=wish), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        try:
            deadline = time.time() + 60
            while time.time() < deadline:
                masks = [mask for process in descendants(job.pid) for mask in masks_of(process)]
                metrics = self.folder / "metrics.jsonl"
                trains = metrics.exists() and b"step" in metrics.read_bytes()
                if trains and sum(len(mask) == 1 for mask in masks) >= kept:
                    return masks
                time.sleep(0.05)
            self.fail("the ranks do not train, or keep to no core")
        finally:
            job.terminate()
            job.wait()

    def test_leaves_a_report_of_the_run(self):
        self.train(self.plan, self.golden.data, 4)
        page = (self.plan / "report.html").read_text()
        self.assertIn("Predicted and measured", page)
        self.assertIn("equal to the byte", page)

    def test_quiet_leaves_the_result(self):
        process = self.train(self.plan, self.golden.data, 2)  # with --quiet
        self.assertRegex(process.stdout, r"\A2 steps, final loss %s\d*\n\Z" % str(process.losses[-1])[:5])
        self.assertEqual(process.stderr, "")
        process = self.train(self.plan, self.golden.data, 2, "--oracle")
        self.assertRegex(process.stdout, r"\A2 steps without a pipeline, final loss [0-9.]+, [0-9.]+ [um]?s a step\n\Z")
        process = self.train(self.plan, self.golden.data, 1)
        self.assertRegex(process.stdout, r"\A1 step, final loss [0-9.]+\n\Z")
        process = call("pipec", self.plan)
        self.check_exit(process, USAGE)
        self.assertEqual(process.stderr, "pipec: error: %s is a plan: run it with pipec-run %s, or look at it with pipec "
                         "inspect %s\n" % (self.plan, self.plan, self.plan))
        flags = ("--dry-run", "--quiet", "--cpus", "1x2", *self.golden.arguments())
        self.assertEqual(call("pipec", self.golden.model, *flags).stdout, "")
        self.assertIn('"stages"', call("pipec", self.golden.model, *flags, "--format", "json").stdout)
        table = call("pipec", self.golden.model, *flags, "--what-if", "devices").stdout
        self.assertTrue(table.startswith("what if"), table)

    def test_summary_is_json_on_request(self):
        process = self.train(self.plan, self.golden.data, 2, "--format", "json")
        summary = json.loads(process.stdout)
        self.assertEqual(summary["steps"], 2)
        self.assertEqual([rank["rank"] for rank in summary["ranks"]], [0, 1, 2])


class MissingLauncherTest(PipelineTest):
    def test_is_the_one_thing_said(self):
        golden = Golden("mlp")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", "1x2", "--strategy", "1f1b")
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]

        def refusal(*arguments):
            process = subprocess.run(
                [str(BIN / "pipec-run"), str(plan), *data, "--steps", "2", "--transport", "mpi", *arguments],
                env=dict(os.environ, PATH=str(self.folder)), capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=120)
            self.check_exit(process, UNAVAILABLE)
            self.assertEqual(process.stdout, "")
            return process.stderr

        self.assertEqual(refusal(), "pipec-run: error: mpirun: No such file or directory; install it, or give "
                         "--transport inproc\n")
        report = json.loads(refusal("--format", "json"))
        self.assertEqual([(problem["cause"], problem["remedy"], problem["exit"]) for problem in report["problems"]],
                         [("mpirun: No such file or directory", "install it, or give --transport inproc", UNAVAILABLE)])


if __name__ == "__main__":
    unittest.main()
