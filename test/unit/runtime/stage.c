/* stage.c - a stage program written by hand, for the runtime's tests.
 *
 * A model of LAYERS layers on [B, D] floats; this stage has layers [LO, HI):
 *   h0 = x * e * c            (e: a weight with two uses; c: frozen)
 *   y_l = h_l W_l + b_l,  z_l = leaky(y_l),  h_(l+1) = z_l
 *   h_(LAYERS-1) += z_0       (a skip connection over several stages)
 *   o = z_(LAYERS-1) * e
 *   loss = mean((o - target)^2) + mean over samples of o[label]
 * Running mean of y_l over the samples; SGD with momentum.
 * test_layout tells the test where everything lies.
 */
#define _GNU_SOURCE
#include "runtime/StageAbi.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST (LO == 0)
#define LAST (HI == LAYERS)
#define SKIPS (LAYERS > 1) /* z_0 is added further down */
#define SKIP_IN (LAST && !FIRST)
#define SKIP_OUT (FIRST && !LAST)
#define COUNT (HI - LO)
#define ROUND(x) (((x) + 63) / 64 * 64)
#define ACT ROUND(B *D * 4)  /* an activation */
#define MAT ROUND(D *D * 4)  /* a W */
#define VEC ROUND(D * 4)     /* a b, e, c, statistic */
#define HAS_E (FIRST || LAST)

/* weights and optimizer: W b per layer, then e; gradients: the same, then the
 * second use of e when both are here */
#define AT_W(i) ((i) * (MAT + VEC))
#define AT_B(i) (AT_W(i) + MAT)
#define AT_E AT_W(COUNT)
/* in: h, skip, x, target, label */
#define AT_H 0
#define AT_SKIP (FIRST ? 0 : ACT)
#define AT_X (AT_SKIP + (SKIP_IN ? ACT : 0))
#define AT_TARGET (AT_X + (FIRST ? ACT : 0))
#define AT_LABEL (AT_TARGET + (LAST ? ACT : 0))
/* stash: h and y per layer, then o's factor z, then z_0 */
#define AT_SH(i) ((i) * 2 * ACT)
#define AT_SY(i) (AT_SH(i) + ACT)
#define AT_SZ (COUNT * 2 * ACT)
#define AT_Z0 (AT_SZ + (LAST ? ACT : 0))

const int32_t pipec_abi_version = PIPEC_ABI_VERSION;

static long sleep_us;
/* The first loss of this step is a little off, once in a process, and never in
 * the one of rank 0 when ranks are processes: there the oracle runs. */
static long disturb_step = -1;

/* A fault to inject: "LO KIND STEP MICROBATCH SIGNAL"; KIND is F, B or U. */
static struct {
  int lo, step, microbatch, signal;
  char kind;
} fault;

/* A gradient that is no number: "LO STEP". */
static struct {
  int lo, step;
} spoiled;

void pipec_load(void) {
  const char *text = getenv("PIPEC_TEST_SLEEP_US");
  sleep_us = text ? atol(text) : 0;
  text = getenv("PIPEC_TEST_THREADS"); /* where to say how many there are */
  if (text) {
    int (*threads)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "pipec_threads");
    FILE *file = fopen(text, "a");
    fprintf(file, "%d ", threads ? threads() : -1);
    fclose(file);
  }
  text = getenv("PIPEC_TEST_DISTURB");
  disturb_step = text ? atol(text) : -1;
  text = getenv("OMPI_COMM_WORLD_RANK");
  if (text && atol(text) == 0)
    disturb_step = -1;
  spoiled.lo = -1;
  text = getenv("PIPEC_TEST_NAN");
  if (text)
    sscanf(text, "%d %d", &spoiled.lo, &spoiled.step);
  fault.lo = -1;
  text = getenv("PIPEC_TEST_FAULT");
  if (text)
    sscanf(text, "%d %c %d %d %d", &fault.lo, &fault.kind, &fault.step,
           &fault.microbatch, &fault.signal);
}

static void maybe_fail(PipecFrame *f, char kind) {
  if (fault.lo == LO && fault.kind == kind && fault.step == f->step &&
      fault.microbatch == f->microbatch) {
    if (fault.signal)
      raise(fault.signal);
    else /* never comes back, but lives */
      for (;;)
        pause();
  }
}

