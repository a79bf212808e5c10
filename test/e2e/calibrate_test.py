"""`pipec calibrate`: costs of this machine."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
import unittest
import unittest.mock

from pipeline import BIN, CANNOT_WRITE, USAGE, Golden, PipelineTest, busy, call, read_plan


class CalibrateTest(PipelineTest):
    def test_its_file_is_a_cluster(self):
        file = self.folder / "cluster.json"
        ranks = len(os.sched_getaffinity(0)) + 1  # take turns
        scratch = self.fresh()
        (scratch / "pipec-calibrate-0123abcd").mkdir(parents=True)  # of one that was killed
        # Not the job of a launcher that runs pipec itself.
        with unittest.mock.patch.dict(os.environ, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1", WORLD_SIZE="7",
                                      TMPDIR=str(scratch)), busy(1):
            process = call("pipec", "calibrate", "--alone", "--cpus", f"1x{ranks}", "-o", file)
        self.check_exit(process, 0)
        self.assertEqual(list(scratch.iterdir()), [])
        self.assertNotIn("calibrate again", process.stderr)  # what else runs is left out
        self.assertIn("mean error", process.stdout)
        cluster = json.loads(file.read_text())
        self.assertEqual([level["count"] for level in cluster["levels"]], [1, ranks])
        self.assertGreater(cluster["device"]["flops"]["fp32"], 1e8)
        self.assertGreater(cluster["device"]["ring_us"], 0)
        self.assertTrue(0 <= cluster["device"].get("crowd_turn_us", 0) < 200, cluster["device"])
        self.assertTrue(0 <= cluster["device"].get("crowd_seen_us", 0) < 200, cluster["device"])
        if 2 < ranks <= 64:
            self.assertNotIn("are not timed", process.stderr)
            self.assertGreater(cluster["device"]["step_us"], 0)
        self.assertGreater(cluster["device"]["turn_us"], 0)
        self.assertGreaterEqual(cluster["device"]["task_us"], 0)
        passes = cluster["device"]["passes"]
        self.assertGreater(passes[-1]["KiB"], 16 * passes[0]["KiB"])
        self.assertGreater(passes[-1]["ns_per_KiB"], passes[0]["ns_per_KiB"])
        for costs in ("kernels_ns", "far_kernels_ns"):
            self.assertEqual(set(cluster["device"][costs]),
                             {"product", "product-bf16", "generated", "copy", "gather", "scatter", "max-pool", "max-pool-grad", "avg-pool",
                              "avg-pool-grad", *(f"convolution-{of}-{path}"
                                                 for of in ("forward", "backward-input", "backward-weight")
                                                 for path in ("product", "rows", "winograd"))})
        self.assertTrue(any(cost > 0 for cost in cluster["device"]["kernels_ns"]["product"].values()))
        self.assertIn("convolution-forward-winograd", process.stdout)
        golden = Golden("mlp")
        flags = [*golden.arguments(), "--cluster", file, "--strategy", "1f1b", "--stages", "2"]
        run = self.train(self.compile(golden.model, *flags), golden.data, 2)
        self.assertEqual(len(run.losses), 2)
        self.assertIn("whole tasks", process.stdout)
        self.check_calls(cluster)

    def test_ranks_that_outnumber_the_cores(self):
        file = self.folder / "cluster.json"
        ranks = len(os.sched_getaffinity(0)) + 1
        alone = self.folder / "pipec"  # no pipec-run beside it
        shutil.copy(BIN / "pipec", alone)
        with busy(ranks // 2):
            process = subprocess.run([alone, "calibrate", "--cpus", f"1x{ranks}", "-o", file, "--quiet"],
                                     capture_output=True, text=True)
        self.check_exit(process, 0)
        self.assertRegex(process.stderr, r"note: other programs had \d+.* % of this machine's cores while it was timed")
        self.assertIn("note: messages between ranks are not timed", process.stderr)
        self.assertIn("pipec-run" if ranks > 2 else "one core", process.stderr)
        device = json.loads(file.read_text())["device"]
        self.assertNotIn("take_us", device)
        self.assertGreater(device["ring_us"], 0)
        self.assertIn("note: ranks that share cores are not timed", process.stderr)
        self.assertNotIn("crowd_turn_us", device)
        golden = Golden("mlp")
        shown = self.dry_run(golden.model, *golden.arguments(), "--cluster", file)
        self.assertGreater(shown["predicted"]["step_s"], 0)

    def check_calls(self, cluster):
        """Every call of the code is priced, once: a call of any kind costs 1 us here, and nothing else anything."""
        device = cluster["device"]
        device.update(threads=1, task_us=0, turn_us=0)
        for costs in ("kernels_ns", "far_kernels_ns"):
            device[costs] = {name: {amount: 1000.0 if amount == "call" else 0.0 for amount in amounts}
                             for name, amounts in device[costs].items()}
        cluster["levels"][-1]["count"] = cluster["cores"] = 1
        file = self.folder / "calls.json"
        file.write_text(json.dumps(cluster))
        for model in ("gpt", "cnn", "mlp", "unet", "translator"):
            golden = Golden(model)
            words = [golden.model, *golden.arguments(), "--cluster", file, "--strategy", "1f1b"]
            cost = read_plan(self.compile(*words))["stages"][0]["cost"]
            code = call("pipec", *words, "--emit", "kernels")
            self.check_exit(code, 0)
            calls, task = {}, None
            for line in code.stdout.splitlines():
                if "func.func" in line:
                    task = re.search(r"@(\w+)", line)[1]
                elif re.search(r"\bcall @(pipec_|kernel)", line):
                    calls[task] = calls.get(task, 0) + 1
            self.assertGreater(calls["pipec_forward"], 3)
            self.assertAlmostEqual(cost["forward_s"] * 1e6, calls["pipec_forward"], places=6)
            self.assertAlmostEqual((cost["backward_input_s"] + cost["backward_weight_s"]) * 1e6, calls["pipec_backward"],
                                   places=6)

    def test_refusals(self):
        self.check_exit(call("pipec", "calibrate", "--cpus", "0x2"), USAGE)
        self.check_exit(call("pipec", "calibrate", "-o", "/proc/no/cluster.json"), CANNOT_WRITE)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_one_that_is_ended_leaves_nothing(self):
        """Its scratch folder, in TMPDIR, says that it measures: that goes with the next one."""
        scratch, place = self.fresh(), self.fresh()
        scratch.mkdir()
        place.mkdir()
        environment = {**os.environ, "TMPDIR": str(scratch)}
        process = subprocess.Popen([str(BIN / "pipec"), "calibrate", "--cpus", "1", "-o", "new/way/it.json"], cwd=place,
                                   env=environment, stdout=subprocess.DEVNULL)
        while process.poll() is None and not list(scratch.iterdir()):
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(), -signal.SIGTERM)
        self.assertEqual(list(place.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
