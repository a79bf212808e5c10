"""The same input gives the same plan, byte for byte, wherever it is written."""
import os
import unittest

from pipeline import Golden, PipelineTest, call


class DeterminismTest(PipelineTest):
    def files(self, folder):
        return {str(path.relative_to(folder)): path.read_bytes()
                for path in sorted(folder.rglob("*")) if path.is_file()}

    def check(self, name, *arguments):
        golden = Golden(name)
        plans = []
        for place in ("one", "two"):
            plan = self.folder / place / "plan"
            plan.parent.mkdir()
            self.check_exit(call("pipec", golden.model, *golden.arguments(), *arguments,
                                 "--quiet", "-o", plan), 0)
            plans.append(self.files(plan))
        self.assertEqual(sorted(plans[0]), sorted(plans[1]))
        for file in plans[0]:
            self.assertEqual(plans[0][file], plans[1][file], file)
        for file in ("plan.json", "schedule.csv", "report.html", "stages/stage0.so"):
            self.assertIn(file, plans[0])

    def test_pipeline(self):
        self.check("gpt", "--cpus", "1x3", "--strategy", "1f1b", "--stages", "3")

    def test_searched_plan(self):
        self.check("cnn", "--cpus", "1x4")

    def test_any_number_of_cores(self):
        """Free cores make plans ahead of the comparison, and orders ahead of each other; what is found is the same."""
        cores = os.sched_getaffinity(0)
        if len(cores) < 2:
            self.skipTest("one core")
        self.addCleanup(os.sched_setaffinity, 0, cores)
        golden = Golden("gpt")
        gpus, cpus = ("--gpus", "1x4"), self.cores(4)
        for flags in (gpus, (*gpus, "--memory-limit", "640KiB"), (*cpus, "--strategy", "searched"),
                      (*cpus, "--strategy", "zb", "--memory-limit", "1040KiB")):
            shown = set()
            for some in ({min(cores)}, cores):
                os.sched_setaffinity(0, some)  # as for the programs that are started
                process = call("pipec", golden.model, *golden.arguments(), *flags, "--dry-run", "--format", "json")
                self.check_exit(process, 0)
                shown.add(process.stdout)
            self.assertEqual(len(shown), 1, flags)


if __name__ == "__main__":
    unittest.main()
