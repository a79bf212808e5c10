"""What a rank's process occupies is what the plan says, give or take programs and libraries."""
import subprocess
import sys
import unittest

from pipeline import PipelineTest, SOURCE

GPT2 = SOURCE / "examples" / "gpt2"
# Stated in docs/plan-format.md: program, libraries, transport and page tables of one process.
PROCESS_CONSTANT = 64 << 20


class MemoryTest(PipelineTest):
    def check(self, transport):
        tokens = self.folder / "tokens.npy"
        subprocess.run([sys.executable, str(GPT2 / "tokens.py"), str(GPT2 / "alice.txt"), "-o", str(tokens)], check=True,
                       stdout=subprocess.DEVNULL)
        plan = self.compile(GPT2 / "model.onnx", "--cpus", "1x2", "--dim", "batch=64", "--microbatches", "4", "--loss",
                            "next-token", "--strategy", "gpipe", "--recompute", "none", "--stages", "2")
        summary = self.train(plan, {"input_ids": tokens}, 2, "--transport", transport).summary
        for rank in summary["ranks"]:
            with self.subTest(rank=rank["rank"]):
                peak = rank["predicted_peak_bytes"]
                self.assertEqual(rank["peak_bytes"], peak)
                self.assertGreater(peak, 4 * PROCESS_CONSTANT)  # or the constant would hide the rest
                self.assertLessEqual(abs(rank["rss_bytes"] - peak), 0.05 * peak + PROCESS_CONSTANT)

    def test_processes(self):
        self.check("mpi")


if __name__ == "__main__":
    unittest.main()
