"""What is being done, in a line on a terminal: there while it is long, and gone behind it."""
import os
import pty
import re
import select
import signal
import time
import unittest

from pipeline import BIN, CANNOT_WRITE, STOPPED, Golden, PipelineTest, call

ERASE = "\x1b[K"
# Some seconds: this search ends by its effort alone.
LONG = ["schedule", "zb", "--stages", "8", "--microbatches", "16", "--time", "F=1,B=1.3,W=0.8,comm=0.1",
        "--memory-limit", "5", "--effort", "40"]
# Much longer.
ENDLESS = LONG[:-1] + ["100000"]


class Terminal:
    """A program on a terminal of its own, as long as it lives."""

    def __init__(self, program, *arguments, columns=100, kind="xterm"):
        self.written, self.code = "", None
        self.child, self.terminal = pty.fork()
        if self.child == 0:
            os.environ.update(TERM=kind, OMP_NUM_THREADS="1")
            path = str(BIN / program)
            os.execvp("sh", ["sh", "-c", 'stty cols %d; exec "$@"' % columns, "sh", path, *map(str, arguments)])

    def read(self, until=None, seconds=120):
        """Reads to the end, or until the pattern has been written."""
        end = time.monotonic() + seconds
        while not (until and re.search(until, self.written)):
            if not select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError("nothing more on the terminal: %r" % self.written[-500:])
            try:
                data = os.read(self.terminal, 1 << 16)
            except OSError:  # closed by its last process
                data = b""
            if not data:
                os.close(self.terminal)
                status = os.waitpid(self.child, 0)[1]
                self.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
                return self
            self.written += data.decode(errors="replace")
        return self

    def lines(self):
        """The progress lines that have been drawn."""
        return [text for text in re.findall("\r([^\r\n]*)\x1b\\[K", self.written) if text]

    def screen(self):
        """What a user sees in the end."""
        rows, column = [""], 0
        for part in re.findall("\r|\n|\x1b\\[K|[^\r\n\x1b]+|\x1b", self.written):
            if part == "\r":
                column = 0
            elif part == "\n":
                rows.append("")
            elif part == ERASE:
                rows[-1] = rows[-1][:column]
            else:
                row = rows[-1].ljust(column)
                rows[-1] = row[:column] + part + row[column + len(part):]
                column += len(part)
        return "\n".join(rows)


class ProgressTest(PipelineTest):
    def test_a_long_command_says_what_it_does(self):
        run = Terminal("pipec", *LONG).read()
        self.assertEqual(run.code, 0)
        lines = run.lines()
        self.assertGreater(len(lines), 3, run.written)
        for line in lines:
            self.assertRegex(line, r"\Aschedule zb: searching orders [0-9]+ % · [0-9]+\.[0-9] s\Z")
        seconds = [float(line.split(" · ")[1][:-2]) for line in lines]
        self.assertGreaterEqual(seconds[0], 1)
        # Ten times a second at most.
        self.assertLess(len(lines), 10 * (seconds[-1] - seconds[0]) + 3)
        # The screen is as if there had been no line.
        plain = call("pipec", *LONG)
        self.assertEqual(run.screen(), plain.stdout)
        self.assertEqual(plain.stderr, "")

    def test_only_where_it_is_wanted(self):
        for run in (Terminal("pipec", *LONG, "--quiet"), Terminal("pipec", *LONG, kind="dumb")):
            run.read()
            self.assertEqual((run.code, run.lines()), (0, []))
            self.assertNotIn("\x1b", run.written)
        short = Terminal("pipec", "schedule", "1f1b", "--stages", "4", "--microbatches", "8").read()
        self.assertEqual((short.code, short.lines()), (0, []))
        self.assertNotIn("\x1b", short.written)

    def test_keeps_to_the_width_of_the_terminal(self):
        run = Terminal("pipec", *LONG, columns=30).read()
        self.assertTrue(run.lines())
        for line in run.lines():
            self.assertRegex(line, r"\Aschedule zb · [0-9]+\.[0-9] s\Z")

    def test_gone_when_a_signal_ends_the_command(self):
        for signals in (signal.SIGINT, signal.SIGTERM):
            run = Terminal("pipec", *ENDLESS)
            run.read(until=" s\x1b\\[K")
            os.kill(run.child, signals)
            run.read()
            self.assertEqual(run.code, -signals)
            self.assertEqual(run.screen(), "")

    def test_an_error_begins_on_a_clean_row(self):
        # The search ends, and what it has found has no place.
        output = self.folder / "none" / "x.csv"
        output.parent.write_text("a file")
        run = Terminal("pipec", *LONG, "-o", output).read()
        self.assertEqual(run.code, CANNOT_WRITE)
        self.assertTrue(run.lines())
        self.assertRegex(run.screen(), r"\Apipec: error: cannot write %s: [^\n]*\n\Z" % re.escape(str(output)))

    def test_compile(self):
        golden = Golden("gpt")
        arguments = [golden.model, *golden.arguments(), "--cpus", "1x16", "--strategy", "auto"]
        run = Terminal("pipec", *arguments, "-o", self.folder / "plan", columns=300).read()
        self.assertEqual(run.code, 0)
        self.assertRegex(run.written, "planning: strategy [0-9]+ of [0-9]+, ")
        self.assertRegex(run.written, "compiling stage [0-9]+ of [0-9]+ ")
        self.assertNotRegex(run.screen(), "planning: |compiling |lowering: ")

    def test_runs(self):
        golden = Golden("mlp")
        plan = self.compile(golden.model, *golden.arguments(), "--cpus", "1x2", "--strategy", "1f1b")
        data = [word for name, file in golden.data.items() for word in ("--data", "%s=%s" % (name, file))]
        steps = 10 ** 8
        line = "training: step [0-9]+ of %d" % steps
        inproc, loss = ["--transport", "inproc"], line + ", loss [0-9.e-]+ "
        for more, said, asks in ((inproc, loss, signal.SIGTERM), (inproc, loss, signal.SIGHUP),
                                 (["--oracle"], line + ", loss ", signal.SIGTERM),
                                 (["--transport", "mpi"], line + " ", signal.SIGTERM),
                                 (["--transport", "mpi"], line + " ", signal.SIGHUP)):
            run = Terminal("pipec-run", plan, *data, "--steps", steps, *more)
            run.read(until=said)
            os.kill(run.child, asks)  # to stop after this step
            run.read()
            self.assertEqual(run.code, STOPPED, run.screen())
            self.assertEqual([row for row in run.screen().split("\n") if " of %d" % steps in row], [])
            self.assertRegex(run.screen(), r"(?m)^[0-9]+ steps[, ].*final loss ")
        run = Terminal("pipec-run", plan, *data, "--steps", 60000, "--quiet", "--transport", "inproc").read()
        self.assertEqual(run.lines(), [])
        self.assertRegex(run.written, r"\A60000 steps, final loss [0-9.e-]+\r\n\Z")


if __name__ == "__main__":
    unittest.main()
