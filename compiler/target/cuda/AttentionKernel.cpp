//===- AttentionKernel.cpp - matrices in a block's shared memory ----------===//
#include "compiler/target/cuda/AttentionKernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;

/// Bytes between the end of a row and the next: rows then start in different
/// banks, and are aligned for 16-byte accesses.
constexpr int64_t kGap = 16;

TileKernel::TileKernel(ModuleOp module, StringRef name,
                       ArrayRef<KernelArgument> arguments, Type element)
    : PlainKernel(module, name, arguments), element(element) {}

int64_t TileKernel::columnOf(size_t sum) const {
  return static_cast<int64_t>(sum / (4 * groups) * 8 + sum % 2);
}

void TileKernel::begin(int64_t blocks, int64_t warps, int64_t rowsOfWarp) {
  groups = static_cast<size_t>(rowsOfWarp / kWarpRows);
  threads = warps * kWarp;
  beginBlocks(blocks, threads);
  thread = wide(threadNumber(b));
  warp = arith::DivUIOp::create(b, thread, integer(kWarp));
  lane = arith::RemUIOp::create(b, thread, integer(kWarp));
}

int64_t TileKernel::tileBytes(int64_t rows, int64_t columns, Type element) {
  return rows * (columns * elementBytes(element) + kGap);
}

Tile TileKernel::newTile(int64_t rows, int64_t columns, int64_t buffers) {
  Tile tile{code.sharedBytes, rows, columns, {}};
  code.sharedBytes += buffers * tileBytes(rows, columns, element);
  return tile;
}

Tile TileKernel::inBuffer(Tile tile, Value buffer) {
  tile.shift = times(buffer, tile.rows * pitch(tile));
  return tile;
}

int64_t TileKernel::throughBytes(int64_t rows, int64_t columns, Type element) {
  return element.isBF16() ? 0 : tileBytes(rows, columns, element);
}

Tile TileKernel::newThrough(int64_t rows, int64_t columns) {
  return isNarrow() ? Tile{} : newTile(rows, columns);
}

int64_t TileKernel::newNumbers(int64_t count) {
  const int64_t offset = code.sharedBytes;
  code.sharedBytes += count * static_cast<int64_t>(sizeof(float));
  return offset;
}

int64_t TileKernel::pitch(const Tile &tile) const {
  return tile.columns + kGap / elementBytes(element);
}

PlainKernel::Value TileKernel::address(const Tile &tile, Value index,
                                       int64_t constant) {
  const int64_t bytes = tile.offset + constant * elementBytes(element);
  if (tile.shift)
    index = add(index, tile.shift);
  return pointer(sharedMemory(b, bytes), element, index);
}

/// Of what is outside the index is that of the first element.
TileKernel::Part TileKernel::partOf(const Tile &tile, const Matrix &from,
                                    Value firstRow, Value row, Value column) {
  row = add(firstRow, row);
  Part part{add(times(row, from.rowStride), column), {}};
  if (from.rows % tile.rows)
    part.inside = less(row, from.rows);
  if (from.columns != tile.columns) {
    Value there = less(column, from.columns);
    part.inside = part.inside ? both(part.inside, there) : there;
  }
  if (part.inside)
    part.index = select(part.inside, part.index, integer(0));
  return part;
}

void TileKernel::copyAhead(Value to, Value from, Value inside, int64_t bytes) {
  auto word = [&](int64_t value) -> Value {
    return arith::ConstantIntOp::create(b, value, 32);
  };
  cuda::copyAhead(b, to, from, bytes,
                  inside ? select(inside, word(bytes), word(0)) : Value());
}

