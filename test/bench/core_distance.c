// How far cores are from the first, for steady_cores.py: a thread on each of at
// most 64 looks every few milliseconds.
//
// Usage: core_distance FILE. FILE, of 4 KiB, becomes numbers (double): 1 when
// it is known how near cores can be, looks, those that found one far, and the
// ns from core to core where they are near, by a clock read at both ends. Ends
// with its parent.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { EVERY = 5000000, LATE = 300000 };             // ns
enum { LEARNED = 2000, ROUNDS = 8, MOST_CORES = 64 };
static const double FAR = 2;

static struct {
  _Alignas(128) _Atomic int64_t ball;
} courts[MOST_CORES]; // between the first core and another
static int cores[MOST_CORES], count;
static volatile double *told;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/// Balls have numbers that no other look has, so that one which was left lying
/// is nobody's.
static int64_t ball(int64_t tick, int i) { return tick * 2 * ROUNDS + i; }

/// Whether the ball comes to court `other` in time.
static int caught(int other, int64_t wanted, int64_t late) {
  for (int i = 1; atomic_load(&courts[other].ball) != wanted; ++i)
    if (i % 64 == 0 && now() > late)
      return 0;
  return 1;
}

/// Returns every ball until the first core has had enough.
static void returnBalls(int other, int64_t tick, int64_t late) {
  for (int i = 0; i < ROUNDS && caught(other, ball(tick, 2 * i), late); ++i)
    atomic_store(&courts[other].ball, ball(tick, 2 * i + 1));
}

/// ns from core to core, the least of some; 0 where the other does not come.
static double distance(int other, int64_t tick, int64_t late) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < ROUNDS; ++i) {
    const int64_t begin = now();
    atomic_store(&courts[other].ball, ball(tick, 2 * i));
    if (!caught(other, ball(tick, 2 * i + 1), late))
      return 0;
    const int64_t took = now() - begin;
    least = i > 0 && took < least ? took : least;
  }
  return (double)least / 2;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/// Each tick is one other core's turn.
static int other(int64_t tick) { return 1 + (int)(tick % (count - 1)); }

static void look(int64_t tick, int64_t late) {
  static double seen[LEARNED], usual;
  static int looks;
  const double away = distance(other(tick), tick, late);
  if (away == 0)
    return;
  if (looks < LEARNED) {
    seen[looks++] = away;
    return;
  }
  if (usual == 0) {
    qsort(seen, LEARNED, sizeof *seen, compare);
    told[3] = usual = seen[LEARNED / 50];
    told[0] = 1;
  }
  told[1] += 1, told[2] += away > FAR * usual;
}

static void *watch(void *argument) {
  const int core = (int)(intptr_t)argument;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[core], &set);
  sched_setaffinity(0, sizeof set, &set);
  for (;;) {
    const int64_t tick = now() / EVERY + 1, next = tick * EVERY;
    const struct timespec at = {next / 1000000000, next % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    if (core == 0)
      look(tick, next + LATE);
    else if (core == other(tick))
      returnBalls(core, tick, next + LATE);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 2)
    return fputs("usage: core_distance FILE\n", stderr), 64;
  FILE *file = fopen(argv[1], "r+");
  cpu_set_t set;
  if (!file || sched_getaffinity(0, sizeof set, &set))
    return perror(argv[1]), 74;
  told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  if (told == MAP_FAILED)
    return perror(argv[1]), 74;
  for (int cpu = 0; cpu < CPU_SETSIZE && count < MOST_CORES; ++cpu)
    if (CPU_ISSET(cpu, &set))
      cores[count++] = cpu;
  if (count < 2)
    return fputs("core_distance: one core is near itself\n", stderr), 69;
  const pid_t parent = getppid();
  for (intptr_t core = 0; core < count; ++core) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, (void *)core))
      return perror("core_distance"), 71;
  }
  while (getppid() == parent)
    usleep(100000);
  return 0;
}
