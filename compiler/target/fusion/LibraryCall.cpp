//===- LibraryCall.cpp - ops that a library computes ----------------------===//
#include "compiler/target/fusion/LibraryCall.h"
#include "dialects/nn/NN.h"
#include "runtime/kernels/cpu/Kernels.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::fusion;
using nn::tensorType;

template <typename T> static std::string bytesOf(const T &descriptor) {
  return std::string(reinterpret_cast<const char *>(&descriptor), sizeof(T));
}

static FailureOr<int32_t> typeCode(Operation *op, Type type) {
  if (type.isF32())
    return static_cast<int32_t>(PIPEC_F32);
  if (type.isBF16() && isa<nn::ConvOp, nn::ConvGradInputOp>(op))
    return static_cast<int32_t>(PIPEC_BF16); // GPUs'
  if (type.isF64())
    return static_cast<int32_t>(PIPEC_F64);
  if (type.isInteger(32))
    return static_cast<int32_t>(PIPEC_I32);
  if (type.isInteger(64))
    return static_cast<int32_t>(PIPEC_I64);
  if (type.isInteger(8) || type.isInteger(1))
    return static_cast<int32_t>(PIPEC_I8);
  return op->emitError("the CPU kernels have no element type ") << type;
}

//===----------------------------------------------------------------------===//
// Matrix products
//===----------------------------------------------------------------------===//

namespace {
/// A matrix of the last two dimensions: rows with stride `ld`, or columns.
struct Matrix {
  bool transposed;
  int64_t ld;
};
} // namespace

static Matrix matrixOf(int64_t rows, int64_t columns, int64_t rowStride,
                       int64_t columnStride) {
  bool byRows = (columns == 1 || columnStride == 1) &&
                (rows == 1 || rowStride >= columns);
  if (byRows)
    return {false, rows == 1 ? std::max<int64_t>(columns, 1) : rowStride};
  return {true, columns == 1 ? std::max<int64_t>(rows, 1) : columnStride};
}

/// Joins neighbouring batch dimensions that all three operands walk together.
static FailureOr<LibraryCall>
matmulCall(nn::MatmulOp op, ArrayRef<Placement> places, bool accumulate) {
  auto shapeA = tensorType(op.getA()).getShape();
  auto shapeY = tensorType(op.getY()).getShape();
  size_t rank = shapeY.size();
  PipecMatmul d = {};
  Type element = tensorType(op.getA()).getElementType();
  if (element.isBF16()) {
    d.dtype = PIPEC_BF16;
    d.wide = op.getWide();
  } else {
    auto dtype = typeCode(op, element);
    if (failed(dtype))
      return failure();
    d.dtype = *dtype;
  }
  d.m = shapeY[rank - 2];
  d.n = shapeY[rank - 1];
  d.k = shapeA[rank - (op.getTransposeA() ? 2 : 1)];
  d.accumulate = accumulate;
  auto strides = [&](int i, bool swap) {
    int64_t row = places[i].strides[rank - 2],
            column = places[i].strides[rank - 1];
    return swap ? std::pair(column, row) : std::pair(row, column);
  };
  auto [aRow, aColumn] = strides(0, op.getTransposeA());
  auto [bRow, bColumn] = strides(1, op.getTransposeB());
  auto [cRow, cColumn] = strides(2, false);
  int a = 0, b = 1;
  if (matrixOf(d.m, d.n, cRow, cColumn).transposed) {
    // The transposed product: c' = b' a'.
    std::swap(a, b);
    std::swap(d.m, d.n);
    std::swap(cRow, cColumn);
    std::swap(aRow, bColumn);
    std::swap(aColumn, bRow);
  }
  Matrix ma = matrixOf(d.m, d.k, aRow, aColumn);
  Matrix mb = matrixOf(d.k, d.n, bRow, bColumn);
  Matrix mc = matrixOf(d.m, d.n, cRow, cColumn);
  d.transpose_a = ma.transposed;
  d.transpose_b = mb.transposed;
  d.lda = ma.ld;
  d.ldb = mb.ld;
  d.ldc = mc.ld;
  for (size_t i = 0; i + 2 < rank; ++i) {
    if (shapeY[i] == 1)
      continue;
    int64_t sa = places[a].strides[i], sb = places[b].strides[i],
            sc = places[2].strides[i];
    if (d.batch_rank) {
      int last = d.batch_rank - 1;
      if (d.stride_a[last] == sa * shapeY[i] &&
          d.stride_b[last] == sb * shapeY[i] &&
          d.stride_c[last] == sc * shapeY[i]) {
        d.batch[last] *= shapeY[i];
        d.stride_a[last] = sa;
        d.stride_b[last] = sb;
        d.stride_c[last] = sc;
        continue;
      }
    }
    if (d.batch_rank == 4)
      return op.emitError("a matrix product with more than 4 batch dimensions");
    d.batch[d.batch_rank] = shapeY[i];
    d.stride_a[d.batch_rank] = sa;
    d.stride_b[d.batch_rank] = sb;
    d.stride_c[d.batch_rank++] = sc;
  }
  LibraryCall call;
  call.function = "pipec_matmul";
  call.descriptor = bytesOf(d);
  call.arguments = {a, b, 2};
  return call;
}