void TileKernel::fetchAhead(const Tile &tile, const Matrix &from,
                            Value firstRow) {
  const int64_t bytes = from.width * elementBytes(element),
                parts = tile.columns / from.width, total = tile.rows * parts;
  if (bytes != 16 || total % threads)
    return fetch(tile, from, firstRow);
  // What a thread has lies constants apart where a row's parts divide the
  // threads.
  const SmallVector<Value> own = indices(thread, {tile.rows, parts});
  for (int64_t item = 0; item < total; item += threads) {
    const SmallVector<Value> at =
        threads % parts == 0
            ? SmallVector<Value>{add(own[0], integer(item / parts)), own[1]}
            : indices(add(thread, integer(item)), {tile.rows, parts});
    Value column = times(at[1], from.width);
    const Part part = partOf(tile, from, firstRow, at[0], column);
    copyAhead(address(tile, add(times(at[0], pitch(tile)), column), 0),
              pointer(from.base, element, part.index), part.inside, bytes);
  }
}

void TileKernel::fetchAhead(int64_t numbers, int64_t count, Value buffer,
                            const Matrix &column, Value firstRow) {
  Type real = b.getF32Type();
  loop(thread, integer(count), threads, {}, [&](Value item, Values &) {
    Value row = add(firstRow, item), inside = less(row, column.rows);
    Value index = select(inside, times(row, column.rowStride), integer(0));
    copyAhead(pointer(sharedMemory(b, numbers), real,
                      add(item, times(buffer, count))),
              pointer(column.base, real, index), inside, sizeof(float));
  });
}

void TileKernel::waitForFetches() { waitForCopies(b); }

void TileKernel::fetch(const Tile &tile, const Matrix &from, Value firstRow) {
  const int64_t width = from.width, parts = tile.columns / width,
                total = tile.rows * parts;
  Type scalar = b.getIntegerType(8 * elementBytes(element));
  Type moved = width == 1 ? scalar : Type(VectorType::get({width}, scalar));
  Value zero = arith::ConstantOp::create(b, b.getZeroAttr(moved));
  auto read = [&](ArrayRef<Value> at) {
    const Part part = partOf(tile, from, firstRow, at[0], times(at[1], width));
    Value value =
        load(from.base, moved, part.index, width * elementBytes(scalar));
    return part.inside ? select(part.inside, value, zero) : value;
  };
  auto write = [&](ArrayRef<Value> at, Value value) {
    Value index = add(times(at[0], pitch(tile)), times(at[1], width));
    LLVM::StoreOp::create(b, value, address(tile, index, 0),
                          width * elementBytes(scalar));
  };
  // Several loads are under way, as many as leave registers for the sums.
  constexpr int64_t kAtOnce = 8;
  if (total % threads == 0) {
    const SmallVector<Value> own = indices(thread, {tile.rows, parts});
    // Where a row's parts divide the threads, what a thread has lies constants
    // apart: one address serves all of it.
    auto place = [&](int64_t item) -> SmallVector<Value> {
      if (threads % parts == 0)
        return {add(own[0], integer(item / parts)), own[1]};
      return indices(add(thread, integer(item)), {tile.rows, parts});
    };
    for (int64_t start = 0; start < total; start += kAtOnce * threads) {
      SmallVector<std::pair<SmallVector<Value>, Value>> under;
      for (int64_t i = 0; i < kAtOnce && start + i * threads < total; ++i) {
        const SmallVector<Value> at = place(start + i * threads);
        under.push_back({at, read(at)});
      }
      for (auto &[at, value] : under)
        write(at, value);
      // Or the assembler has the next ones under way as well.
      if (under.size() == kAtOnce)
        meetWarp();
    }
    return;
  }
  loop(thread, integer(total), threads, {}, [&](Value item, Values &) {
    const SmallVector<Value> at = indices(item, {tile.rows, parts});
    write(at, read(at));
  });
}

void TileKernel::fetchNumbers(
    ArrayRef<int64_t> numbers, int64_t count,
    function_ref<Value(size_t which, Value row)> numberOf) {
  loop(thread, integer(count), threads, {}, [&](Value row, Values &) {
    for (auto [which, offset] : llvm::enumerate(numbers))
      LLVM::StoreOp::create(
          b, numberOf(which, row),
          pointer(sharedMemory(b, offset), b.getF32Type(), row), sizeof(float));
  });
}

