"""What goes wrong on GPUs, or takes long, on stand-ins of NVIDIA's libraries: who says so, and when."""
import os
import socket
import subprocess
import time
import unittest
from unittest import mock

from gpu_test import PEER_LOST, STANDIN, GpuTest
from pipeline import BIN, NO_INPUT, UNAVAILABLE, Golden, call


class Failures(GpuTest):
    """All ranks end soon, with what happened."""

    def fails(self, *words, code, steps=3, **settings):
        golden = Golden("mlp")
        if not hasattr(self, "plan"):
            # No note of each rank's on what it runs.
            self.plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2", machine=True)
        start = time.monotonic()
        run = self.run_gpu(self.plan, golden, "--steps", steps, *words, code=code, **settings)
        return run, time.monotonic() - start

    def test_a_kernel_that_never_ends(self):
        for words in ((), ("--graphs", "off"), ("--transport", "nccl")):
            with self.subTest(words):
                run, seconds = self.fails(*words, "--timeout", 6, code=PEER_LOST, hang=40)
                self.assertEqual(run.stderr.count("no rank makes progress"), 1, run.stderr)
                for rank in (0, 1):
                    self.assertEqual(run.stderr.count("rank %d (stage %d)" % (rank, rank)), 1, run.stderr)
                self.assertLess(seconds, 60)

    def test_a_long_step(self):
        """Its tasks end: also when it takes longer than no progress may."""
        for words in ((), ("--transport", "nccl")):
            with self.subTest(words):
                _, seconds = self.fails(*words, "--timeout", 4, code=0, slow=50)
                self.assertGreater(seconds / 3, 2)

    def test_a_long_task(self):
        """Its calls end, some at a time."""
        golden = Golden("gpt")
        words = golden.arguments("sgd:lr=0.05")
        words[words.index("--microbatches") + 1] = "1"
        with mock.patch.object(golden, "arguments", lambda optimizer: words):
            plan = self.compile_for(golden, "1", "--strategy", "1f1b", "--stages", "1")
        self.run_gpu(plan, golden, "--steps", 1, "--timeout", 8, slow=120)

    def test_no_communicator(self):
        """The others wait in NCCL, which tells them nothing."""
        for rank in (0, 1):
            run, seconds = self.fails("--transport", "nccl", "--timeout", 200, code=UNAVAILABLE, alone=rank)
            self.assertIn("rank %d (stage %d): NCCL has failed: ncclCommInitRank returned 2" % (rank, rank), run.stderr)
            self.assertLess(seconds, 60)

    def test_messages_that_fail(self):
        """NCCL tells it to who asks, and to nobody else."""
        for words in ((), ("--graphs", "off")):
            run, seconds = self.fails(*words, "--transport", "nccl", "--timeout", 200, code=UNAVAILABLE, asynch=1)
            self.assertIn("rank 1 (stage 1): NCCL has failed: a message returned 3 (internal error: what was said "
                          "last)", run.stderr)
            self.assertLess(seconds, 60)
        # That a peer is lost those say first who know which, when it is.
        run, seconds = self.fails("--transport", "nccl", "--timeout", 200, code=PEER_LOST, asynch=0, status=6, hang=40)
        self.assertIn("NCCL has lost a peer: remote process exited", run.stderr)

    def test_names_of_calls(self):
        """What fails says at which call; what the device finds, with PIPEC_CALL_SYNC=1."""
        run, _ = self.fails(code=UNAVAILABLE, fail="kernel3")
        self.assertRegex(run.stderr, r"cuLaunchKernel says CUDA_ERROR_INVALID_VALUE \(a text\); at the call "
                                     r"stage-?\d+\S* kernel3 of \d+ x \d+")
        run, _ = self.fails(code=UNAVAILABLE, products=0)
        self.assertRegex(run.stderr, r"cublasLtMatmul returned 15 \(not supported\); .*; at the call matmul f32 1 x ")
        run, _ = self.fails(code=UNAVAILABLE, fault="kernel3")
        said = r"cuStreamQuery says CUDA_ERROR_ILLEGAL_ADDRESS \(an illegal memory access was encountered\); "
        self.assertRegex(run.stderr, said + "PIPEC_CALL_SYNC=1")
        with mock.patch.dict(os.environ, PIPEC_CALL_SYNC="1"):
            for words in ((), ("--transport", "nccl")):
                run, _ = self.fails(*words, code=UNAVAILABLE, fault="kernel3")
                self.assertRegex(run.stderr, said + r"the call is \S+ kernel3 of")
            self.fails(code=0)
            self.fails("--transport", "nccl", "--graphs", "off", code=0)

    def test_a_meeting_that_never_ends(self):
        """One rank stays in ncclCommInitRank for ever, and the others with it."""
        run, seconds = self.fails("--transport", "nccl", "--timeout", 6, code=PEER_LOST, absent=1)
        self.assertIn("no rank makes progress", run.stderr)
        self.assertIn("waiting to connect the GPUs", run.stderr)
        self.assertLess(seconds, 60)

    def test_data_that_one_rank_lacks(self):
        """All ranks hear of it before they meet on their GPUs."""
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in (0, 1):
            flags = [word for name, file in golden.data.items()
                     for word in ("--data", "%s=%s" % (name, file if rank == 0 else self.folder / "missing.npy"))]
            environment = dict(os.environ, OMP_NUM_THREADS="1", LD_LIBRARY_PATH=str(STANDIN), RANK=str(rank),
                               WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                               PIPEC_STANDIN_CODE=str(self.code_of(plan)))
            ranks.append(subprocess.Popen([BIN / "pipec-run", plan, *flags, "--steps", "2", "--timeout", "60", "--quiet"],
                                          stderr=subprocess.PIPE, text=True, env=environment))
        said = "".join(process.communicate(timeout=100)[1] for process in ranks)
        self.assertEqual([process.returncode for process in ranks], [NO_INPUT, NO_INPUT])
        self.assertIn("missing.npy", said)

    def test_a_broken_device(self):
        for words in ((), ("--transport", "nccl")):
            run, seconds = self.fails(*words, "--timeout", 200, code=UNAVAILABLE, broken=1)
            self.assertEqual(run.stderr.count("cuDevicePrimaryCtxRetain says CUDA_ERROR_ECC_UNCORRECTABLE"), 1)
            self.assertLess(seconds, 60)

    def test_told_before_it_is_waited_for(self):
        """What is queued may never end; the others need not wait until a rank has given it up."""
        words = ("--transport", "nccl", "--timeout", 200)
        run, alone = self.fails(*words, code=UNAVAILABLE, fail="kernel3")
        self.assertIn("cuLaunchKernel says CUDA_ERROR_INVALID_VALUE", run.stderr)
        run, queued = self.fails(*words, code=UNAVAILABLE, fail="kernel3", hang=0)
        self.assertIn("cuLaunchKernel says CUDA_ERROR_INVALID_VALUE", run.stderr)
        self.assertLess(queued - alone, 4)


class Events(GpuTest):
    def test_a_missing_event_is_noticed(self):
        """Without one of the waits between streams the numbers are others."""
        golden = Golden("mlp")
        plan = self.compile_for(golden, "1x2", "--strategy", "1f1b", "--stages", "2")
        words = ("--steps", 2, "--graphs", "off")
        want = self.run_gpu(plan, golden, *words).losses
        caught = 0
        for number in range(24):
            log = self.fresh(".log")
            run = self.run_unchecked(plan, golden, *words, drop_wait=number, log=log)
            self.assertIn("dropped wait %d" % number, log.read_text())
            caught += run.code != 0 or run.losses != want
        # Some only matter when a slot is used again, which this run is too short for.
        self.assertGreaterEqual(caught, 3)

    def run_unchecked(self, plan, golden, *words, **settings):
        check, self.check_exit = self.check_exit, lambda process, code: None
        try:
            return self.run_gpu(plan, golden, *words, **settings)
        finally:
            self.check_exit = check


if __name__ == "__main__":
    unittest.main()
