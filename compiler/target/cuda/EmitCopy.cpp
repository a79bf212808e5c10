//===- EmitCopy.cpp - strided copies --------------------------------------===//
//
// Where source and destination are contiguous along one dimension, a thread
// moves up to 16 bytes; where they are along two different ones, tiles go
// through shared memory so that both sides are read and written in runs.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/PlainKernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

namespace {
/// Dimensions that both sides walk, neighbours joined.
struct Dims {
  SmallVector<int64_t> sizes, from, to;

  Dims(ArrayRef<int64_t> shape, const Placement &source,
       const Placement &target) {
    for (size_t d = 0; d < shape.size(); ++d) {
      if (shape[d] == 1)
        continue;
      if (!sizes.empty() && from.back() == source.strides[d] * shape[d] &&
          to.back() == target.strides[d] * shape[d]) {
        sizes.back() *= shape[d];
        from.back() = source.strides[d];
        to.back() = target.strides[d];
        continue;
      }
      sizes.push_back(shape[d]);
      from.push_back(source.strides[d]);
      to.push_back(target.strides[d]);
    }
  }

  int64_t count() const {
    int64_t n = 1;
    for (int64_t size : sizes)
      n *= size;
    return n;
  }
  void erase(size_t d) {
    sizes.erase(sizes.begin() + d);
    from.erase(from.begin() + d);
    to.erase(to.begin() + d);
  }
};
} // namespace

static Value dot(PlainKernel &k, ArrayRef<Value> indices,
                 ArrayRef<int64_t> strides) {
  Value sum = k.integer(0);
  for (auto [index, stride] : llvm::zip_equal(indices, strides))
    if (stride)
      sum = k.add(sum, k.times(index, stride));
  return sum;
}

/// Elements that one access moves.
static int64_t widthOf(const Dims &dims, int64_t bytes, int64_t fromByte,
                       int64_t toByte) {
  if (dims.sizes.empty() || dims.to.back() != 1 || dims.from.back() > 1 ||
      dims.from.back() < 0)
    return 1;
  auto fits = [&](int64_t width) {
    auto aligned = [&](ArrayRef<int64_t> strides, int64_t at) {
      return at % (width * bytes) == 0 &&
             llvm::all_of(strides.drop_back(),
                          [&](int64_t s) { return s % width == 0; });
    };
    return dims.sizes.back() % width == 0 && aligned(dims.to, toByte) &&
           (dims.from.back() == 0 || aligned(dims.from, fromByte));
  };
  int64_t width = 16 / bytes;
  while (width > 1 && !fits(width))
    width /= 2;
  return width;
}

static void emitElements(PlainKernel &k, Dims dims, Type element,
                         int64_t width) {
  if (width > 1)
    dims.sizes.back() /= width;
  Value item = k.beginItems(dims.count());
  SmallVector<Value> indices = k.indices(item, dims.sizes);
  if (width > 1)
    indices.back() = k.times(indices.back(), width);
  Value from = dot(k, indices, dims.from), to = dot(k, indices, dims.to);
  int64_t bytes = elementBytes(element);
  if (width == 1 || dims.from.back() == 1) {
    Type type = width == 1 ? element : Type(VectorType::get({width}, element));
    Value moved = k.load(k.argument(0), type, from, width * bytes);
    k.store(moved, k.argument(1), to, width * bytes);
    return;
  }
  auto type = VectorType::get({width}, element);
  Value one = k.load(k.argument(0), element, from);
  Value all = LLVM::UndefOp::create(k.b, type);
  for (int64_t i = 0; i < width; ++i)
    all = LLVM::InsertElementOp::create(
        k.b, all, one, arith::ConstantIntOp::create(k.b, i, 32));
  k.store(all, k.argument(1), to, width * bytes);
}

