"""tools/gpu-check.sh, what it packs and how it judges, on stand-ins of NVIDIA's libraries."""
import json
import os
import shutil
import sys
import unittest
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

    def judge(self, gpu_check, target, out):
        (target / "bin").mkdir()
        shutil.copy(BIN / "pipec-run", target / "bin")
        packed = json.loads((target / "cases.json").read_text())
        self.assertEqual(len(packed["cases"]), 4)
        self.assertEqual(len(packed["oracles"]), 2)
        self.assertEqual([times["model"] for times in packed["times"]], ["gpt2"])
        self.assertEqual(packed["times"][0]["plans"], [["fp32", 1], ["fp32", 2], ["bf16", 1], ["bf16", 2]])
        check = gpu_check.Check(target, out, STANDIN, 5)
        check.say = lambda text: None
        self.assertEqual(check.all(), 0, check.wrong)
        times = packed["times"][0]
        with mock.patch.object(check, "torch", lambda *words: None):
            check.times(times["model"], times["weights"], times["plans"][:2])
        self.assertEqual(len(check.results["times"]), 4)
        self.assertEqual(check.wrong, [])
        # What differs is said.
        packed["cases"][0]["losses"][1] *= 1.01
        (target / "cases.json").write_text(json.dumps(packed))
        self.assertEqual(check.all(), 1)
        self.assertIn("from PyTorch's", check.wrong[0])


if __name__ == "__main__":
    unittest.main()
