"""Measurements while nobody shares the cores, for benches on machines that others use as well.

The host of a virtual machine may put two of its cores on one core of its own, or a neighbour beside one, or nobody, for
milliseconds or for minutes; multiplications of vectors then take up to twice as long, a chain of dependent operations
as long as before. So the thermometer is a hash whose rounds keep a core's units busy. The host also moves cores, so
that they have a cache in common now and then, of which no core alone knows anything, but threads that share loops do,
and messages: what is looked at besides is how long a number takes from the first core to each (core_distance.c).
Processes on each core take both every few milliseconds, beside whatever is measured, which lasts longer by a hundredth.
What is measured begins when cores are near, and is made again where more than a quarter of the looks were slow or far:

    measured        |---------------| again: |---------------| it counts
    core 0     .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .  .      looks: . as fast and as near as ever, # not
    core 1     #  .  .  #  #  #  .  .  #  .  .  .  .  #  .  .  .

Only the cores decide what counts, whatever was measured. Linux, a C compiler and Python's standard library alone.
"""
import hashlib, mmap, multiprocessing, os, pathlib, shutil, subprocess, sys, tempfile, time

BLOCK = bytes(1 << 13)
TOLERANCE = 1.15  # the hash repeats within some 5 %; beside a neighbour, or two cores that are one, it takes 1.3 and more
EVERY = 0.003     # seconds between two looks, of which each takes some 30 us
LEARNED = 10      # seconds of looks by which it is known how fast that is
SLOW = 0.25       # share of looks that may be slow or far: a core that waited for another finds itself slow as well
LOOKS = 0.5       # share of the looks due without which nothing is known of a core
DISTANCE = 0.005  # seconds between two looks of core_distance.c
LOOKED = 0.1      # seconds in which cores must be near before something is measured
PATIENCE = 20     # seconds to wait for that
TRIES = 20


def hashed():
    """Seconds in which a block is hashed; the least of three, since what interrupts one of them is no neighbour."""
    least = 1
    for _ in range(3):
        begun = time.perf_counter()
        hashlib.blake2b(BLOCK).digest()
        least = min(least, time.perf_counter() - begun)
    return least


class Slots:
    """What the processes tell of each core: how fast it can be, its looks, and those that found it slow."""

    def __init__(self, count):
        self.count, self.numbers = count, memoryview(mmap.mmap(-1, 8 * 3 * count)).cast("d")

    def usual(self):
        return list(self.numbers[:self.count])  # 0 before it is known

    def looks(self):
        return list(zip(self.numbers[self.count:2 * self.count], self.numbers[2 * self.count:]))


def look_at(slots, core, cpu, parent):
    """What a core's process does until its parent is gone."""
    os.sched_setaffinity(0, {cpu})
    end, seen = time.monotonic() + LEARNED, []
    while time.monotonic() < end:
        seen.append(hashed())
    slots.numbers[core] = sorted(seen)[len(seen) // 200]
    while os.getppid() == parent:
        time.sleep(EVERY)
        slots.numbers[2 * slots.count + core] += hashed() > TOLERANCE * min(slots.usual())
        slots.numbers[slots.count + core] += 1


class Distances:
    """Looks at how far cores are from the first, by core_distance.c."""

    def __init__(self, folder):
        if not shutil.which("cc"):
            raise SystemExit("how far cores are is looked at by a C program, and there is no compiler, cc")
        file, tool = pathlib.Path(folder, "distances"), pathlib.Path(folder, "core_distance")
        file.write_bytes(bytes(4096))
        with file.open("r+b") as opened:
            self.numbers = memoryview(mmap.mmap(opened.fileno(), 4096)).cast("d")
        subprocess.run(["cc", "-O2", "-pthread", "-o", tool, pathlib.Path(__file__).with_name("core_distance.c")],
                       check=True)
        self.process = subprocess.Popen([tool, file])

    def known(self):
        return self.numbers[0] > 0

    def looks(self):
        if self.process.poll() is not None:
            raise SystemExit(f"core_distance ended with {self.process.poll()}: nothing is known of the cores")
        return [(self.numbers[1], self.numbers[2])]

    def told(self):
        return f"{self.numbers[3]:.0f} ns from core to core"


class SteadyCores:
    """A context in which `take` measures again what was measured while a core was slower or farther than it can be."""

    def __enter__(self):
        cpus = sorted(os.sched_getaffinity(0))
        self.scratch = tempfile.TemporaryDirectory()
        self.slots, self.distances = Slots(len(cpus)), Distances(self.scratch.name) if len(cpus) > 1 else None
        self.taken, self.again, self.slow = 0, 0, 0
        process = multiprocessing.get_context("fork").Process
        self.watchers = [process(target=look_at, args=(self.slots, core, cpu, os.getpid()), daemon=True)
                         for core, cpu in enumerate(cpus)]
        for watcher in self.watchers:
            watcher.start()
        while not all(self.slots.usual()) or (self.distances and not self.distances.known()):
            self.looks()
            time.sleep(0.1)
        told = ", ".join(f"{1e6 * seconds:.1f}" for seconds in self.slots.usual())
        print(f"{len(BLOCK) >> 10} KiB are hashed in {told} us beside nobody", file=sys.stderr, flush=True)
        if self.distances:
            print(self.distances.told(), file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_):
        for watcher in self.watchers:
            watcher.terminate()
        if self.distances:
            self.distances.process.kill()
            self.distances.process.wait()
        self.scratch.cleanup()

    def looks(self):
        return self.slots.looks() + (self.distances.looks() if self.distances else [])

    def watched(self, call):
        """What `call` returns, and the largest share of looks at a core that were slow or far meanwhile."""
        begun, before = time.monotonic(), self.looks()
        result = call()
        time.sleep(2 * DISTANCE)  # the last look's numbers
        due = LOOKS * (time.monotonic() - begun) / DISTANCE
        return result, max((slow - slower) / (looks - looked) if looks - looked >= due else 1
                           for (looks, slow), (looked, slower) in zip(self.looks(), before))

    def wait(self):
        """Until cores are near. How fast they are is known of busy ones alone: those that slept are slow at first."""
        end = time.monotonic() + PATIENCE
        while self.distances and time.monotonic() < end:
            (looks, far), = self.distances.looks()
            time.sleep(LOOKED)
            (looked, farther), = self.distances.looks()
            if looked > looks and farther - far <= SLOW * (looked - looks):
                return

    def take(self, call):
        """The first result that was measured on steady cores, else that of the steadiest."""
        self.taken += 1
        seen = []
        while not seen or (seen[-1][1] > SLOW and len(seen) < TRIES):
            self.wait()
            seen.append(self.watched(call))
        self.again += len(seen) - 1
        result, share = min(seen, key=lambda of: of[1])
        self.slow += share > SLOW
        return result, share

    def told(self):
        return (f"{self.taken} times measured and {self.again} times again, {self.slow} times in vain: more than "
                f"{100 * SLOW:.0f} % of the looks found a core slow or far")


class AnyCores:
    """The same of cores that are taken as they are."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def take(self, call):
        return call(), None

    def told(self):
        return "cores were taken as they were"