/// Tiles of 32 x 32 by 256 threads; a pitch of 33 keeps the columns of a tile
/// in different banks.
static void emitTiles(PlainKernel &k, Dims dims, size_t read, size_t write,
                      Type element) {
  constexpr int64_t kTile = 32, kRows = 8, kPitch = kTile + 1;
  int64_t columns = dims.sizes[read], rows = dims.sizes[write];
  int64_t readStride = dims.from[write], writeStride = dims.to[read];
  dims.erase(std::max(read, write));
  dims.erase(std::min(read, write));
  SmallVector<int64_t> grid(dims.sizes);
  grid.push_back(llvm::divideCeil(rows, kTile));
  grid.push_back(llvm::divideCeil(columns, kTile));
  int64_t blocks = 1;
  for (int64_t n : grid)
    blocks *= n;
  k.beginBlocks(blocks, kTile * kRows);
  k.code.sharedBytes = kTile * kPitch * elementBytes(element);
  SmallVector<Value> block = k.indices(k.wide(blockNumber(k.b)), grid);
  Value column0 = k.times(block.pop_back_val(), kTile);
  Value row0 = k.times(block.pop_back_val(), kTile);
  Value from = dot(k, block, dims.from), to = dot(k, block, dims.to);
  Value thread = k.wide(threadNumber(k.b));
  Value x = arith::RemUIOp::create(k.b, thread, k.integer(kTile));
  Value y = arith::DivUIOp::create(k.b, thread, k.integer(kTile));
  Value tile = sharedMemory(k.b, 0);
  for (int64_t i = 0; i < kTile; i += kRows) {
    Value line = k.add(y, k.integer(i));
    Value column = k.add(column0, x), row = k.add(row0, line);
    k.when(k.both(k.less(column, columns), k.less(row, rows)), [&] {
      Value at = k.add(from, k.add(column, k.times(row, readStride)));
      k.store(k.load(k.argument(0), element, at), tile,
              k.add(k.times(line, kPitch), x));
    });
  }
  barrier(k.b);
  for (int64_t i = 0; i < kTile; i += kRows) {
    Value line = k.add(y, k.integer(i));
    Value column = k.add(column0, line), row = k.add(row0, x);
    k.when(k.both(k.less(column, columns), k.less(row, rows)), [&] {
      Value moved = k.load(tile, element, k.add(k.times(x, kPitch), line));
      k.store(moved, k.argument(1),
              k.add(to, k.add(row, k.times(column, writeStride))));
    });
  }
}

KernelCode cuda::emitCopyKernel(ModuleOp module, StringRef name,
                                ArrayRef<int64_t> shape, const Placement &from,
                                const Placement &to, Type element,
                                ArrayRef<Buffer> buffers) {
  KernelArgument arguments[] = {argumentOf(from, element),
                                argumentOf(to, element)};
  PlainKernel k(module, name, arguments);
  if (llvm::is_contained(shape, 0)) {
    k.beginBlocks(0, 1);
    return k.finish();
  }
  int64_t bytes = elementBytes(element);
  Type moved = k.b.getIntegerType(8 * bytes);
  Dims dims(shape, from, to);
  auto runOf = [&](ArrayRef<int64_t> strides) {
    const auto *at = llvm::find(strides, 1);
    return static_cast<size_t>(at - strides.begin());
  };
  size_t read = runOf(dims.from), write = runOf(dims.to), n = dims.sizes.size();
  constexpr int64_t kLeast = 8;
  if (read < n && write < n && read != write && dims.sizes[read] >= kLeast &&
      dims.sizes[write] >= kLeast) {
    emitTiles(k, dims, read, write, moved);
    return k.finish();
  }
  emitElements(k, dims, moved,
               widthOf(dims, bytes, startOf(arguments[0], buffers),
                       startOf(arguments[1], buffers)));
  return k.finish();
}

KernelCode cuda::emitGapKernel(ModuleOp module, StringRef name, int64_t rows,
                               const Placement &place, Type element,
                               ArrayRef<Buffer> buffers) {
  const Buffer &buffer = buffers[place.buffer];
  PlainKernel k(module, name, {argumentOf(place, element)});
  const int64_t gap = buffer.pitch - buffer.row;
  const SmallVector<Value> at =
      k.indices(k.beginItems(rows * gap), {rows, gap});
  Value zero = arith::ConstantOp::create(k.b, k.b.getZeroAttr(element));
  k.store(
      zero, k.argument(0),
      k.add(k.times(at[0], buffer.pitch), k.add(at[1], k.integer(buffer.row))));
  return k.finish();
}
