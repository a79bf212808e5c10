"""docs/operators.md says what `pipec list ops` says."""
import subprocess
import sys
import unittest

from pipeline import BIN, SOURCE


class OperatorsTest(unittest.TestCase):
    def test_table_is_in_step(self):
        process = subprocess.run([sys.executable, str(SOURCE / "test" / "bench" / "operators.py"), "--check"],
                                 capture_output=True, text=True, env={"PIPEC_BIN": str(BIN)})
        self.assertEqual(process.returncode, 0, process.stdout + process.stderr)


if __name__ == "__main__":
    unittest.main()