PlainKernel::Value TileKernel::number(int64_t numbers, size_t sum,
                                      Value shift) {
  const int64_t offset = numbers + columnOf(sum) * sizeof(float);
  Type real = b.getF32Type();
  Value index = shift ? add(ownColumn(0), shift) : ownColumn(0);
  return LLVM::LoadOp::create(
      b, real, pointer(sharedMemory(b, offset), real, index), sizeof(float));
}

PlainKernel::Values TileKernel::zeros(int64_t columns) {
  return Values(sumsOf(columns), real(0));
}

void TileKernel::multiply(Values &sums, const Tile &a, const Tile &b,
                          bool transposed) {
  if (!isNarrow())
    return multiplyWide(sums, a, b, transposed);
  Value ofA = rowOfA(a);
  multiplyNarrow(
      sums, a.columns,
      [&](int64_t depth, size_t group) {
        const auto firstRow = static_cast<int64_t>(group) * kWarpRows;
        return matrices(a, ofA, firstRow * pitch(a) + depth, false);
      },
      b, transposed);
}

void TileKernel::multiply(Values &sums, const Values &a, const Tile &through,
                          const Tile &b) {
  if (!isNarrow()) {
    meetWarp(); // all have read what is written over
    keep(through, a);
    meetWarp();
    return multiplyWide(sums, through, b, /*transposed=*/false);
  }
  auto at = [&](int64_t depth, size_t group) {
    Values words;
    for (const int64_t column : {depth, depth + 8})
      for (const size_t i : {0, 2}) {
        const size_t first = sumsOf(column) + group * 4 + i;
        words.push_back(word(a[first], a[first + 1]));
      }
    return words;
  };
  multiplyNarrow(sums, static_cast<int64_t>(a.size() / sumsOf(2) * 2), at, b,
                 /*transposed=*/false);
}

//===----------------------------------------------------------------------===//
// bf16
//===----------------------------------------------------------------------===//

/// Four matrices of 8 x 8, whose rows are where the warp's threads say.
PlainKernel::Values TileKernel::matrices(const Tile &tile, Value index,
                                         int64_t constant, bool turned) {
  Type word = b.getI32Type();
  auto four = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                               {word, word, word, word});
  auto name =
      b.getStringAttr(turned ? "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4."
                               "trans.b16"
                             : "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4."
                               "b16");
  auto call = LLVM::CallIntrinsicOp::create(b, four, name,
                                            address(tile, index, constant));
  Values words;
  for (int64_t i = 0; i < 4; ++i)
    words.push_back(LLVM::ExtractValueOp::create(b, call.getResult(0), i));
  return words;
}

PlainKernel::Value TileKernel::rowOfA(const Tile &a) {
  Value low = arith::AndIOp::create(b, lane, integer(15)),
        high = times(arith::ShRUIOp::create(b, lane, integer(4)), 8);
  const int64_t rowsOfWarp = static_cast<int64_t>(groups) * kWarpRows;
  return add(times(add(times(warp, rowsOfWarp), low), pitch(a)), high);
}

