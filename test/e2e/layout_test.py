"""Rules about the sources that a script can check (docs/extending.md)."""
import re
import subprocess
import unittest

from pipeline import SOURCE

PLAIN = ("compiler/plan", "compiler/schedule", "compiler/strategy", "report", "runtime", "support")
CODE = {".cpp", ".h", ".td", ".def", ".py", ".sh", ".mlir", ".test", ".cmake", ".c"}


def sources(*folders):
    for folder in folders or (".",):
        for path in sorted((SOURCE / folder).rglob("*")):
            inner = path.relative_to(SOURCE).parts
            if path.suffix in CODE and not inner[0].startswith(("build", ".")):
                yield path


class LayoutTest(unittest.TestCase):
    def complain(self, places):
        self.assertEqual([str(path.relative_to(SOURCE)) for path in places], [])

    def test_files_are_short(self):
        self.complain(path for path in sources() if len(path.read_text().splitlines()) > 800)

    def test_plain_libraries_include_no_mlir(self):
        banned = re.compile(r'#include ["<](mlir|llvm|dialects|passes)/')
        self.complain(path for path in sources(*PLAIN) if banned.search(path.read_text()))

    def test_every_pass_is_documented_and_tested(self):
        text = "".join(file.read_text() for file in sources() if file.name == "Passes.td")
        flags = re.findall(r': Pass<"([\w-]+)"', text)
        self.assertGreater(len(flags), 12)
        self.assertEqual(len(flags), text.count("let summary"))
        self.assertEqual(len(flags), text.count("let description"))
        for flag in flags:
            test = SOURCE / "test" / "passes" / (flag.split("-", 1)[1] + ".mlir")
            self.assertTrue(test.exists(), "no test of %s" % flag)

    def test_nothing_is_left_to_do(self):
        marks = re.compile(r"\b(TODO|FIXME|XXX)\b")
        self.complain(path for path in sources() if path.name != "layout_test.py"
                      and marks.search(path.read_text()))

    def test_scripts_parse(self):
        scripts = [*sorted((SOURCE / "tools").glob("*.sh")), SOURCE / ".ci" / "run"]
        for script in scripts:
            subprocess.run(["bash", "-n", str(script)], check=True)


if __name__ == "__main__":
    unittest.main()
