//===- EmitRows.cpp - rows by index ---------------------------------------===//
//
// An index below 0 counts from the end; one out of range reads NaN (0 for
// integers), adds nothing, and is recorded.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/PlainKernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

namespace {
/// table [outer, axis, inner], ids [ids], rows [outer, ids, inner].
struct Rows {
  int64_t outer = 1, axis = 0, inner = 1, ids = 0;
  Type element, idType;

  Rows(Value table, Value indices, int64_t at) {
    ArrayRef<int64_t> shape = tensorType(table).getShape();
    for (int64_t i = 0; i < at; ++i)
      outer *= shape[i];
    for (int64_t size : shape.drop_front(at + 1))
      inner *= size;
    axis = shape[at];
    ids = tensorType(indices).getNumElements();
    element = tensorType(table).getElementType();
    idType = tensorType(indices).getElementType();
  }

  /// Elements that one access of the table or the rows can move when they
  /// start at these bytes.
  int64_t width(ArrayRef<int64_t> starts) const {
    int64_t bytes = elementBytes(element), width = 16 / bytes;
    auto fits = [&] {
      return inner % width == 0 && llvm::all_of(starts, [&](int64_t start) {
               return start % (width * bytes) == 0;
             });
    };
    while (width > 1 && !fits())
      width /= 2;
    return width;
  }
};

/// The row that an index names, as i64, and whether there is one.
struct Row {
  Value number, inside;
};
} // namespace

static Row rowOf(PlainKernel &k, const Rows &rows, Value ids, Value at) {
  Value id = k.load(ids, rows.idType, at);
  if (!rows.idType.isInteger(64))
    id = arith::ExtSIOp::create(k.b, k.b.getI64Type(), id);
  Value negative =
      arith::CmpIOp::create(k.b, arith::CmpIPredicate::slt, id, k.integer(0));
  Value number = k.select(negative, k.add(id, k.integer(rows.axis)), id);
  return {number, k.less(number, rows.axis)};
}

/// fault[0] = 1, fault[1] = id, fault[2] = axis.
static void recordFault(PlainKernel &k, const Rows &rows, Value ids, Value at,
                        Value inside, Value fault) {
  Value outside = arith::XOrIOp::create(
      k.b, inside, arith::ConstantIntOp::create(k.b, 1, 1));
  k.when(outside, [&] {
    Value id = k.load(ids, rows.idType, at);
    if (!rows.idType.isInteger(64))
      id = arith::ExtSIOp::create(k.b, k.b.getI64Type(), id);
    k.store(id, fault, k.integer(1));
    k.store(k.integer(rows.axis), fault, k.integer(2));
    k.store(k.integer(1), fault, k.integer(0));
  });
}

/// What an index out of range reads, as raw bits.
static Value missing(PlainKernel &k, Type element, Type raw) {
  APInt bits(element.getIntOrFloatBitWidth(), 0);
  if (auto type = dyn_cast<FloatType>(element))
    bits = APFloat::getNaN(type.getFloatSemantics()).bitcastToAPInt();
  Type scalar = getElementTypeOrSelf(raw);
  TypedAttr one = IntegerAttr::get(
      scalar, bits.zextOrTrunc(scalar.getIntOrFloatBitWidth()));
  if (auto vector = dyn_cast<VectorType>(raw))
    one = SplatElementsAttr::get(vector, one);
  return arith::ConstantOp::create(k.b, one);
}

