"""Our CSV is PyTorch's: its runtime loads and simulates what we write, we read what it dumps.

Where PyTorch is installed its own runtime is asked. Elsewhere torch_csv.json stands in: the
digests of the files that a PyTorch accepted, which ours must still equal byte for byte, and
files that it dumped. `torch_csv_test.py --renew` writes it again.
"""
import hashlib
import json
import pathlib
import sys
import tempfile
import unittest

from pipeline import PipelineTest, call

try:
    import torch
    from torch.distributed.pipelining import schedules as theirs
except ImportError:
    torch = theirs = None

EVIDENCE = pathlib.Path(__file__).with_name("torch_csv.json")

# Closed forms, whose bytes stay; then orders that a better search may change.
FIXED = [("gpipe", 4, 8, 1), ("1f1b", 4, 8, 1), ("1f1b", 3, 2, 1), ("interleaved-1f1b", 4, 8, 2),
         ("interleaved-1f1b", 4, 12, 3), ("looped-bfs", 4, 8, 2), ("zb-h1", 4, 8, 1),
         ("zb-h2", 4, 8, 1), ("interleaved-zb", 4, 8, 2), ("dualpipe-v", 4, 8, 2)]
SEARCHED = [("zb", 4, 12, 1), ("zb-v", 4, 8, 2), ("v-half", 4, 8, 2), ("v-min", 6, 9, 2),
            ("1f1b-v", 4, 8, 2), ("auto", 5, 11, "auto")]
# PyTorch's classes, devices, microbatches, stages on a device.
DUMPED = [("ScheduleInterleaved1F1B", 4, 8, 2), ("ScheduleInterleavedZeroBubble", 4, 8, 2),
          ("ScheduleLoopedBFS", 4, 8, 2), ("ScheduleZBVZeroBubble", 4, 8, 2),
          ("ScheduleDualPipeV", 4, 8, 2)]


def key(row):
    return " ".join(map(str, row))


def write(row, path):
    name, devices, microbatches, chunks = row
    extra = ["--chunks", chunks] if chunks != 1 else []
    process = call("pipec", "schedule", name, "--stages", devices, "--microbatches", microbatches,
                   *extra, "--quiet", "-o", path)
    if process.returncode:
        raise AssertionError(process.stderr)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Stage:
    """What PyTorch's schedules ask of a stage before they run one."""

    def __init__(self, index, stages, devices):
        self.stage_index, self.num_stages, self.group_size = index, stages, devices
        self.group_rank, self.has_backward, self.submod = 0, True, None
        self.is_first, self.is_last = index == 0, index == stages - 1


def runtime(path, devices, microbatches):
    """PyTorch's runtime with a file of ours loaded, lowered and simulated."""
    count = 1 + max(theirs._Action.from_str(cell).stage_index
                    for line in path.read_text().splitlines() for cell in line.split(","))
    loaded = theirs._PipelineScheduleRuntime([Stage(s, count, devices) for s in range(count)],
                                             microbatches, loss_fn=lambda *_: None)
    loaded._load_csv(str(path), format="compute_only")
    # Its simulator knows no parameter sharding, which the runtime lowers to as well.
    home = loaded.stage_index_to_group_rank
    lowered = theirs._add_send_recv(loaded.pipeline_order, lambda s: home[s], count)
    return theirs._simulate_comms_compute(lowered, lambda s: home[s], count)


def dump(row, path):
    """A schedule of PyTorch's as it dumps it."""
    name, devices, microbatches, chunks = row
    stages = devices * chunks
    held = [0, stages - 1] if "V" in name.removeprefix("Schedule") and chunks == 2 else range(0, stages, devices)
    schedule = getattr(theirs, name)([Stage(s, stages, devices) for s in held], microbatches,
                                     loss_fn=lambda *_: None)
    theirs.PipelineScheduleMulti._dump_csv(schedule, str(path))


class TorchCsvTest(PipelineTest):
    def read(self, row, path):
        """pipec's word on a file of PyTorch's."""
        process = call("pipec", "schedule", "--check", path, "--stages", row[1], "--microbatches", row[2])
        self.check_exit(process, 0)
        self.assertIn("%d devices, %d stages, %d microbatches" % (row[1], row[1] * row[3], row[2]),
                      process.stdout)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_pytorch_runs_what_we_write(self):
        for row in FIXED + SEARCHED:
            with self.subTest(row):
                path = self.fresh(".csv")
                write(row, path)
                ticks = runtime(path, row[1], row[2])
                self.assertEqual(len(ticks), row[1])

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_we_read_what_pytorch_dumps(self):
        for row in DUMPED:
            with self.subTest(row):
                path = self.fresh(".csv")
                dump(row, path)
                self.read(row, path)

    def test_we_write_what_pytorch_accepted(self):
        evidence = json.loads(EVIDENCE.read_text())
        self.assertEqual(sorted(evidence["accepted"]), sorted(map(key, FIXED)))
        for row in FIXED:
            with self.subTest(row):
                path = self.fresh(".csv")
                write(row, path)
                self.assertEqual(digest(path), evidence["accepted"][key(row)])

    def test_we_read_what_pytorch_dumped(self):
        evidence = json.loads(EVIDENCE.read_text())
        self.assertEqual(sorted(evidence["dumped"]), sorted(map(key, DUMPED)))
        for row in DUMPED:
            with self.subTest(row):
                path = self.fresh(".csv")
                path.write_text("".join(line + "\n" for line in evidence["dumped"][key(row)]))
                self.read(row, path)


def renew():
    evidence = {"torch": torch.__version__.split("+")[0], "accepted": {}, "dumped": {}}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "schedule.csv"
        for row in FIXED:
            write(row, path)
            runtime(path, row[1], row[2])
            evidence["accepted"][key(row)] = digest(path)
        for row in DUMPED:
            dump(row, path)
            evidence["dumped"][key(row)] = path.read_text().splitlines()
    EVIDENCE.write_text(json.dumps(evidence, indent=1) + "\n")


if __name__ == "__main__":
    if "--renew" in sys.argv:
        renew()
    else:
        unittest.main()
