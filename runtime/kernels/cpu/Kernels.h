/*===- Kernels.h - the CPU kernel library called by stage programs ---------===
 *
 * Generated stage programs call these functions for contractions and for the
 * few operations that are not generated. Plain C linkage; every descriptor is
 * plain data that a program holds as a constant (PipecConv as a variable,
 * because loading fills `prepared`).
 *
 * Common rules
 *  - Sizes, strides and leading dimensions count elements, never bytes.
 *  - Tensors are dense row-major unless a descriptor has strides or a layout.
 *  - Buffers must be aligned to their element; 64 bytes is faster. Outputs must
 *    not overlap inputs unless a function says so.
 *  - Results are a function of the descriptor and the data alone: the same bits
 *    for every thread count and every repetition. Work is cut by shape, and
 *    every sum has a fixed order.
 *  - Nothing is allocated in a call. What a function needs beyond its operands
 *    is `scratch`, whose size the compiler asks for beforehand, and a workspace
 *    of fixed size that each thread of the team gets once
 *    (pipec_prepare_kernels).
 *  - A size of zero is legal everywhere and means an empty loop; a product
 *    with k = 0 is a matrix of zeros.
 *  - No product is skipped because a factor is zero: NaN and infinity reach
 *    whatever they reach by the definition. Convolutions may spread them to a
 *    few neighbouring outputs as well (Winograd's tiles; padding multiplied by
 *    an infinite weight).
 *  - The loops are compiled for x86-64-v4 (AVX-512), v3 (AVX2) and baseline,
 *    and chosen by the processor. v4 and v3 give the same bits; the baseline
 *    has no fused multiply-add and rounds otherwise, and so do products of
 *    bf16 where the processor has an instruction for them (AVX512-BF16).
 *    PIPEC_KERNELS=v4|v3|baseline in the environment lowers the choice (for
 *    tests; v4 is without AVX512-BF16).
 *  - Functions called from inside pipec_parallel run on the calling thread.
 *===----------------------------------------------------------------------===*/
#ifndef PIPEC_RUNTIME_KERNELS_CPU_KERNELS_H
#define PIPEC_RUNTIME_KERNELS_CPU_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types. Contractions and pooling take F32 and F64 (F64 is for gradient
 * checks: correct, not fast); gather and scatter-add any of them but BF16. */
enum PipecType {
  PIPEC_F32 = 0,
  PIPEC_F64 = 1,
  PIPEC_I32 = 2,
  PIPEC_I64 = 3,
  PIPEC_I8 = 4,  /* also booleans */
  PIPEC_BF16 = 5 /* products alone */
};

/* Layouts of an activation of logical shape [N, C, spatial...].
 *  PLAIN:   [N][C][spatial]
 *  BLOCKED: [N][ceil(C/16)][spatial][16]: channel c is lane c%16 of block c/16
 *           (oneDNN's nCw16c / nChw16c / nCdhw16c). Lanes beyond C exist in
 *           memory; whatever writes a blocked tensor writes zeros there, and
 *           whatever reads one may assume finite values there.
 * A blocked tensor has N * ceil(C/16)*16 * spatial elements. */
enum PipecLayout { PIPEC_PLAIN = 0, PIPEC_BLOCKED = 1 };

/*===----------------------------------------------------------------------===
 * Threads
 *===----------------------------------------------------------------------===*/

/* How many threads share the calling thread's loops; 1 inside a loop. It is
 * OMP_NUM_THREADS, or the cores that the process may use, until set. */
void pipec_set_threads(int threads);
int pipec_threads(void);

/* The calling thread's loops that are worth no more than `times` grains (above
 * 1), or so many small products, are not shared; 1 until set. What they compute
 * is the same (SharingTrials.h). */
void pipec_share_from(int64_t times);

/* Runs kernel(lo, hi, args) over disjoint ranges that cover [0, n), a few per
 * thread, and returns when all are done. Every range starts at a multiple of
 * `grain` (so a kernel that works in chunks of `grain` rows sees whole chunks),
 * and no range but the last is shorter than one grain; grain < 1 counts as 1.
 * Which thread runs a range is not fixed. One range is run, by the caller, when
 * the whole is within one grain, or as many as pipec_share_from says, with one
 * thread, and inside a loop. Threads that call this at the same time have a
 * team of helpers each (Team.h). */
void pipec_parallel(void (*kernel)(int64_t lo, int64_t hi, void *const *args),
                    int64_t n, int64_t grain, void *const *args);

/* Gives every thread of the team its workspace, so that no later call
 * allocates. A program calls it once at load, after the number of threads is
 * settled; without it a thread's first product or convolution does it. */
void pipec_prepare_kernels(void);

/* Bytes of that workspace, per thread. Single precision touches about half. */
int64_t pipec_workspace_bytes(void);

/*===----------------------------------------------------------------------===
 * Matrix product
 *===----------------------------------------------------------------------===*/