void TileKernel::multiplyNarrow(Values &sums, int64_t depths, Left leftAt,
                                const Tile &with, bool transposed) {
  auto masked = [&](Value x, int64_t mask) -> Value {
    return arith::AndIOp::create(b, x, integer(mask));
  };
  auto shifted = [&](Value x, int64_t bits) -> Value {
    return arith::ShRUIOp::create(b, x, integer(bits));
  };
  Value low = masked(lane, 15), high = times(shifted(lane, 4), 8);
  Value rowB = low, columnB = high;
  if (transposed) {
    rowB = add(masked(lane, 7), high);
    columnB = times(masked(shifted(lane, 3), 1), 8);
  }
  Value ofB = add(times(rowB, pitch(with)), columnB);
  Type real = b.getF32Type();
  auto four = LLVM::LLVMStructType::getLiteral(b.getContext(),
                                               {real, real, real, real});
  auto name = b.getStringAttr("llvm.nvvm.mma.m16n8k16.row.col.bf16");
  const auto columns = static_cast<int64_t>(sums.size() / sumsOf(2) * 2);
  for (int64_t depth = 0; depth < depths; depth += 16) {
    SmallVector<Values, 2> left;
    for (size_t group = 0; group < groups; ++group)
      left.push_back(leftAt(depth, group));
    for (int64_t n = 0; n < columns; n += 16) {
      Values right = transposed
                         ? matrices(with, ofB, n * pitch(with) + depth, false)
                         : matrices(with, ofB, depth * pitch(with) + n, true);
      for (size_t half : {0, 1})
        for (size_t group = 0; group < groups; ++group) {
          MutableArrayRef<Value> own = MutableArrayRef(sums).slice(
              sumsOf(n) + (half * groups + group) * 4, 4);
          Values operands = left[group];
          operands.append({right[2 * half], right[2 * half + 1]});
          operands.append(own.begin(), own.end());
          auto call = LLVM::CallIntrinsicOp::create(b, four, name, operands);
          for (int64_t i = 0; i < 4; ++i)
            own[i] = LLVM::ExtractValueOp::create(b, call.getResult(0), i);
        }
    }
  }
}

//===----------------------------------------------------------------------===//
// f32
//===----------------------------------------------------------------------===//

PlainKernel::Values TileKernel::lanes(Value vector) {
  Values values;
  for (int64_t i = 0; i < cast<VectorType>(vector.getType()).getDimSize(0); ++i)
    values.push_back(LLVM::ExtractElementOp::create(
        b, vector, arith::ConstantIntOp::create(b, i, 32)));
  return values;
}

