//===- AttentionKernel.h - matrices in a block's shared memory -*- C++ -*-===//
//
// Products of small matrices as a block of threads computes them: operands in
// shared memory, sums in registers. A warp has 16 rows of a result; its thread
// t has of every 8 columns two of row t / 4 and two of row t / 4 + 8: what the
// chip's instruction for bf16 gives it (mma.m16n8k16). f32 products are fused
// multiply-adds in the same layout.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/cuda/PlainKernel.h"

namespace pipec::cuda {

/// A matrix in shared memory. The sizes are multiples of 16.
struct Tile {
  int64_t offset = 0; ///< bytes
  int64_t rows = 0, columns = 0;
};

/// A matrix in the device's memory, whose rows are contiguous.
struct Matrix {
  mlir::Value base;
  int64_t rows = 0, columns = 0, rowStride = 0;
  int64_t width = 1; ///< elements that one access may move
};

constexpr int64_t kWarpRows = 16;

class TileKernel : public PlainKernel {
public:
  TileKernel(mlir::ModuleOp module, llvm::StringRef name,
             llvm::ArrayRef<fusion::KernelArgument> arguments,
             mlir::Type element);
  /// Sets the launch; `warps` of a block have 16 rows each.
  void begin(int64_t blocks, int64_t warps);

  /// Bytes of a tile of elements, and bytes from one of its rows to the next.
  static int64_t tileBytes(int64_t rows, int64_t columns, mlir::Type element);
  /// A tile behind those before it.
  Tile newTile(int64_t rows, int64_t columns);

  /// f32 numbers behind the tiles before them, one for each row of another
  /// tile; where they are.
  int64_t newNumbers(int64_t count);

  /// tile = the matrix from `firstRow` on, zeros around it.
  void fetch(const Tile &tile, const Matrix &from, Value firstRow);
  /// Each of the numbers = what `numberOf` says of its row.
  void
  fetchNumbers(llvm::ArrayRef<int64_t> numbers, int64_t count,
               llvm::function_ref<Value(size_t which, Value row)> numberOf);
  /// The number of column `which` of the sums.
  Value number(int64_t numbers, size_t which);
  /// Zeros for this warp's rows of a result with that many columns.
  Values zeros(int64_t columns);
  /// sums += a b, or a b' (`transposed`).
  void multiply(Values &sums, const Tile &a, const Tile &b, bool transposed);
  /// Writes this warp's rows, rounded to the element's type.
  void keep(const Tile &tile, const Values &sums);
  /// matrix[firstRow...] = factors[row] * sums.
  void put(const Matrix &to, Value firstRow, const Values &sums,
           llvm::ArrayRef<Value> factors);

  void meetWarp();
  /// Number in the tile of the upper (0) or lower (1) of the thread's rows.
  Value ownRow(int which);
  /// Number in the tile of column `which` of the sums.
  Value ownColumn(size_t which);

  // f32
  Value real(double value);
  Value plus(Value x, Value y);
  Value multiplied(Value x, Value y);
  Value exp2(Value x);
  Value larger(Value x, Value y);
  Value fma(Value x, Value y, Value z);
  Value atMost(Value x, Value y); ///< the smaller of two numbers

private:
  bool isNarrow() const { return element.isBF16(); }
  int64_t pitch(const Tile &tile) const;
  Value address(const Tile &tile, Value index, int64_t constant);
  Values matrices(const Tile &tile, Value index, int64_t constant, bool turned);
  void multiplyNarrow(Values &sums, const Tile &a, const Tile &b,
                      bool transposed);
  void multiplyWide(Values &sums, const Tile &a, const Tile &b,
                    bool transposed);
  Values lanes(Value vector);
  Value pair(Value x, Value y);

  mlir::Type element;
  int64_t threads = 0;
  Value thread, warp, lane;
};

} // namespace pipec::cuda