//===----------------------------------------------------------------------===//
// Convolution and pooling
//===----------------------------------------------------------------------===//

/// Fills what convolution and pooling descriptors share: `x` is the input side,
/// `y` the output side, `kernel` the window.
template <typename Descriptor, typename Op>
static LogicalResult fillWindow(Descriptor &d, Op op, RankedTensorType x,
                                RankedTensorType y, ArrayRef<int64_t> kernel) {
  d.spatial_rank = x.getRank() - 2;
  if (d.spatial_rank < 1 || d.spatial_rank > 3)
    return op.emitError("has ")
           << d.spatial_rank << " spatial dimensions; 1 to 3 are supported";
  auto dtype = typeCode(op, x.getElementType());
  if (failed(dtype))
    return failure();
  d.dtype = *dtype;
  d.n = x.getDimSize(0);
  d.c = x.getDimSize(1);
  for (int32_t i = 0; i < d.spatial_rank; ++i) {
    d.in[i] = x.getDimSize(i + 2);
    d.out[i] = y.getDimSize(i + 2);
    d.kernel[i] = kernel[i];
    d.stride[i] = op.getStrides()[i];
    d.dilation[i] = op.getDilations()[i];
    d.pad_lo[i] = op.getPadsLow()[i];
    d.pad_hi[i] = op.getPadsHigh()[i];
  }
  return success();
}

/// Whether the value has been widened: its numbers are those of f16 or bf16.
static bool isWidened(Value value) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  return cast && nn::isNarrow(cast.getX());
}

template <typename Op>
static FailureOr<LibraryCall> convCall(Op op, Value x, Value w, Value y,
                                       PipecConvKind kind, StringRef function,
                                       bool accumulate) {
  PipecConv d = {};
  auto shapeW = tensorType(w).getShape();
  if (failed(fillWindow(d, op, tensorType(x), tensorType(y),
                        shapeW.drop_front(2))))
    return failure();
  d.groups = op.getGroups();
  d.o = shapeW[0];
  d.accumulate = accumulate;
  d.narrow = llvm::all_of(op->getOperands(), isWidened);
  LibraryCall call;
  call.function = function.str();
  call.descriptor = bytesOf(d);
  call.prepared = true;
  call.prepareKind = kind;
  call.arguments = {0, 1, 2, -1};
  return call;
}

template <typename Op>
static FailureOr<LibraryCall> poolCall(Op op, Value x, Value y,
                                       StringRef function, bool countPad,
                                       ArrayRef<int> arguments) {
  PipecPool d = {};
  if (failed(fillWindow(d, op, tensorType(x), tensorType(y), op.getKernel())))
    return failure();
  d.count_include_pad = countPad;
  LibraryCall call;
  call.function = function.str();
  call.descriptor = bytesOf(d);
  call.arguments.assign(arguments);
  return call;
}

//===----------------------------------------------------------------------===//
// Rows by index
//===----------------------------------------------------------------------===//

static FailureOr<LibraryCall> gatherCall(Operation *op, Value table,
                                         Value indices, int64_t axis,
                                         StringRef function,
                                         ArrayRef<int> arguments) {
  PipecGather d = {};
  auto shape = tensorType(table).getShape();
  auto dtype = typeCode(op, tensorType(table).getElementType());
  auto idType = typeCode(op, tensorType(indices).getElementType());
  if (failed(dtype) || failed(idType))
    return failure();
  if (*idType != PIPEC_I32 && *idType != PIPEC_I64)
    return op->emitError("has indices that are neither i32 nor i64");
  d.dtype = *dtype;
  d.id_type = *idType;
  d.outer = d.inner = 1;
  for (int64_t i = 0; i < axis; ++i)
    d.outer *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i)
    d.inner *= shape[i];
  d.axis = shape[axis];
  d.ids = tensorType(indices).getNumElements();
  LibraryCall call;
  call.function = function.str();
  call.descriptor = bytesOf(d);
  call.arguments.assign(arguments);
  return call;
}