/* c[b...] = op(a[b...]) op(b[b...]), or += with `accumulate`.
 * op(a) is m x k: stored as m rows of k with row stride lda, or, when
 * transpose_a, as k rows of m with row stride lda. op(b) is k x n, likewise;
 * c is m rows of n with row stride ldc. The last index always has stride 1.
 * batch[0..batch_rank) are outer loops with element strides per operand.
 * stride_a = 0 or stride_b = 0 broadcasts that operand. stride_c = 0 SUMS over
 * that batch index in ascending order (the gradient of a broadcast operand);
 * other strides of c must keep the matrices apart.
 * batch_rank 0..4. */
typedef struct PipecMatmul {
  int32_t dtype; /* PIPEC_F32, PIPEC_F64 or PIPEC_BF16 */
  int32_t transpose_a, transpose_b, accumulate;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
  int32_t batch_rank;
  int32_t wide; /* c of PIPEC_BF16 is PIPEC_F32; always so on CPUs */
  int64_t batch[4], stride_a[4], stride_b[4], stride_c[4];
} PipecMatmul;

void pipec_matmul(const PipecMatmul *d, const void *a, const void *b, void *c);

/* Rows, lanes of a vector and vectors of what is computed at a time in f32. */
void pipec_product_tile(int32_t *rows, int32_t *lanes, int32_t *vectors);

/*===----------------------------------------------------------------------===
 * Convolution
 *===----------------------------------------------------------------------===*/

/* Cross-correlation as in ONNX Conv and PyTorch, 1-D to 3-D:
 *   x  [n, c, in...]     y [n, o, out...]     w [o, c/groups, kernel...]
 *   y[n,o,p] = sum over c', q of w[o,c',q] * x[n, c', p*stride + q*dilation -
 * pad_lo] Spatial arrays are filled from index 0 (spatial_rank entries; the
 * rest is ignored). stride, dilation >= 1; pads may be unequal and may be
 * negative (cropping). out[] must be at most what the formula gives: (in +
 * pad_lo + pad_hi - dilation*(kernel-1) - 1)/stride + 1. dilation 1 means
 * adjacent taps (oneDNN's 0).
 * x_layout is that of x and dx, y_layout that of y and dy (PipecLayout); the
 * weights are always plain [o, c/groups, kernel...] and are reordered inside,
 * through scratch.
 * accumulate: the weight gradient is added to dw instead of written; ignored by
 * the other two.
 * narrow: the operands' numbers are of bf16 or f16, so that a GPU may multiply
 * them in TF32. Ignored here.
 * prepared: null in the program; pipec_prepare_conv fills it. */
typedef struct PipecConv {
  int32_t dtype, spatial_rank, groups;
  int64_t n, c, o;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_lo[3],
      pad_hi[3];
  int32_t accumulate;
  int32_t x_layout, y_layout;
  int32_t narrow;
  void *prepared;
} PipecConv;

enum PipecConvKind {
  PIPEC_CONV_FORWARD = 0,
  PIPEC_CONV_BACKWARD_INPUT = 1,
  PIPEC_CONV_BACKWARD_WEIGHT = 2
};

/* How a convolution is computed; what it costs depends on it. */
enum PipecConvPath {
  PIPEC_CONV_DIRECT = 0,  /* element by element */
  PIPEC_CONV_PRODUCT = 1, /* a matrix product of gathered windows */
  PIPEC_CONV_ROWS = 2, /* a channel's rows at a time (few channels a group) */
  PIPEC_CONV_WINOGRAD = 3 /* transformed tiles */
};
int32_t pipec_conv_path(const PipecConv *d, int32_t which);

/* Bytes of scratch (64-byte aligned) that the call of this kind needs, exact.
 * A function of the descriptor alone: not of threads, processor or `prepared`;
 * the compiler calls it to place the buffer. May be 0, then scratch may be
 * null. One buffer may serve all convolutions of a task in turn; nothing in it
 * outlives a call. */
int64_t pipec_conv_scratch_bytes(const PipecConv *d, int32_t which);

/* Makes everything the call of this kind needs (code generation, memory
 * objects). Called once at load for each kind the program calls with this
 * descriptor; calling again is harmless. A call whose kind was not prepared
 * prepares it then (slow once, not safe from two threads). */
void pipec_prepare_conv(PipecConv *d, int32_t which);

/* Frees what pipec_prepare_conv made and sets `prepared` to null. */
void pipec_release_conv(PipecConv *d);

/* y = conv(x, w). Writes y completely. */
void pipec_conv_forward(PipecConv *d, const void *x, const void *w, void *y,
                        void *scratch);
/* dx = gradient of sum(dy * y) with respect to x. Writes dx completely. */
void pipec_conv_backward_input(PipecConv *d, const void *dy, const void *w,
                               void *dx, void *scratch);
/* dw (+)= gradient of sum(dy * y) with respect to w. */
void pipec_conv_backward_weight(PipecConv *d, const void *x, const void *dy,
                                void *dw, void *scratch);

