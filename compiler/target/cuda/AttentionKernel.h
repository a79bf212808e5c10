//===- AttentionKernel.h - matrices in a block's shared memory -*- C++ -*-===//
//
// Products of small matrices as a block of threads computes them: operands in
// shared memory, sums in registers. A warp has 16 rows of a result; its thread
// t has of every 8 columns two of row t / 4 and two of row t / 4 + 8: what the
// chip's instruction for bf16 gives it (mma.m16n8k16). f32 products are fused
// multiply-adds in the same layout. In bf16 a warp may have 32 rows: then what
// it reads of the other operand serves twice as many products, and a thread's
// sums of every 8 columns are those of the upper rows, then of the lower ones.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/target/cuda/PlainKernel.h"

namespace pipec::cuda {

/// A matrix in shared memory. The sizes are multiples of 16.
struct Tile {
  int64_t offset = 0; ///< bytes
  int64_t rows = 0, columns = 0;
  mlir::Value shift; ///< elements to the buffer that is meant; none: the first
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
  /// Sets the launch; `warps` of a block have 16 rows each, or 32.
  void begin(int64_t blocks, int64_t warps, int64_t rowsOfWarp = kWarpRows);

  /// Bytes of a tile of elements, and bytes from one of its rows to the next.
  static int64_t tileBytes(int64_t rows, int64_t columns, mlir::Type element);
  /// A tile behind those before it, in so many buffers.
  Tile newTile(int64_t rows, int64_t columns, int64_t buffers = 1);
  /// That in the buffer with this number.
  Tile inBuffer(Tile tile, Value buffer);

  /// f32 numbers behind the tiles before them, one for each row of another
  /// tile; where they are.
  int64_t newNumbers(int64_t count);

  /// tile = the matrix from `firstRow` on, zeros around it.
  void fetch(const Tile &tile, const Matrix &from, Value firstRow);
  /// The same, and numbers[i] = column[firstRow + i], zeros behind its end: it
  /// is under way until waitForFetches(), where the matrix's rows can be moved
  /// by 16 bytes, and done at once where not.
  void fetchAhead(const Tile &tile, const Matrix &from, Value firstRow);
  void fetchAhead(int64_t numbers, int64_t count, Value buffer,
                  const Matrix &column, Value firstRow);
  /// This thread's. A barrier has to follow.
  void waitForFetches();
  /// Each of the numbers = what `numberOf` says of its row.
  void
  fetchNumbers(llvm::ArrayRef<int64_t> numbers, int64_t count,
               llvm::function_ref<Value(size_t which, Value row)> numberOf);
  /// The number of a sum's column; `shift` as that of a tile.
  Value number(int64_t numbers, size_t sum, Value shift = {});
  /// Zeros for this warp's rows of a result with that many columns.
  Values zeros(int64_t columns);
  /// sums += a b, or a b' (`transposed`).
  void multiply(Values &sums, const Tile &a, const Tile &b, bool transposed);
  /// sums += a b, of an `a` that is this warp's sums of a product, rounded to
  /// the element's type. In bf16 they are operands as they lie; f32 goes
  /// through the tile.
  void multiply(Values &sums, const Values &a, const Tile &through,
                const Tile &b);
  /// Bytes of a tile that those go through.
  static int64_t throughBytes(int64_t rows, int64_t columns,
                              mlir::Type element);
  Tile newThrough(int64_t rows, int64_t columns);
  /// matrix[firstRow...] = factors[row] * sums.
  void put(const Matrix &to, Value firstRow, const Values &sums,
           llvm::ArrayRef<Value> factors);

  void meetWarp();
  /// A thread's rows; their numbers in the tile; of which of them a sum is.
  size_t rows() const { return 2 * groups; }
  Value ownRow(size_t which);
  size_t rowOf(size_t sum) const { return sum / 4 % groups * 2 + sum % 4 / 2; }
  /// Number in the tile of the column of a sum.
  Value ownColumn(size_t sum);
  /// A thread's sums of a result with that many columns.
  size_t sumsOf(int64_t columns) const {
    return groups * static_cast<size_t>(columns) / 2;
  }

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
  /// What lies at a place of a tile: where in the matrix, and whether it is
  /// inside; no value where all of it is.
  struct Part {
    Value index, inside;
  };
  Part partOf(const Tile &tile, const Matrix &from, Value firstRow, Value row,
              Value column);
  void copyAhead(Value to, Value from, Value inside, int64_t bytes);
  Value address(const Tile &tile, Value index, int64_t constant);
  Values matrices(const Tile &tile, Value index, int64_t constant, bool turned);
  /// Writes this warp's rows, rounded to the element's type.
  void keep(const Tile &tile, const Values &sums);
  /// Four registers of a group's 16 rows and of 16 columns from `depth` on.
  using Left = llvm::function_ref<Values(int64_t depth, size_t group)>;
  void multiplyNarrow(Values &sums, int64_t depths, Left leftAt, const Tile &b,
                      bool transposed);
  Value rowOfA(const Tile &a);
  /// Of a thread's first column.
  int64_t columnOf(size_t sum) const;
  void multiplyWide(Values &sums, const Tile &a, const Tile &b,
                    bool transposed);
  Values lanes(Value vector);
  Value pair(Value x, Value y);
  Value word(Value x, Value y);

  mlir::Type element;
  int64_t threads = 0;
  size_t groups = 1; ///< of 16 rows of a warp
  Value thread, warp, lane;
};

} // namespace pipec::cuda