//===----------------------------------------------------------------------===//

FailureOr<LibraryCall> fusion::libraryCall(Operation *op,
                                           ArrayRef<Placement> places,
                                           bool accumulate) {
  if (auto matmul = dyn_cast<nn::MatmulOp>(op))
    return matmulCall(matmul, places, accumulate);
  if (auto conv = dyn_cast<nn::ConvOp>(op))
    return convCall(conv, conv.getX(), conv.getW(), conv.getY(),
                    PIPEC_CONV_FORWARD, "pipec_conv_forward", false);
  if (auto conv = dyn_cast<nn::ConvGradInputOp>(op))
    return convCall(conv, conv.getDx(), conv.getW(), conv.getDy(),
                    PIPEC_CONV_BACKWARD_INPUT, "pipec_conv_backward_input",
                    false);
  if (auto conv = dyn_cast<nn::ConvGradWeightOp>(op))
    return convCall(conv, conv.getX(), conv.getDw(), conv.getDy(),
                    PIPEC_CONV_BACKWARD_WEIGHT, "pipec_conv_backward_weight",
                    accumulate);
  if (auto pool = dyn_cast<nn::MaxPoolOp>(op))
    return poolCall(pool, pool.getX(), pool.getY(), "pipec_max_pool", false,
                    {0, 1, 2});
  if (auto pool = dyn_cast<nn::MaxPoolGradOp>(op))
    return poolCall(pool, pool.getDx(), pool.getDy(), "pipec_max_pool_grad",
                    false, {0, 1, 2});
  if (auto pool = dyn_cast<nn::AvgPoolOp>(op))
    return poolCall(pool, pool.getX(), pool.getY(), "pipec_avg_pool",
                    pool.getCountPad(), {0, 1});
  if (auto pool = dyn_cast<nn::AvgPoolGradOp>(op))
    return poolCall(pool, pool.getDx(), pool.getDy(), "pipec_avg_pool_grad",
                    pool.getCountPad(), {0, 1});
  if (auto gather = dyn_cast<nn::GatherOp>(op))
    return gatherCall(gather, gather.getX(), gather.getIndices(),
                      gather.getAxis(), "pipec_gather", {0, 1, 2});
  auto scatter = cast<nn::ScatterAddOp>(op);
  auto call = gatherCall(scatter, scatter.getY(), scatter.getIndices(),
                         scatter.getAxis(), "pipec_scatter_add", {0, 1, 2});
  if (succeeded(call))
    call->clears = !accumulate;
  return call;
}

FailureOr<int64_t> fusion::libraryScratch(Operation *op) {
  if (!isa<nn::ConvOp, nn::ConvGradInputOp, nn::ConvGradWeightOp>(op))
    return 0;
  FailureOr<LibraryCall> call = libraryCall(op, {}, false);
  if (failed(call))
    return failure();
  PipecConv d;
  memcpy(&d, call->descriptor.data(), sizeof(d));
  return pipec_conv_scratch_bytes(&d, call->prepareKind);
}

std::string fusion::copyDescriptor(ArrayRef<int64_t> shape,
                                   const Placement &from, const Placement &to,
                                   int64_t elementBytes) {
  PipecCopy d = {};
  d.element_size = elementBytes;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1)
      continue;
    if (d.rank) {
      int last = d.rank - 1;
      if (d.src_stride[last] == from.strides[i] * shape[i] &&
          d.dst_stride[last] == to.strides[i] * shape[i]) {
        d.size[last] *= shape[i];
        d.src_stride[last] = from.strides[i];
        d.dst_stride[last] = to.strides[i];
        continue;
      }
    }
    assert(d.rank < 8 && "a copy of more than 8 dimensions");
    d.size[d.rank] = shape[i];
    d.src_stride[d.rank] = from.strides[i];
    d.dst_stride[d.rank++] = to.strides[i];
  }
  return bytesOf(d);
}