int64_t test_layout(const char *what, int64_t layer) {
  const int64_t i = layer - LO;
#define IS(name) (strcmp(what, name) == 0)
  if (IS("workspace") || IS("wstash")) return COUNT * ACT;
  if (IS("constants")) return FIRST ? VEC : 0;
  if (IS("weights") || IS("optimizer")) return AT_E + (HAS_E ? VEC : 0);
  if (IS("gradients")) return AT_E + (FIRST ? VEC : 0) + (LAST ? VEC : 0);
  if (IS("state") || IS("stats")) return COUNT * VEC;
  if (IS("in")) return AT_LABEL + (LAST ? ROUND(B * 8) : 0);
  if (IS("stash")) return AT_Z0 + (FIRST ? ACT : 0);
  if (IS("out")) return LAST ? 0 : ACT;
  if (IS("grad_in")) return (LAST ? 0 : ACT) + (SKIP_OUT ? ACT : 0);
  if (IS("grad_out")) return (FIRST ? 0 : ACT) + (SKIP_IN ? ACT : 0);
  if (IS("at W")) return AT_W(i);
  if (IS("at b")) return AT_B(i);
  if (IS("at e")) return AT_E;
  if (IS("at e use 0")) return AT_E;
  if (IS("at e use 1")) return AT_E + (FIRST ? VEC : 0);
  if (IS("at mean")) return i * VEC;
  if (IS("at h")) return AT_H;
  if (IS("at skip")) return AT_SKIP;
  if (IS("at x")) return AT_X;
  if (IS("at target")) return AT_TARGET;
  if (IS("at label")) return AT_LABEL;
  if (IS("at z0")) return AT_Z0;
  if (IS("at skip gradient in")) return ACT;
  if (IS("at skip gradient out")) return ACT;
  return -1;
}

#define F(region, offset) ((float *)(f->base[PIPEC_##region] + (offset)))

void pipec_forward(PipecFrame *f) {
  maybe_fail(f, 'F');
  if (sleep_us) {
    const struct timespec time = {sleep_us / 1000000, sleep_us % 1000000 * 1000};
    nanosleep(&time, 0);
  }
  float h[B * D];
#if FIRST
  const float *x = F(IN, AT_X), *e0 = F(WEIGHTS, AT_E), *c = F(CONSTANTS, 0);
  for (int i = 0; i < B * D; ++i) h[i] = x[i] * e0[i % D] * c[i % D];
#else
  memcpy(h, F(IN, AT_H), sizeof h);
#endif
  for (int l = 0; l < COUNT; ++l) {
    if (SKIPS && LO + l == LAYERS - 1) {
      const float *skip = SKIP_IN ? F(IN, AT_SKIP) : F(STASH, AT_Z0);
      for (int i = 0; i < B * D; ++i) h[i] += skip[i];
    }
    float *y = F(STASH, AT_SY(l)), *mean = F(STATS, l * VEC);
    const float *w = F(WEIGHTS, AT_W(l)), *b = F(WEIGHTS, AT_B(l));
    memcpy(F(STASH, AT_SH(l)), h, sizeof h);
    for (int n = 0; n < B; ++n)
      for (int j = 0; j < D; ++j) {
        float sum = b[j];
        for (int i = 0; i < D; ++i) sum += h[n * D + i] * w[i * D + j];
        y[n * D + j] = sum;
      }
    for (int j = 0; j < D; ++j) {
      float sum = 0;
      for (int n = 0; n < B; ++n) sum += y[n * D + j];
      mean[j] = sum / B;
    }
    for (int i = 0; i < B * D; ++i) h[i] = y[i] > 0 ? y[i] : 0.5f * y[i];
    if (LO + l == 0 && FIRST) memcpy(F(STASH, AT_Z0), h, sizeof h);
  }
#if LAST
  const float *e = F(WEIGHTS, AT_E), *target = F(IN, AT_TARGET);
  const int64_t *label = (const int64_t *)(f->base[PIPEC_IN] + AT_LABEL);
  memcpy(F(STASH, AT_SZ), h, sizeof h);
  float squares = 0, picked = 0;
  for (int i = 0; i < B * D; ++i) {
    const float d = h[i] * e[i % D] - target[i];
    squares += d * d;
  }
  for (int n = 0; n < B; ++n) picked += h[n * D + label[n]] * e[label[n]];
  *F(LOSS, 0) = squares / (B * D) + picked / B;
  if (f->step == disturb_step) {
    disturb_step = -1;
    *F(LOSS, 0) *= 1.001f;
  }
#else
  memcpy(F(OUT, 0), h, sizeof h);
#endif
}

