// How far cores are from the first, for steady_cores.py: a thread on each looks
// every few milliseconds.
//
// Usage: core_distance FILE. FILE, which exists, becomes numbers (double): 1
// when it is known how near cores can be, looks, those that found one far, and
// the ns from core to core where they are near. Ends with its parent.
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

enum { EVERY = 5000000, LATE = 300000, LEARNED = 2000, ROUNDS = 8, MOST = 64 };
static const double FAR = 2;

static struct {
  _Alignas(128) _Atomic int ball;
} courts[MOST]; // between the first core and another
static int cores[MOST], count;
static volatile double *told;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/// The ball at court `other` when it is `wanted`; false where nobody plays.
static int caught(int other, int wanted, int64_t late) {
  for (int i = 1; atomic_load(&courts[other].ball) != wanted; ++i)
    if (i % 64 == 0 && now() > late)
      return 0;
  return 1;
}

/// Returns every ball until the first core has had enough.
static void returnBalls(int other, int64_t late) {
  for (int i = 0; i < ROUNDS && caught(other, 2 * i + 1, late); ++i)
    atomic_store(&courts[other].ball, 2 * i + 2);
}

/// ns from core to core, the least of some; 0 where the other does not come.
static double distance(int other, int64_t late) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < ROUNDS; ++i) {
    const int64_t begin = now();
    atomic_store(&courts[other].ball, 2 * i + 1);
    if (!caught(other, 2 * i + 2, late))
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

static void look(void) {
  static double seen[LEARNED], usual;
  static int looks;
  const int64_t late = now() + LATE;
  double farthest = 0;
  for (int other = 1; other < count; ++other) {
    const double away = distance(other, late);
    if (away == 0)
      return;
    farthest = away > farthest ? away : farthest;
  }
  if (looks < LEARNED) {
    seen[looks++] = farthest;
    return;
  }
  if (usual == 0) {
    qsort(seen, LEARNED, sizeof *seen, compare);
    told[3] = usual = seen[LEARNED / 50];
    told[0] = 1;
  }
  told[1] += 1, told[2] += farthest > FAR * usual;
}

static void *watch(void *argument) {
  const int core = (int)(intptr_t)argument;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[core], &set);
  sched_setaffinity(0, sizeof set, &set);
  for (;;) {
    const int64_t next = (now() / EVERY + 1) * EVERY;
    const struct timespec at = {next / 1000000000, next % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
    if (core == 0)
      look();
    else
      returnBalls(core, next + LATE);
  }
  return NULL;
}

int main(int argc, char **argv) {
  FILE *file = argc == 2 ? fopen(argv[1], "r+") : NULL;
  cpu_set_t set;
  if (!file || sched_getaffinity(0, sizeof set, &set))
    return perror("core_distance FILE"), 64;
  told = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
  if (told == MAP_FAILED)
    return perror(argv[1]), 74;
  for (int cpu = 0; cpu < CPU_SETSIZE && count < MOST; ++cpu)
    if (CPU_ISSET(cpu, &set))
      cores[count++] = cpu;
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
