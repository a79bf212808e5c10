"""Measurements while nobody shares the cores, for benches on machines that others use as well.

The host of a virtual machine may put two of its cores on one core of its own, or a neighbour beside one, or nobody, for
seconds or for minutes; multiplications of vectors then take up to twice as long, a chain of dependent operations as
long as before. So the thermometer is a hash whose rounds keep a core's units busy, on all cores at once. Python's
standard library alone.
"""
import hashlib, os, statistics, sys, threading, time

BLOCK = bytes(1 << 20)
TOLERANCE = 1.12  # either way: the hash itself repeats within some 10 %; two cores that are one take 1.3 and more
WATCH = 20        # seconds, by which it is known how fast cores are when nobody is beside them
PATIENCE = 120    # seconds, behind which that has changed


def hashed_on_every_core():
    """The median milliseconds in which a block is hashed, of the slowest core, all of them busy."""
    cores = sorted(os.sched_getaffinity(0))
    together, medians = threading.Barrier(len(cores), timeout=60), []

    def work(core):
        os.sched_setaffinity(0, {core})  # of this thread
        together.wait()
        times = []
        for _ in range(10):
            begun = time.perf_counter()
            hashlib.blake2b(BLOCK).digest()  # lets other threads run meanwhile
            times.append(time.perf_counter() - begun)
        medians.append(1e3 * statistics.median(times))

    threads = [threading.Thread(target=work, args=(core,)) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(medians)


class SteadyCores:
    """Runs what is measured when cores are as fast as when nobody is beside them, and again where one came."""

    def __init__(self):
        self.kept = self.left = 0  # measurements
        self.watch()

    def watch(self):
        end, seen = time.monotonic() + WATCH, []
        while time.monotonic() < end:
            seen.append(hashed_on_every_core())
            time.sleep(0.3)
        self.usual = statistics.quantiles(seen, n=5)[0]  # a fifth of the time is enough to measure in
        print(f"a MiB is hashed in {self.usual:.2f} ms ({min(seen):.2f} - {max(seen):.2f})", file=sys.stderr, flush=True)

    def as_usual(self):
        self.took = statistics.median(hashed_on_every_core() for _ in range(3))
        return 1 / TOLERANCE < self.took / self.usual < TOLERANCE

    def wait(self):
        end = time.monotonic() + PATIENCE
        while not self.as_usual():
            if time.monotonic() > end:
                self.watch()
                end = time.monotonic() + PATIENCE
            time.sleep(0.2)

    def measure(self, what):
        while True:
            self.wait()
            result = what()
            if self.as_usual():
                self.kept += 1
                return result
            self.left += 1

    def told(self):
        """What was left out is said: only cores decide that, whatever was measured."""
        return f"{self.left} of {self.kept + self.left} measurements ended at another speed and were made again"

    def whole(self, what):
        """What several measurements make; again where cores turned out to be mostly of another speed."""
        while True:
            usual, result = self.usual, what()
            if usual == self.usual:
                return result


class AnyCores:
    """The same of cores that are taken as they are."""

    usual = 0

    def measure(self, what):
        return what()

    def told(self):
        return "cores were taken as they were"

    whole = measure
