//===- EmitWindow.cpp - pooling windows and their gradients ---------------===//
//
// A thread for each output position, or each input position of a gradient,
// which adds what the windows over it contribute in ascending order.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/PlainKernel.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

namespace {
/// A window over the spatial axes of [n, c, in...] and [n, c, out...].
struct Window {
  SmallVector<int64_t> in, out, kernel, strides, dilations, low, high;
  int64_t planes = 1, inPlane = 1, outPlane = 1;
  Type element;

  template <typename Op>
  Window(Op op, Value x, Value y)
      : in(tensorType(x).getShape().drop_front(2)),
        out(tensorType(y).getShape().drop_front(2)), kernel(op.getKernel()),
        strides(op.getStrides()), dilations(op.getDilations()),
        low(op.getPadsLow()), high(op.getPadsHigh()),
        planes(tensorType(x).getDimSize(0) * tensorType(x).getDimSize(1)),
        inPlane(product(in)), outPlane(product(out)),
        element(tensorType(x).getElementType()) {}
};

class WindowEmitter {
public:
  WindowEmitter(ModuleOp module, StringRef name, const Window &w,
                ArrayRef<KernelArgument> arguments)
      : w(w), k(module, name, arguments), zero(k.integer(0)) {}

  KernelCode maxPool(bool wantsIndex);
  KernelCode averagePool(bool countPad);
  KernelCode maxPoolGradient();
  KernelCode averagePoolGradient(bool countPad);

private:
  using Values = PlainKernel::Values;
  /// The item's plane and position in it.
  struct Item {
    Value number, plane;
    SmallVector<Value> at;
  };

  Item begin(ArrayRef<int64_t> plane) {
    SmallVector<int64_t> sizes = {w.planes};
    sizes.append(plane.begin(), plane.end());
    Item item;
    item.number = k.beginItems(product(sizes));
    item.at = k.indices(item.number, sizes);
    item.plane = item.at.front();
    item.at.erase(item.at.begin());
    return item;
  }

  /// body(values, taps) for every tap of the window; from the last to the
  /// first if `descending`.
  Values taps(Values values, bool descending,
              llvm::function_ref<void(ArrayRef<Value>, Values &)> body) {
    SmallVector<Value> at;
    return tapsFrom(0, at, values, descending, body);
  }
  Values tapsFrom(size_t axis, SmallVector<Value> &at, Values values,
                  bool descending,
                  llvm::function_ref<void(ArrayRef<Value>, Values &)> body) {
    if (axis == w.kernel.size()) {
      body(at, values);
      return values;
    }
    return k.loop(zero, k.integer(w.kernel[axis]), 1, values,
                  [&](Value tap, Values &now) {
                    if (descending)
                      tap = arith::SubIOp::create(
                          k.b, k.integer(w.kernel[axis] - 1), tap);
                    at.push_back(tap);
                    now = tapsFrom(axis + 1, at, now, descending, body);
                    at.pop_back();
                  });
  }

  /// Where a tap of the window at `out` is along an axis.
  Value position(size_t axis, Value out, Value tap) {
    Value at =
        k.add(k.times(out, w.strides[axis]), k.times(tap, w.dilations[axis]));
    return k.add(at, k.integer(-w.low[axis]));
  }

  /// The flat position of a tap in the input plane (0 when outside), and
  /// whether it is inside.
  std::pair<Value, Value> tapOf(ArrayRef<Value> out, ArrayRef<Value> tap) {
    Value flat = zero, inside;
    for (size_t axis = 0; axis < tap.size(); ++axis) {
      Value at = position(axis, out[axis], tap[axis]);
      Value here = k.less(at, w.in[axis]);
      inside = inside ? k.both(inside, here) : here;
      flat = k.add(k.times(flat, w.in[axis]), at);
    }
    return {k.select(inside, flat, zero), inside};
  }

  /// What an average divides by: taps in the input, or in the padded input.
  Value divisor(ArrayRef<Value> out, bool countPad) {
    Value count = k.integer(1);
    for (size_t axis = 0; axis < w.in.size(); ++axis) {
      int64_t before = countPad ? w.low[axis] : 0;
      int64_t after = countPad ? w.high[axis] : 0;
      auto here = k.loop(
          zero, k.integer(w.kernel[axis]), 1, {zero},
          [&](Value tap, Values &now) {
            Value at = k.add(position(axis, out[axis], tap), k.integer(before));
            Value inside = k.less(at, w.in[axis] + before + after);
            now[0] = k.add(
                now[0], arith::ExtUIOp::create(k.b, k.b.getI64Type(), inside));
          });
      count = arith::MulIOp::create(k.b, count, here[0]);
    }
    return count;
  }

  /// sum / count, 0 where nothing is counted.
  Value quotient(Value sum, Value count) {
    Value divided = arith::DivFOp::create(
        k.b, sum, arith::SIToFPOp::create(k.b, w.element, count));
    return k.select(k.equal(count, zero), number(0), divided);
  }

  /// body(values, flat output position, indices of it, whether there is one)
  /// for the windows over an input position, in ascending order.
  Values windows(
      ArrayRef<Value> in, Values values,
      llvm::function_ref<void(Value, ArrayRef<Value>, Value, Values &)> body) {
    return taps(
        values, /*descending=*/true, [&](ArrayRef<Value> tap, Values &now) {
          Value flat = zero, inside;
          SmallVector<Value> out;
          for (size_t axis = 0; axis < tap.size(); ++axis) {
            Value from = k.add(in[axis], k.integer(w.low[axis]));
            from = arith::SubIOp::create(k.b, from,
                                         k.times(tap[axis], w.dilations[axis]));
            Value stride = k.integer(w.strides[axis]);
            Value at = arith::DivSIOp::create(k.b, from, stride);
            Value rest = arith::RemSIOp::create(k.b, from, stride);
            Value here = k.both(k.equal(rest, zero), k.less(at, w.out[axis]));
            inside = inside ? k.both(inside, here) : here;
            flat = k.add(k.times(flat, w.out[axis]), at);
            out.push_back(at);
          }
          body(k.select(inside, flat, zero), out, inside, now);
        });
  }