void TileKernel::multiplyWide(Values &sums, const Tile &a, const Tile &with,
                              bool transposed) {
  constexpr int64_t kStep = 4;
  auto four = VectorType::get({kStep}, element),
       two = VectorType::get({2}, element);
  Value ofA = times(ownRow(0), pitch(a)), ofB = ownColumn(0);
  if (transposed)
    ofB = times(ofB, pitch(with));
  auto read = [&](const Tile &tile, Value index, int64_t constant,
                  VectorType type) {
    return lanes(LLVM::LoadOp::create(b, type, address(tile, index, constant),
                                      type.getDimSize(0) * sizeof(float)));
  };
  sums = loop(integer(0), integer(a.columns), kStep, sums,
              [&](Value depth, Values &now) {
                Value atA = add(ofA, depth);
                const Values rows[] = {read(a, atA, 0, four),
                                       read(a, atA, 8 * pitch(a), four)};
                Value atB =
                    add(ofB, transposed ? depth : times(depth, pitch(with)));
                for (size_t i = 0; i < now.size(); i += 4) {
                  const int64_t column = static_cast<int64_t>(i) * 2;
                  Values columns[2];
                  for (int64_t side : {0, 1})
                    if (transposed)
                      columns[side] =
                          read(with, atB, (column + side) * pitch(with), four);
                  for (int64_t k = 0; k < kStep; ++k) {
                    Values both =
                        transposed
                            ? Values{columns[0][k], columns[1][k]}
                            : read(with, atB, k * pitch(with) + column, two);
                    for (size_t j = 0; j < 4; ++j)
                      now[i + j] = fma(rows[j / 2][k], both[j % 2], now[i + j]);
                  }
                }
              });
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

PlainKernel::Value TileKernel::ownRow(size_t which) {
  Value row = arith::DivUIOp::create(b, lane, integer(4));
  const int64_t rowsOfWarp = static_cast<int64_t>(groups) * kWarpRows;
  return add(add(times(warp, rowsOfWarp), row),
             integer(8 * static_cast<int64_t>(which)));
}

PlainKernel::Value TileKernel::ownColumn(size_t sum) {
  Value column = times(arith::RemUIOp::create(b, lane, integer(4)), 2);
  return add(column, integer(columnOf(sum)));
}

/// Two neighbours in the element's type, as they stand in memory.
PlainKernel::Value TileKernel::pair(Value x, Value y) {
  if (isNarrow())
    return LLVM::CallIntrinsicOp::create(
               b, VectorType::get({2}, element),
               b.getStringAttr("llvm.nvvm.ff2bf16x2.rn"), ValueRange{y, x})
        .getResult(0);
  Value both = LLVM::UndefOp::create(b, VectorType::get({2}, element));
  for (auto [i, value] : llvm::enumerate(ValueRange{x, y}))
    both = LLVM::InsertElementOp::create(
        b, both, value,
        arith::ConstantIntOp::create(b, static_cast<int64_t>(i), 32));
  return both;
}

/// The same as a register.
PlainKernel::Value TileKernel::word(Value x, Value y) {
  return LLVM::BitcastOp::create(b, b.getI32Type(), pair(x, y));
}

void TileKernel::keep(const Tile &tile, const Values &sums) {
  for (size_t which = 0; which < rows(); ++which) {
    Value index = add(times(ownRow(which), pitch(tile)), ownColumn(0));
    for (size_t i = 2 * which; i < sums.size(); i += sumsOf(8))
      LLVM::StoreOp::create(b, pair(sums[i], sums[i + 1]),
                            address(tile, index, columnOf(i)),
                            2 * elementBytes(element));
  }
}

void TileKernel::put(const Matrix &to, Value firstRow, const Values &sums,
                     ArrayRef<Value> factors) {
  auto one = [&](Value both, int64_t i) -> Value {
    return LLVM::ExtractElementOp::create(
        b, both, arith::ConstantIntOp::create(b, i, 32));
  };
  for (size_t which = 0; which < rows(); ++which) {
    Value row = add(firstRow, ownRow(which));
    when(less(row, to.rows), [&] {
      for (size_t i = 2 * which; i < sums.size(); i += sumsOf(8)) {
        Value both = pair(multiplied(sums[i], factors[which]),
                          multiplied(sums[i + 1], factors[which]));
        Value column = ownColumn(i);
        Value index = add(times(row, to.rowStride), column);
        const int64_t last = columnOf(i) + 8;
        auto guarded = [&](Value at, llvm::function_ref<void()> body) {
          if (last <= to.columns)
            body();
          else
            when(less(at, to.columns), body);
        };
        if (to.width > 1) {
          guarded(column, [&] {
            store(both, to.base, index, 2 * elementBytes(element));
          });
          continue;
        }
        for (int64_t side : {0, 1})
          guarded(add(column, integer(side)), [&] {
            store(one(both, side), to.base, add(index, integer(side)));
          });
      }
    });
  }
}

void TileKernel::meetWarp() {
  NVVM::SyncWarpOp::create(b, arith::ConstantIntOp::create(b, -1, 32));
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

PlainKernel::Value TileKernel::real(double value) {
  return arith::ConstantOp::create(
      b, b.getF32FloatAttr(static_cast<float>(value)));
}
PlainKernel::Value TileKernel::plus(Value x, Value y) {
  return arith::AddFOp::create(b, x, y);
}
PlainKernel::Value TileKernel::multiplied(Value x, Value y) {
  return arith::MulFOp::create(b, x, y);
}
PlainKernel::Value TileKernel::exp2(Value x) {
  return LLVM::Exp2Op::create(b, x.getType(), x);
}
PlainKernel::Value TileKernel::larger(Value x, Value y) {
  return arith::MaxNumFOp::create(b, x, y);
}
PlainKernel::Value TileKernel::fma(Value x, Value y, Value z) {
  return LLVM::FMAOp::create(b, x.getType(), x, y, z);
}
PlainKernel::Value TileKernel::atMost(Value x, Value y) {
  return arith::MinUIOp::create(b, x, y);
}
