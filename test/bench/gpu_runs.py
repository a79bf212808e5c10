"""Runs of gpu_check.py: how a program is started, given its time and ended, and how what it leaves is kept."""
import collections
import io
import itertools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

# How far losses may be from PyTorch's; in bf16 they part where a sum lies between two roundings.
BOUNDS = {"fp32": 1e-4, "bf16": 1e-3}
# Of files in an archive, and of the archive: little may come back from where this runs.
MOST_BYTES, MOST_PACKED = 64 << 20, 15 << 20
# A summary says what was wrong once more, so briefly and so often at most.
BRIEF, MOST_BRIEF = 160, 40
# Of a run: `error` is None where it has ended well, else the others are.
Done = collections.namedtuple("Done", "losses seconds summary error")
LATE = "did not end in"  # begins what is wrong with such a run
LEAST = 5  # seconds of a run: with less it does not begin, so that nothing goes on when the time is over
GROUPS = set()  # process groups of what runs
STARTING = threading.RLock()  # of GROUPS: what has begun is there before anybody looks
STOPPING = threading.Event()  # all was asked to end: what ends from then on says nothing


class CutShort(Exception):
    """Something that has not ended in less time than it may take: nothing is known of it."""


class Stopped(BaseException):
    """All was asked to end. No handler of failures takes it for one."""


def finish(command, limit, environment=None):
    """(exit code, stdout, stderr) of a program. After `limit` seconds it is ended, with all that it has started (a checker
    leaves what it checks), and the code is None. It has a process group, and not a session: who ends a session from outside
    ends it, too."""
    with STARTING:
        if STOPPING.is_set():
            raise Stopped
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", env=environment, process_group=0)
        GROUPS.add(process.pid)
    try:
        out, error = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        code = None
        try:
            out, error = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:  # something of another group has its pipes
            out = error = ""
    finally:
        GROUPS.discard(process.pid)
    if STOPPING.is_set():
        raise Stopped
    return code, out, error