/* Leaves the gradient of every y in `dy`, and what leaves the stage. */
static void backward_input(PipecFrame *f, float *dy) {
  maybe_fail(f, 'B');
  float d[B * D];
#if LAST
  const float *e = F(WEIGHTS, AT_E), *target = F(IN, AT_TARGET);
  const float *z = F(STASH, AT_SZ);
  const int64_t *label = (const int64_t *)(f->base[PIPEC_IN] + AT_LABEL);
  for (int n = 0; n < B; ++n)
    for (int j = 0; j < D; ++j) {
      const int i = n * D + j;
      float g = 2.0f * (z[i] * e[j] - target[i]) / (B * D);
      if (label[n] == j) g += 1.0f / B;
      d[i] = g / M * e[j];
    }
#else
  memcpy(d, F(GRAD_IN, 0), sizeof d);
#endif
  float skip[B * D];
  memset(skip, 0, sizeof skip);
#if SKIP_OUT
  memcpy(skip, F(GRAD_IN, ACT), sizeof skip);
#endif
  for (int l = COUNT - 1; l >= 0; --l) {
    const float *y = F(STASH, AT_SY(l)), *w = F(WEIGHTS, AT_W(l));
    float *g = dy + l * (ACT / 4);
    if (LO + l == 0)
      for (int i = 0; i < B * D; ++i) d[i] += skip[i];
    for (int i = 0; i < B * D; ++i) g[i] = y[i] > 0 ? d[i] : 0.5f * d[i];
    for (int n = 0; n < B; ++n)
      for (int i = 0; i < D; ++i) {
        float sum = 0;
        for (int j = 0; j < D; ++j) sum += g[n * D + j] * w[i * D + j];
        d[n * D + i] = sum;
      }
    if (SKIPS && LO + l == LAYERS - 1) {
#if SKIP_IN
      memcpy(F(GRAD_OUT, ACT), d, sizeof d);
#else
      memcpy(skip, d, sizeof d);
#endif
    }
  }
#if FIRST
  (void)d;
#else
  memcpy(F(GRAD_OUT, 0), d, sizeof d);
#endif
}

static void backward_weight(PipecFrame *f, const float *dy) {
  if (spoiled.lo == LO && spoiled.step == f->step && f->microbatch == 0)
    *F(GRADIENTS, AT_B(0)) = 0.0f / 0.0f;
  for (int l = 0; l < COUNT; ++l) {
    const float *g = dy + l * (ACT / 4), *h = F(STASH, AT_SH(l));
    float *dw = F(GRADIENTS, AT_W(l)), *db = F(GRADIENTS, AT_B(l));
    for (int i = 0; i < D; ++i)
      for (int j = 0; j < D; ++j) {
        float sum = 0;
        for (int n = 0; n < B; ++n) sum += h[n * D + i] * g[n * D + j];
        dw[i * D + j] += sum;
      }
    for (int j = 0; j < D; ++j) {
      float sum = 0;
      for (int n = 0; n < B; ++n) sum += g[n * D + j];
      db[j] += sum;
    }
  }
#if FIRST
  { /* d loss / d h0, again from dy_0 */
    const float *w = F(WEIGHTS, AT_W(0)), *x = F(IN, AT_X), *c = F(CONSTANTS, 0);
    float *de = F(GRADIENTS, AT_E);
    for (int i = 0; i < D; ++i) {
      float total = 0;
      for (int n = 0; n < B; ++n) {
        float sum = 0;
        for (int j = 0; j < D; ++j) sum += dy[n * D + j] * w[i * D + j];
        total += sum * x[n * D + i] * c[i];
      }
      de[i] += total;
    }
  }
#endif
#if LAST
  {
    const float *e = F(WEIGHTS, AT_E), *target = F(IN, AT_TARGET);
    const float *z = F(STASH, AT_SZ);
    const int64_t *label = (const int64_t *)(f->base[PIPEC_IN] + AT_LABEL);
    float *de = F(GRADIENTS, AT_E + (FIRST ? VEC : 0));
    for (int j = 0; j < D; ++j) {
      float total = 0;
      for (int n = 0; n < B; ++n) {
        const int i = n * D + j;
        float g = 2.0f * (z[i] * e[j] - target[i]) / (B * D);
        if (label[n] == j) g += 1.0f / B;
        total += g / M * z[i];
      }
      de[j] += total;
    }
  }
#endif
}

void pipec_backward_input(PipecFrame *f) { backward_input(f, F(WSTASH, 0)); }
void pipec_backward_weight(PipecFrame *f) { backward_weight(f, F(WSTASH, 0)); }
void pipec_backward(PipecFrame *f) {
  backward_input(f, F(WORKSPACE, 0));
  backward_weight(f, F(WORKSPACE, 0));
}

static void sgd(PipecFrame *f, int64_t at, int64_t gradient, int64_t count) {
  const float *w = F(WEIGHTS, at), *g = F(GRADIENTS, gradient);
  float *next = F(NEW_WEIGHTS, at), *m = F(OPTIMIZER, at);
  for (int64_t i = 0; i < count; ++i) {
    m[i] = 0.9f * m[i] + g[i] * (float)f->grad_scale;
    next[i] = w[i] - 0.05f * (float)f->lr_factor * m[i];
  }
}

void pipec_update(PipecFrame *f) {
  maybe_fail(f, 'U');
  for (int l = 0; l < COUNT; ++l) {
    sgd(f, AT_W(l), AT_W(l), D * D);
    sgd(f, AT_B(l), AT_B(l), D);
  }
  if (HAS_E) sgd(f, AT_E, AT_E, D);
}

void pipec_track(PipecFrame *f) {
  for (int l = 0; l < COUNT; ++l)
    for (int j = 0; j < D; ++j) {
      float *running = F(STATE, l * VEC) + j;
      *running = 0.9f * *running + 0.1f * F(STATS, l * VEC)[j];
    }
}
