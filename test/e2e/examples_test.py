"""The examples do what their pages say, in a few steps."""
import subprocess
import sys
import unittest

from pipeline import PipelineTest, SOURCE

EXAMPLES = SOURCE / "examples"


class ExamplesTest(PipelineTest):
    def make(self, script, *arguments):
        subprocess.run([sys.executable, str(EXAMPLES / script), *map(str, arguments)], check=True,
                       stdout=subprocess.DEVNULL)

    def test_gpt2(self):
        tokens = self.folder / "tokens.npy"
        self.make("gpt2/tokens.py", EXAMPLES / "gpt2" / "alice.txt", "-o", tokens)
        plan = self.compile(EXAMPLES / "gpt2" / "model.onnx", "--cpus", "1x4", "--dim", "batch=4",
                            "--microbatches", "8", "--loss", "next-token", "--optimizer",
                            "adamw:lr=1e-3", "--strategy", "1f1b", "--stages", "4")
        losses = self.train(plan, {"input_ids": tokens}, 8).losses
        self.assertAlmostEqual(losses[0], 5.55, delta=0.1)  # ln 256: nothing is known yet
        self.assertLess(losses[-1], losses[0] - 1)

    def test_lenet(self):
        self.make("lenet/digits.py", "-o", self.folder)
        plan = self.compile(EXAMPLES / "lenet" / "model.onnx", "--cpus", "1x2", "--dim", "batch=8",
                            "--microbatches", "4", "--loss", "cross-entropy", "--optimizer",
                            "adamw:lr=3e-3", "--stages", "2")
        data = {"image": self.folder / "images.npy", "labels": self.folder / "labels.npy"}
        losses = self.train(plan, data, 60).losses
        self.assertLess(sum(losses[-8:]) / 8, 0.25 * losses[0])

    def test_tokens_say_what_is_wrong_with_a_text(self):
        missing, short = self.folder / "missing.txt", self.folder / "short.txt"
        short.write_bytes(b"word")
        for text, said in ((missing, "%s: No such file or directory; give the path of a text" % missing),
                           (short, "the text is shorter than one row: give a longer one, or a smaller --length")):
            process = subprocess.run([sys.executable, str(EXAMPLES / "gpt2/tokens.py"), str(text)], capture_output=True,
                                     text=True, cwd=self.folder)
            self.assertEqual((process.returncode, process.stderr), (1, "tokens.py: %s\n" % said))

    def test_digits_replace_no_other_file(self):
        (self.folder / "labels.npy").write_bytes(b"mine")
        process = subprocess.run([sys.executable, str(EXAMPLES / "lenet/digits.py"), "-o", str(self.folder)],
                                 capture_output=True, text=True)
        self.assertEqual(process.returncode, 1)
        self.assertEqual(process.stderr, "digits.py: %s is there with other content; remove it, or name another folder "
                         "with -o\n" % (self.folder / "labels.npy"))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["labels.npy"])


if __name__ == "__main__":
    unittest.main()