static KernelCode gatherKernel(ModuleOp module, StringRef name, nn::GatherOp op,
                               ArrayRef<Placement> places,
                               ArrayRef<Buffer> buffers) {
  Rows rows(op.getX(), op.getIndices(), op.getAxis());
  KernelArgument arguments[] = {argumentOf(places[0], rows.element),
                                argumentOf(places[1], rows.idType),
                                argumentOf(places[2], rows.element),
                                {kFaultBuffer, 0}};
  PlainKernel k(module, name, arguments);
  int64_t bytes = elementBytes(rows.element);
  int64_t width = rows.width(
      {startOf(arguments[0], buffers), startOf(arguments[2], buffers)});
  Type scalar = k.b.getIntegerType(8 * bytes);
  Type moved = width == 1 ? scalar : Type(VectorType::get({width}, scalar));
  int64_t parts = rows.inner / width;
  Value item = k.beginItems(rows.outer * rows.ids * parts);
  SmallVector<Value> at = k.indices(item, {rows.outer, rows.ids, parts});
  Row row = rowOf(k, rows, k.argument(1), at[1]);
  recordFault(k, rows, k.argument(1), at[1], row.inside, k.argument(3));
  Value number = k.select(row.inside, row.number, k.integer(0));
  Value part = k.times(at[2], width);
  Value from = k.add(
      k.times(k.add(k.times(at[0], rows.axis), number), rows.inner), part);
  if (rows.axis) {
    Value value = k.load(k.argument(0), moved, from, width * bytes);
    value = k.select(row.inside, value, missing(k, rows.element, moved));
    k.store(value, k.argument(2), k.times(item, width), width * bytes);
  } else {
    k.store(missing(k, rows.element, moved), k.argument(2),
            k.times(item, width), width * bytes);
  }
  return k.finish();
}

/// Whether any lane of the warp says so, and which ones.
static Value ballot(PlainKernel &k, Value condition) {
  return NVVM::VoteSyncOp::create(k.b, k.b.getI32Type(),
                                  arith::ConstantIntOp::create(k.b, -1, 32),
                                  condition, NVVM::VoteSyncKind::ballot);
}

namespace {
/// A warp for each index that is the first of its row: it adds all updates of
/// the row in ascending order, so repeated indices have one result.
class ScatterEmitter {
public:
  ScatterEmitter(ModuleOp module, StringRef name, nn::ScatterAddOp op,
                 ArrayRef<Placement> places, ArrayRef<Buffer> buffers)
      : rows(op.getY(), op.getIndices(), op.getAxis()),
        k(module, name,
          {argumentOf(places[0], rows.idType),
           argumentOf(places[1], rows.element),
           argumentOf(places[2], rows.element),
           {kFaultBuffer, 0}}) {
    width = rows.width({startOf(k.code.arguments[1], buffers),
                        startOf(k.code.arguments[2], buffers)});
  }

  KernelCode run() {
    constexpr int64_t kWarps = 8;
    int64_t warps = rows.outer * rows.ids;
    Value thread = k.beginItems(warps * kWarp, kWarp * kWarps);
    lane = arith::RemUIOp::create(k.b, thread, k.integer(kWarp));
    Value warp = arith::DivUIOp::create(k.b, thread, k.integer(kWarp));
    SmallVector<Value> at = k.indices(warp, {rows.outer, rows.ids});
    outer = at[0];
    index = at[1];
    Row mine = rowOf(k, rows, k.argument(0), index);
    row = mine.number;
    recordFault(k, rows, k.argument(0), index, mine.inside, k.argument(3));
    k.when(k.both(mine.inside, isFirst()), [&] { addRow(); });
    return k.finish();
  }

private:
  /// Bits of the lanes whose index, of the 32 from `base` on and below `end`,
  /// names this warp's row.
  Value matches(Value base, Value end) {
    Value at = k.add(base, lane);
    Value inside =
        arith::CmpIOp::create(k.b, arith::CmpIPredicate::ult, at, end);
    Value safe = k.select(inside, at, index);
    Value same = k.equal(rowOf(k, rows, k.argument(0), safe).number, row);
    return ballot(k, k.both(inside, same));
  }

  /// No index before this one names the row.
  Value isFirst() {
    Value none = arith::ConstantIntOp::create(k.b, 0, 32);
    auto seen = k.loop(k.integer(0), index, kWarp, {none},
                       [&](Value base, PlainKernel::Values &now) {
                         now[0] = arith::OrIOp::create(k.b, now[0],
                                                       matches(base, index));
                       });
    return k.equal(seen[0], none);
  }

