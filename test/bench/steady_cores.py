"""Measurements while nobody shares the cores, for benches on machines that others use as well.

The host of a virtual machine may put two of its cores on one core of its own, or a neighbour beside one, or nobody, for
milliseconds or for minutes; multiplications of vectors then take up to twice as long, a chain of dependent operations
as long as before. So the thermometer is a hash whose rounds keep a core's units busy. A process on each core takes it
every few milliseconds, and where any core is slower than beside nobody they keep all of them busy, so that whatever is
measured, which is nicer than they are, all but stands still:

    core 0   run run|                   |run run run
    core 1   run run|slow  slow     slow|run run run
                     held                ^ for QUIET seconds all were as fast as ever: go on

Only the cores decide when something runs, whatever comes of it. A timing that stretches over a hold is an outlier,
which medians leave out as long as a spell of quiet is longer than what is timed; processor time does not count one at
all. Linux and Python's standard library alone.
"""
import hashlib, mmap, multiprocessing, os, sys, time

BLOCK = bytes(1 << 13)
TOLERANCE = 1.15  # the hash repeats within some 5 %; beside a neighbour, or two cores that are one, it takes 1.3 and more
EVERY = 0.003     # seconds between two looks, of which each takes some 30 us
QUIET = 0.02      # seconds that every core must have been as fast as ever: a spell that has lasted will mostly last
LEARNED = 10      # seconds of looks by which it is known how fast that is


def hashed():
    """Seconds in which a block is hashed; the least of three, since what interrupts one of them is no neighbour."""
    least = 1
    for _ in range(3):
        begun = time.perf_counter()
        hashlib.blake2b(BLOCK).digest()
        least = min(least, time.perf_counter() - begun)
    return least


class Slots:
    """What the processes know of each other: of every core how fast it can be, until when it is slow, how long held."""

    def __init__(self, count):
        self.count, self.numbers = count, memoryview(mmap.mmap(-1, 8 * 3 * count)).cast("d")

    def usual(self):
        return list(self.numbers[:self.count])

    def slow_until(self):
        return max(self.numbers[self.count:2 * self.count])

    def held(self):
        return max(self.numbers[2 * self.count:])


def look(slots, core):
    if hashed() > TOLERANCE * min(slots.usual()):
        slots.numbers[slots.count + core] = time.monotonic() + QUIET


def hold(slots, core, cpu, parent):
    """What a core's process does until its parent is gone."""
    os.sched_setaffinity(0, {cpu})
    end, seen = time.monotonic() + LEARNED, []
    while time.monotonic() < end:
        seen.append(hashed())
    slots.numbers[core] = sorted(seen)[len(seen) // 200]
    while not all(slots.usual()):
        time.sleep(EVERY)
    while os.getppid() == parent:
        look(slots, core)
        begun = time.monotonic()
        while time.monotonic() < slots.slow_until() and os.getppid() == parent:
            look(slots, core)
        slots.numbers[2 * slots.count + core] += time.monotonic() - begun
        time.sleep(EVERY)


class SteadyCores:
    """A context whose process, and all that it starts, stands still while a core is slower than it can be."""

    def __enter__(self):
        cpus = sorted(os.sched_getaffinity(0))
        self.slots = Slots(len(cpus))
        self.holders = [multiprocessing.Process(target=hold, args=(self.slots, core, cpu, os.getpid()), daemon=True)
                        for core, cpu in enumerate(cpus)]
        for holder in self.holders:
            holder.start()
        os.nice(19)  # a 68th of a holder's share
        while not all(self.slots.usual()):
            time.sleep(0.1)
        self.begun = time.monotonic()
        told = ", ".join(f"{1e6 * seconds:.1f}" for seconds in self.slots.usual())
        print(f"{len(BLOCK) >> 10} KiB are hashed in {told} us beside nobody", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_):
        for holder in self.holders:
            holder.terminate()

    def told(self):
        return f"cores were held for {self.slots.held():.0f} of {time.monotonic() - self.begun:.0f} s"


class AnyCores:
    """The same of cores that are taken as they are."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def told(self):
        return "cores were taken as they were"