  Value number(double value) {
    return arith::ConstantOp::create(k.b, k.b.getFloatAttr(w.element, value));
  }

  const Window &w;
  PlainKernel k;
  Value zero;
};
} // namespace

KernelCode WindowEmitter::maxPool(bool wantsIndex) {
  Item item = begin(w.out);
  Value none = arith::ConstantIntOp::create(k.b, -1, 64);
  Value plane = k.times(item.plane, w.inPlane);
  Values best = taps(
      {number(-INFINITY), none}, /*descending=*/false,
      [&](ArrayRef<Value> tap, Values &now) {
        auto [flat, inside] = tapOf(item.at, tap);
        Value x = k.load(k.argument(0), w.element, k.add(plane, flat));
        // A NaN takes over and stays; the first tap beats "none".
        Value take =
            arith::CmpFOp::create(k.b, arith::CmpFPredicate::OGT, x, now[0]);
        Value nan = arith::CmpFOp::create(k.b, arith::CmpFPredicate::UNO, x, x);
        take = arith::OrIOp::create(k.b, take, nan);
        take = arith::OrIOp::create(k.b, take, k.equal(now[1], none));
        take = k.both(take, inside);
        now[0] = k.select(take, x, now[0]);
        now[1] = k.select(take, flat, now[1]);
      });
  k.store(best[0], k.argument(1), item.number);
  if (wantsIndex)
    k.store(arith::TruncIOp::create(k.b, k.b.getI32Type(), best[1]),
            k.argument(2), item.number);
  return k.finish();
}

KernelCode WindowEmitter::averagePool(bool countPad) {
  Item item = begin(w.out);
  Value plane = k.times(item.plane, w.inPlane);
  Value sum = taps({number(0)}, /*descending=*/false,
                   [&](ArrayRef<Value> tap, Values &now) {
                     auto [flat, inside] = tapOf(item.at, tap);
                     Value x =
                         k.load(k.argument(0), w.element, k.add(plane, flat));
                     Value more = arith::AddFOp::create(k.b, now[0], x);
                     now[0] = k.select(inside, more, now[0]);
                   })
                  .front();
  k.store(quotient(sum, divisor(item.at, countPad)), k.argument(1),
          item.number);
  return k.finish();
}

KernelCode WindowEmitter::maxPoolGradient() {
  Item item = begin(w.in);
  Value mine = arith::RemUIOp::create(k.b, item.number, k.integer(w.inPlane));
  Value plane = k.times(item.plane, w.outPlane);
  Value sum =
      windows(item.at, {number(0)},
              [&](Value flat, ArrayRef<Value>, Value inside, Values &now) {
                Value at = k.add(plane, flat);
                Value from = arith::ExtSIOp::create(
                    k.b, k.b.getI64Type(),
                    k.load(k.argument(1), k.b.getI32Type(), at));
                Value dy = k.load(k.argument(0), w.element, at);
                Value more = arith::AddFOp::create(k.b, now[0], dy);
                now[0] =
                    k.select(k.both(inside, k.equal(from, mine)), more, now[0]);
              })
          .front();
  k.store(sum, k.argument(2), item.number);
  return k.finish();
}

KernelCode WindowEmitter::averagePoolGradient(bool countPad) {
  Item item = begin(w.in);
  Value plane = k.times(item.plane, w.outPlane);
  Value sum =
      windows(item.at, {number(0)},
              [&](Value flat, ArrayRef<Value> out, Value inside, Values &now) {
                Value dy = k.load(k.argument(0), w.element, k.add(plane, flat));
                Value more = arith::AddFOp::create(
                    k.b, now[0], quotient(dy, divisor(out, countPad)));
                now[0] = k.select(inside, more, now[0]);
              })
          .front();
  k.store(sum, k.argument(1), item.number);
  return k.finish();
}

FailureOr<KernelCode> cuda::emitWindowKernel(ModuleOp module, StringRef name,
                                             Operation *op,
                                             ArrayRef<Placement> places) {
  Type element = tensorType(op->getOperand(0)).getElementType();
  if (!element.isF32() && !element.isF64())
    return op->emitError("the GPU kernels have no element type ") << element;
  SmallVector<KernelArgument> arguments;
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  for (auto [value, place] : llvm::zip_equal(values, places))
    if (place.buffer >= 0)
      arguments.push_back(
          argumentOf(place, tensorType(value).getElementType()));
  if (auto pool = dyn_cast<nn::MaxPoolOp>(op))
    return WindowEmitter(module, name, {pool, pool.getX(), pool.getY()},
                         arguments)
        .maxPool(places.back().buffer >= 0);
  if (auto pool = dyn_cast<nn::AvgPoolOp>(op))
    return WindowEmitter(module, name, {pool, pool.getX(), pool.getY()},
                         arguments)
        .averagePool(pool.getCountPad());
  if (auto pool = dyn_cast<nn::MaxPoolGradOp>(op))
    return WindowEmitter(module, name, {pool, pool.getDx(), pool.getDy()},
                         arguments)
        .maxPoolGradient();
  auto pool = cast<nn::AvgPoolGradOp>(op);
  return WindowEmitter(module, name, {pool, pool.getDx(), pool.getDy()},
                       arguments)
      .averagePoolGradient(pool.getCountPad());
}