class Runs:
    def __init__(self, target, out, standin, minutes, bring=None):
        self.target, self.out, self.standin, self.bring = target, out, standin, bring
        # tools/gpu-check.sh says when it began: what it has done since then is of the same minutes.
        late = time.time() - float(os.environ.get("GPU_CHECK_BEGUN") or time.time())
        self.begun = time.monotonic()
        self.until = self.end = self.begun - max(0, late) + 60 * minutes
        self.wrong, self.results = [], {}
        self.lock = threading.RLock()  # of the two above, and of what is said
        self.way = ((), {})  # more words and environment of all runs, since those without have failed
        self.numbers = itertools.count(1)
        # What pipec-run alone needs: other programs of this machine have their own.
        folders = [self.standin, self.target / "lib", *map(os.environ.get, ("GPU_CHECK_LIBRARIES", "LD_LIBRARY_PATH"))]
        self.libraries = ":".join(str(folder) for folder in folders if folder)
        self.program = self.starting()

    def starting(self):
        """The words that start pipec-run: a system that is older than its C library gets that one, too."""
        program, loader = self.target / "bin/pipec-run", self.target / "libc/ld-linux-x86-64.so.2"
        try:
            environment = dict(os.environ, LD_LIBRARY_PATH=self.libraries)
            process = subprocess.run([program, "--help"], capture_output=True, env=environment)
            if process.returncode == 0 or not loader.exists():
                return [program]
        except OSError:
            pass
        return [loader, "--library-path", "%s:%s" % (loader.parent, self.libraries), program]

    # What is told and kept.

    def say(self, text):
        """To stdout, of which little comes back, its first lines; to OUT/log.txt all of it."""
        with self.lock:
            lines = text.splitlines()
            print("\n".join(lines[:4] + ["    ... (log.txt)"] * (len(lines) > 4))[:600], flush=True)
            with open(self.out / "log.txt", "a") as file:
                file.write(text + "\n")

    def expect(self, condition, text):
        if not condition and not STOPPING.is_set():
            with self.lock:
                self.wrong.append(text)
            self.say("WRONG: " + text)
        return bool(condition)

    def note(self, *keys):
        """The last of `keys` is the value of the others in the results."""
        *outer, last, value = keys
        with self.lock:
            place = self.results
            for key in outer:
                place = place.setdefault(key, {})
            place[last] = value

    def save(self):
        """After every step: whatever ends this, what is known stays."""
        with self.lock:
            self.results["wrong"] = self.wrong
            part = self.out / "results.part"
            part.write_text(json.dumps(self.results, indent=1) + "\n")
            part.rename(self.out / "results.json")
            self.brings(self.out / "results.json")

    def brings(self, path):
        """A file for where --bring wants it, whole at every moment."""
        if self.bring and path.exists():
            self.bring.mkdir(parents=True, exist_ok=True)
            part = self.bring / (path.name + ".part")
            shutil.copy(path, part)
            part.rename(self.bring / path.name)

    def archive(self):
        """All of OUT as OUT.tar.gz, the small files first."""
        self.save()
        name, most = self.out.resolve().name + ".tar.gz", MOST_BYTES
        part = self.out.resolve().with_name(name + ".part")
        while True:
            read, packed = self.write_archive(part, most)
            if packed <= MOST_PACKED or most <= 1 << 20:
                break
            # Each try takes seconds: as much less as the last was too much, and half at most.
            most = min(most // 2, read * MOST_PACKED // packed)
        part.rename(part.with_name(name))
        self.save()
        self.brings(part.with_name(name))
        self.brings(self.out / "log.txt")

    def write_archive(self, part, most):
        """An archive of OUT's files, the smallest first, as long as they have no more than `most` bytes: how many those
        have, and how many it has."""
        files, left_out, all_of_it = [], {}, 0
        for path in filter(pathlib.Path.is_file, self.out.glob("**/*")):
            try:
                files.append((path.stat().st_size, path))
            except OSError:  # gone with the run that had it
                pass
        with tarfile.open(part, "w:gz", compresslevel=6) as archive:
            for size, path in sorted(files):
                most -= size
                name = str(path.relative_to(self.out))
                if most < 0:
                    left_out[name] = size
                    continue
                try:
                    data = path.read_bytes()
                except OSError:
                    continue
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime = len(data), int(time.time())
                all_of_it += len(data)
                archive.addfile(entry, io.BytesIO(data))
        self.note("not in the archive", left_out)
        return all_of_it, part.stat().st_size

    def summary(self):
        """The end of what is printed: a line for each kind of thing that was wrong."""
        with self.lock:
            kinds = {}
            for text in self.wrong:
                name, _, why = " ".join(text.split()).partition(": ")
                kinds.setdefault(why, []).append(name)
            for why, names in list(kinds.items())[:MOST_BRIEF]:
                more = " and %d more" % (len(names) - 2) if len(names) > 2 else ""
                self.say("  %s%s: %s" % (", ".join(names[:2]), more, why[:BRIEF]))
            if len(kinds) > MOST_BRIEF:
                self.say("  and %d more, in results.json" % (len(kinds) - MOST_BRIEF))
            self.say("%d wrong" % len(self.wrong) if self.wrong else "all as promised")

    def stop(self, *_):
        """Asked to end: what runs is ended, and nothing begins; what is known is kept."""
        with STARTING:
            STOPPING.set()
            groups = list(GROUPS)
        for group in groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.say("stopped")
        self.archive()
        os._exit(128 + signal.SIGTERM)

    # Time.

    def left(self):
        return self.until - time.monotonic()

    def step(self, needs, what, work, *arguments):
        """Does one thing; what goes wrong with it goes no further. False when there is no time for it, or too little: else
        it is no more among what is left out."""
        if self.left() < needs or STOPPING.is_set():
            return False
        start, ended = time.monotonic(), True
        try:
            work(*arguments)
        except CutShort as cut:
            self.say("cut short: %s" % cut)
            ended = False
        except Exception:
            self.expect(False, "%s: %s" % (what, traceback.format_exc().strip()[-1500:]))
        self.note("seconds", what, round(time.monotonic() - start, 1))
        with self.lock:
            left = self.results.get("left out", [])
            if ended and what in left:
                left.remove(what)
        self.save()
        return ended

    def each(self, items, jobs=1):
        """Those of `items`, as step takes them, that were not done, `jobs` of them at a time."""
        with ThreadPoolExecutor(jobs) as pool:
            done = list(pool.map(lambda item: self.step(*item), items))
        return [item for item, is_done in zip(items, done) if not is_done]

    # pipec-run.

    def command(self, plan, inputs, data, steps, words, environment):
        """The words, the environment and the file of metrics of a run."""
        metrics = self.out / ("metrics-%d.jsonl" % next(self.numbers))
        flags = [word for name in inputs for word in ("--data", "%s=%s" % (name, data / (name + ".npy")))]
        more, settings = self.way
        if more[:1] == ["--graphs"] and "--graphs" in words:
            more = []
        environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries, **settings, **(environment or {})}
        if self.standin:
            environment["PIPEC_STANDIN_CODE"] = str(plan.parent / "code")
            environment.setdefault("PIPEC_STANDIN_DEVICES", "1")
        return ([*self.program, plan, *flags, "--steps", steps, "--metrics", metrics, "--quiet", *words, *more],
                environment, metrics)

    def attempt(self, plan, inputs, data, steps, *words, before=(), limit=90, environment=None):
        """What becomes of a run; nobody is told. CutShort when there was less time than `limit`, and it has not ended."""
        least = min(limit, self.left())
        if least < min(LEAST, limit):
            raise CutShort(name_of(plan))
        command, environment, metrics = self.command(plan, inputs, data, steps, words, environment)
        try:
            code, out, error = finish([*before, *command], least, environment)
            if code is None and least < limit:
                raise CutShort(name_of(plan))
            if code is None:
                return Done(None, None, None, "%s %d s: %s" % (LATE, limit, (error + out).strip()[-500:]))
            if code:
                return Done(None, None, None, "exit %d: %s" % (code, (error + out).strip()[-1500:]))
            lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        finally:
            metrics.unlink(missing_ok=True)
        return Done([line["loss"] for line in lines if "loss" in line],
                    [line["seconds"] for line in lines if "loss" in line], lines[-1]["summary"], None)

    def run(self, plan, *arguments, **settings):
        """What becomes of a run that has to end well; None after a failure."""
        done = self.attempt(plan, *arguments, **settings)
        return done if self.expect(done.error is None, "%s: %s" % (name_of(plan), done.error)) else None


def name_of(plan):
    return plan.name if plan.parent.name == "plans" else "%s-%s" % (plan.parent.name, plan.name)
