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

#define PIPEC_ABI_VERSION 2

#ifdef __cplusplus
extern "C" {
#endif

/* Where a buffer lives. "slot" regions exist once per microbatch in flight;
 * the plan says how many slots there are and which one an action uses.       */
enum PipecRegion {
  PIPEC_WORKSPACE,   /* scratch of one call, shared by all stages of a rank     */
  PIPEC_CONSTANTS,   /* frozen tensors and folded constants, read only          */
  PIPEC_WEIGHTS,     /* trained weights, the version this call reads            */
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

/* Every base is 64-byte aligned. */
typedef struct PipecFrame {
  char *base[PIPEC_REGION_COUNT];
  int64_t step;       /* optimizer step, from 0; -1 outside training          */
  int64_t microbatch; /* within the step, from 0                              */
  uint64_t seed;
  /* update only */
  double lr_factor;   /* multiplies the learning rate                         */
  double grad_scale;  /* multiplies every gradient (1/replicas, clipping)     */
  int64_t update;     /* number of this update, from 1 (Adam's t)             */
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
 *     pipec_update          WEIGHTS, GRADIENTS, OPTIMIZER -> NEW_WEIGHTS, OPTIMIZER
 *     pipec_track           STATS -> STATE, once per microbatch in ascending
 *                           order, after the last forward of a step            */

#ifdef __cplusplus
}
#endif
#endif