  void addRow() {
    int64_t parts = rows.inner / width, bytes = elementBytes(rows.element);
    Type type = width == 1 ? rows.element
                           : Type(VectorType::get({width}, rows.element));
    Value ids = k.integer(rows.ids);
    // All lanes of the warp take part in the ballots, also without a column.
    k.loop(k.integer(0), k.integer(parts), kWarp, {},
           [&](Value base, PlainKernel::Values &) {
             Value part = k.add(base, lane), inside = k.less(part, parts);
             Value column =
                 k.times(k.select(inside, part, k.integer(0)), width);
             Value to = k.add(
                 k.times(k.add(k.times(outer, rows.axis), row), rows.inner),
                 column);
             Value sum = k.load(k.argument(2), type, to, width * bytes);
             sum = addAll(sum, column, ids, type);
             k.when(inside,
                    [&] { k.store(sum, k.argument(2), to, width * bytes); });
           });
  }

  Value addAll(Value sum, Value column, Value ids, Type type) {
    auto first = arith::DivUIOp::create(k.b, index, k.integer(kWarp));
    return k
        .loop(k.times(first, kWarp), ids, kWarp, {sum},
              [&](Value base, PlainKernel::Values &now) {
                now[0] =
                    addMatches(now[0], base, matches(base, ids), column, type);
              })
        .front();
  }

  /// The updates whose bits are set, lowest first.
  Value addMatches(Value sum, Value base, Value bits, Value column, Type type) {
    int64_t bytes = elementBytes(rows.element);
    Type word = bits.getType();
    auto loop = scf::WhileOp::create(
        k.b, TypeRange{word, type}, ValueRange{bits, sum},
        [&](OpBuilder &, Location, ValueRange now) {
          Value more =
              arith::CmpIOp::create(k.b, arith::CmpIPredicate::ne, now[0],
                                    arith::ConstantIntOp::create(k.b, 0, 32));
          scf::ConditionOp::create(k.b, more, now);
        },
        [&](OpBuilder &, Location, ValueRange now) {
          Value lowest = LLVM::CountTrailingZerosOp::create(
              k.b, word, now[0], /*is_zero_poison=*/true);
          Value at = k.add(base, k.wide(lowest));
          Value from = k.add(
              k.times(k.add(k.times(outer, rows.ids), at), rows.inner), column);
          Value update = k.load(k.argument(1), type, from, width * bytes);
          Value next = arith::AndIOp::create(
              k.b, now[0],
              arith::SubIOp::create(k.b, now[0],
                                    arith::ConstantIntOp::create(k.b, 1, 32)));
          Value total = arith::AddFOp::create(k.b, now[1], update);
          scf::YieldOp::create(k.b, ValueRange{next, total});
        });
    return loop.getResult(1);
  }

  Rows rows;
  PlainKernel k;
  int64_t width = 1;
  Value lane, outer, index, row;
};
} // namespace

FailureOr<KernelCode> cuda::emitRowsKernel(ModuleOp module, StringRef name,
                                           Operation *op,
                                           ArrayRef<Placement> places,
                                           ArrayRef<Buffer> buffers) {
  Value indices = isa<nn::GatherOp>(op) ? op->getOperand(1) : op->getOperand(0);
  Type idType = tensorType(indices).getElementType();
  if (!idType.isInteger(32) && !idType.isInteger(64))
    return op->emitError("has indices that are neither i32 nor i64");
  if (auto gather = dyn_cast<nn::GatherOp>(op))
    return gatherKernel(module, name, gather, places, buffers);
  auto scatter = cast<nn::ScatterAddOp>(op);
  Type element = tensorType(scatter.getY()).getElementType();
  if (!element.isF32() && !element.isF64())
    return op->emitError("the GPU kernels have no element type ") << element;
  return ScatterEmitter(module, name, scatter, places, buffers).run();
}
