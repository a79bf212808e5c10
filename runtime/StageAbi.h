/*===- StageAbi.h - what a compiled stage and the runtime know of each other -===
 *
 * A stage program is a shared object of position-independent functions over
 * one frame of base addresses. It allocates nothing and knows nothing of ranks,
 * transports or schedules: every buffer is base[region] + constant offset, so
 * the same code runs on any weight version, any stash slot, any microbatch.
 *
 * Plain C, so that tests can write stage programs by hand.
 *===----------------------------------------------------------------------===*/
/* clang-format off: the comments are tables */
#ifndef PIPEC_RUNTIME_STAGEABI_H
#define PIPEC_RUNTIME_STAGEABI_H

#include <stdint.h>

#define PIPEC_ABI_VERSION 7

#ifdef __cplusplus
extern "C" {
#endif

/* Where a buffer lives. "slot" regions exist once per microbatch in flight;
 * the plan says how many slots there are and which one an action uses.       */
enum PipecRegion {
  PIPEC_WORKSPACE,   /* scratch of one call, shared by all stages of a rank     */
  PIPEC_CONSTANTS,   /* frozen tensors and folded constants, read only          */
  PIPEC_WEIGHTS,     /* trained weights, the version this call reads, and the
                        rounded copies that the plan names (Stage::rounded)     */
  PIPEC_NEW_WEIGHTS, /* update only: where the new version goes (may be equal)  */
  PIPEC_GRADIENTS,   /* accumulators, one per use of a weight; zeroed by the
                        runtime at the start of an update period               */
  PIPEC_OPTIMIZER,   /* optimizer state                                         */
  PIPEC_STATE,       /* running statistics: read by forward, changed by track   */
  PIPEC_STATS,       /* this microbatch's row of batch statistics (slot)        */
  PIPEC_IN,          /* received activations and model inputs (slot)            */
  PIPEC_STASH,       /* forward -> backward (slot)                              */
  PIPEC_OUT,         /* activations to send (slot)                              */
  PIPEC_GRAD_IN,     /* received gradients (slot)                               */
  PIPEC_GRAD_OUT,    /* gradients to send (slot)                                */
  PIPEC_WSTASH,      /* backward_input -> backward_weight (slot)                */
  PIPEC_LOSS,        /* float: the microbatch's loss, written by the last stage */
  PIPEC_OUTPUTS,     /* the model's outputs that this stage makes               */
  PIPEC_REGION_COUNT
};

struct PipecDevice;

/* Every base is 64-byte aligned; on a GPU it is an address of its memory. */
typedef struct PipecFrame {
  char *base[PIPEC_REGION_COUNT];
  int64_t step;       /* optimizer step, from 0; -1 outside training          */
  int64_t microbatch; /* within the step, from 0                              */
  uint64_t seed;
  /* update only */
  double lr_factor;   /* multiplies the learning rate                         */
  double grad_scale;  /* multiplies every gradient (1/replicas, clipping)     */
  int64_t update;     /* number of this update, from 1 (Adam's t)             */
  /* GPU only */
  struct PipecDevice *device; /* the stage's code on the GPU                    */
  char *scalars;      /* this frame in the GPU's memory: kernels read numbers
                         from there, at their place in the frame                */
} PipecFrame;

typedef void (*PipecTask)(PipecFrame *);

/* A stage program exports (C linkage):
 *   const int32_t pipec_abi_version;               == PIPEC_ABI_VERSION
 *   void pipec_load(void);                         optional: prepares library
 *                                                  primitives, called once
 *   PipecTask-typed functions, those that the plan's stage lists:
 *     pipec_forward         IN, WEIGHTS, CONSTANTS, STATE -> STASH, OUT, STATS, LOSS,
 *                           OUTPUTS
 *     pipec_backward        IN, STASH, GRAD_IN, WEIGHTS -> GRAD_OUT, += GRADIENTS
 *     pipec_backward_input  the part of backward that other stages wait for
 *                           (-> GRAD_OUT, WSTASH)
 *     pipec_backward_weight the rest (IN, STASH, WSTASH -> += GRADIENTS)
 *     pipec_update          WEIGHTS, GRADIENTS, OPTIMIZER -> NEW_WEIGHTS (with their
 *                           rounded copies), OPTIMIZER
 *     pipec_track           STATS -> STATE, once per microbatch in ascending
 *                           order, after the last forward of a step            */

/* A stage for GPUs is the same: its functions run on the host and hand work to
 * the device, in order, through the table that the runtime gives them. Nothing
 * waits for the device. Descriptors are those of runtime/kernels/cpu/Kernels.h.
 * Failures are kept by the runtime and looked for after the call.             */
struct PipecMatmul;
struct PipecConv;

/* Attention whose rows are contiguous, or both gradients of it. Numbers are of
 * bf16, those of a row (tops, shares) of f32 and dense.                        */
enum PipecAttentionTensor {
  PIPEC_ATTENTION_Q,
  PIPEC_ATTENTION_K,
  PIPEC_ATTENTION_V,
  PIPEC_ATTENTION_Y,
  PIPEC_ATTENTION_DY, /* from here on: of gradients only                        */
  PIPEC_ATTENTION_DQ,
  PIPEC_ATTENTION_DK,
  PIPEC_ATTENTION_DV,
  PIPEC_ATTENTION_TENSORS,
  /* numbers of rows behind them, in the array of a call                        */
  PIPEC_ATTENTION_TOPS = PIPEC_ATTENTION_TENSORS,
  PIPEC_ATTENTION_SHARES, /* forward only                                       */
  PIPEC_ATTENTION_ARGUMENTS
};
typedef struct PipecAttention {
  int64_t batch, heads, queries, keys, size;
  /* elements from one batch, head and row to the next                          */
  int64_t stride[PIPEC_ATTENTION_TENSORS][3];
  double scale;
  int32_t causal, gradient;
  int32_t calls; /* that it saves                                             */
} PipecAttention;

typedef struct PipecDevice {
  /* kernel<number> of the stage with these pointers as its arguments.          */
  void (*launch)(struct PipecDevice *, int32_t kernel, int64_t blocks,
                 int32_t threads, int32_t shared_bytes, char *const *arguments,
                 int32_t count);
  void (*matmul)(struct PipecDevice *, const struct PipecMatmul *, const char *a,
                 const char *b, char *c);
  /* c = a b + bias, one number of the bias for each column. 0 and nothing done
     where the library adds none to such a product. Counts as the two calls that
     it saves. */
  int32_t (*biased)(struct PipecDevice *, const struct PipecMatmul *,
                    const char *a, const char *b, const char *bias, char *c);
  /* kind: PipecConvKind; operands in the order of the function on the CPU.     */
  void (*conv)(struct PipecDevice *, const struct PipecConv *, int32_t kind,
               const char *first, const char *second, char *result);
  /* Attention by a library, at[PipecAttentionTensor]: shares become 1 and tops
     the logarithms of the sums of exp(score), which are what generated kernels
     of the gradient take as well; both may be null. 0 and nothing done where
     no library is asked, for both gradients the same as for the forward of
     such sizes. Counts as the calls that it saves.                             */
  int32_t (*attention)(struct PipecDevice *, const PipecAttention *,
                       char *const *at);
  void (*clear)(struct PipecDevice *, char *at, int64_t bytes);
  char *literals; /* copy of pipec_literals in the GPU's memory                 */
  char *fault;    /* int64_t[3]: 1 when an index was out of range, the index, the
                     size that it should have been below                        */
  int64_t row_bytes; /* most shared_bytes of a launch: what each of two blocks on a
                     multiprocessor may have, or the 48 KiB that all may        */
} PipecDevice;

/* It exports besides
 *   const int32_t pipec_kernel_count;
 *   const char pipec_ptx[];                        text, ends with 0
 *   const char pipec_cubin_80[], pipec_cubin_90[]; optional, for those chips
 *   const int64_t pipec_<each of them>_bytes;
 *   const char pipec_literals[]; const int64_t pipec_literals_bytes;
 * Its code has, beside kernel0 ..., what the runtime itself launches, with
 * blocks of PIPEC_HELPER_THREADS and numbers in place of pointers:
 *   pipec_sum(float *to, count, t0 ... t7)         a thread an element: to[i] =
 *                                                  t0[i] + t1[i] + ..., without
 *                                                  the terms that are null
 *   pipec_squares(double *to, count, float *from)  to[t] = the sum of from[i]^2
 *                                                  over i = t, t + T, ..., T =
 *                                                  all threads, of
 *                                                  PIPEC_SQUARES_BLOCKS
 *   pipec_widen(float *to, count, bf16 *from)      a thread an element: from[i]
 *   pipec_round(bf16 *to, count, float *from)      in the other type, rounded
 *                                                  to the nearest even */
enum {
  PIPEC_HELPER_THREADS = 256,
  PIPEC_SUM_TERMS = 8,
  PIPEC_SQUARES_BLOCKS = 64
};

#ifdef __cplusplus
}
#endif
#endif