/*===----------------------------------------------------------------------===
 * Pooling
 *===----------------------------------------------------------------------===*/

/* Pooling over the spatial axes of [n, c, in...] to [n, c, out...], 1-D to 3-D.
 * Output position p covers the taps p*stride + q*dilation - pad_lo of each
 * axis, q in [0, kernel). The caller resolves ceil_mode and auto_pad into out
 * and the pads; windows may reach beyond in + pad_hi (ceil_mode): such taps do
 * not exist.
 * count_include_pad (average only): the divisor counts the taps inside
 * [-pad_lo, in + pad_hi); otherwise those inside [0, in). This is PyTorch's and
 * ONNX's rule, also under ceil_mode. A window without a counted tap gives 0.
 * layout: of all activations of the call, index included (PipecLayout). */
typedef struct PipecPool {
  int32_t dtype, spatial_rank, count_include_pad, layout;
  int64_t n, c;
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_lo[3],
      pad_hi[3];
} PipecPool;

/* y = the largest tap (NaN wins, as in PyTorch; the first of equal ones).
 * index, of y's shape and layout: the flat position (d*H + h)*W + w of that tap
 * in its input plane; -1 where a window has no tap, with y = -infinity. index
 * may be null when no gradient is wanted. The input plane must have fewer than
 * 2^31 elements. */
void pipec_max_pool(const PipecPool *d, const void *x, void *y, int32_t *index);
/* dx = 0; dx[index] += dy. Writes dx completely. */
void pipec_max_pool_grad(const PipecPool *d, const void *dy,
                         const int32_t *index, void *dx);
/* y = mean of the taps. */
void pipec_avg_pool(const PipecPool *d, const void *x, void *y);
/* Gradient of pipec_avg_pool. Writes dx completely. */
void pipec_avg_pool_grad(const PipecPool *d, const void *dy, void *dx);

/*===----------------------------------------------------------------------===
 * Rows by index
 *===----------------------------------------------------------------------===*/

/* table [outer, axis, inner], ids [ids], y [outer, ids, inner]. id_type is
 * PIPEC_I64 or PIPEC_I32. Negative ids count from the end. An id outside
 * [-axis, axis) reads NaN (0 for integers), is ignored by scatter-add, and is
 * recorded: pipec_take_fault. */
typedef struct PipecGather {
  int32_t dtype, id_type;
  int64_t outer, axis, inner, ids;
} PipecGather;

/* y[o, i, :] = table[o, ids[i], :]. Any dtype. */
void pipec_gather(const PipecGather *d, const void *table, const void *ids,
                  void *y);
/* table_grad[o, ids[i], :] += dy[o, i, :], in ascending i for every element, so
 * repeated ids have one result. Any dtype. dy has y's shape. */
void pipec_scatter_add(const PipecGather *d, const void *ids, const void *dy,
                       void *table_grad);

/* 1 when an id was out of range since the last call, 0 otherwise; clears the
 * record. `id` and `axis` (may be null) receive the first such id of the record
 * and the size it should have been below. */
int32_t pipec_take_fault(int64_t *id, int64_t *axis);

/*===----------------------------------------------------------------------===
 * Copies
 *===----------------------------------------------------------------------===*/

/* dst[i . dst_stride] = src[i . src_stride] for every index i below size[].
 * Covers transposes, slices, concatenation parts, broadcasts (source stride 0),
 * reversals (negative strides; the pointer is that of index 0). element_size 1,
 * 2, 4 or 8; rank 0 (one element) to 8. Destination elements must be distinct.
 */
typedef struct PipecCopy {
  int32_t element_size, rank;
  int64_t size[8], src_stride[8], dst_stride[8];
} PipecCopy;

void pipec_copy(const PipecCopy *d, const void *src, void *dst);

/* How a copy is walked, neighbouring loops merged where they can be; what it
 * costs depends on it. Rows of `columns` elements: contiguous on both sides,
 * strided, or blocks of `lines` x `columns` whose lines are contiguous in the
 * source (else `lines` is 1). */
enum PipecCopyWay {
  PIPEC_COPY_NOTHING = 0,
  PIPEC_COPY_CONTIGUOUS = 1,
  PIPEC_COPY_STRIDED = 2,
  PIPEC_COPY_TRANSPOSED = 3
};
typedef struct PipecCopyWalk {
  int32_t way;
  int64_t rows, columns, lines;
} PipecCopyWalk;
PipecCopyWalk pipec_copy_walk(const PipecCopy *d);

/*===----------------------------------------------------------------------===
 * Helpers of the optimizer and of collectives
 *===----------------------------------------------------------------------===*/

/* Sum of x[i]^2 in double, in an order that depends on n alone. */
double pipec_sum_squares(const float *x, int64_t n);
/* dst[i] += src[i]. */
void pipec_add(float *dst, const float *src, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
