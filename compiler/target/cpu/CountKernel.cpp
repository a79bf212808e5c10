//===- CountKernel.cpp - how often a kernel's instructions run ------------===//
#include "compiler/target/cpu/CountKernel.h"
#include "compiler/target/fusion/Traffic.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using namespace pipec::fusion;
using nn::tensorType;

namespace {

/// Registers of 64 bytes that a vector takes; a mask is a byte a lane.
double registersOf(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  if (!vector)
    return 1;
  Type element = vector.getElementType();
  const int64_t bits =
      element.isIntOrFloat() ? element.getIntOrFloatBitWidth() : 64;
  const int64_t bytes =
      vector.getNumElements() * std::max<int64_t>(8, bits) / 8;
  return std::max(1.0, static_cast<double>(bytes) / 64);
}

class Counter {
public:
  Counter(const KernelCode &code, const KernelPlan &plan)
      : code(code), plan(plan) {}

  plan::InstructionCounts run() {
    func::FuncOp function = code.function;
    times.push_back(1);
    for (Operation &op : function.front())
      count(&op);
    counts.touched = touched();
    return counts;
  }

private:
  /// Every tensor once, what repeats as often as it is there.
  double touched() const {
    double bytes = 0;
    auto add = [&](Value value, const Placement &place) {
      bytes += static_cast<double>(placedBytes(tensorType(value), place));
    };
    for (const auto &[value, leaf] : plan.leaves)
      if (leaf.kind != Leaf::Index)
        add(value, leaf.place);
    for (const Target &target : plan.targets)
      add(target.value, target.place);
    return bytes;
  }

  static std::optional<int64_t> constantOf(Value value) {
    auto constant = value.getDefiningOp<arith::ConstantOp>();
    auto integer =
        constant ? dyn_cast<IntegerAttr>(constant.getValue()) : IntegerAttr();
    return integer ? std::optional(integer.getInt()) : std::nullopt;
  }

  /// The outermost loop runs over the whole range, the one over the rows of a
  /// chunk over their mean.
  double trips(scf::ForOp loop) const {
    auto low = constantOf(loop.getLowerBound()),
         high = constantOf(loop.getUpperBound()),
         step = constantOf(loop.getStep());
    const double by = step ? static_cast<double>(*step) : 1;
    if (low && high)
      return std::ceil(static_cast<double>(*high - *low) / by);
    if (times.size() == 1)
      return std::floor(static_cast<double>(code.count) / by);
    return static_cast<double>(product(plan.rows)) /
           static_cast<double>(std::max<int64_t>(1, plan.chunks));
  }

  /// How deep the deepest operand is computed.
  size_t depthOf(Operation *op) const {
    size_t depth = 0;
    for (Value operand : op->getOperands())
      if (auto known = depths.find(operand); known != depths.end())
        depth = std::max(depth, known->second);
    return depth;
  }

  void count(Operation *op) {
    const size_t here = times.size() - 1;
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      enter(loop);
      for (Value result : loop.getResults())
        depths[result] = here;
      return;
    }
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      counts.rounds += times[here];
      for (Region &region : branch->getRegions())
        for (Block &block : region)
          for (Operation &inner : block)
            count(&inner);
      return;
    }
    const bool fixed =
        isa<LLVM::LoadOp, LLVM::StoreOp, LLVM::MaskedLoadOp,
            LLVM::MaskedStoreOp, LLVM::masked_gather, LLVM::masked_scatter>(op);
    const size_t depth = fixed ? here : std::min(here, depthOf(op));
    for (Value result : op->getResults())
      depths[result] = depth;
    add(op, times[depth]);
  }

  void enter(scf::ForOp loop) {
    const double rounds = trips(loop);
    times.push_back(times.back() * rounds);
    counts.rounds += times.back();
    depths[loop.getInductionVar()] = times.size() - 1;
    for (Value argument : loop.getRegionIterArgs())
      depths[argument] = times.size() - 1;
    for (Operation &op : *loop.getBody())
      count(&op);
    times.pop_back();
  }

  void add(Operation *op, double often) {
    if (isa<arith::ConstantOp, LLVM::GEPOp, scf::YieldOp, func::ReturnOp>(op))
      return;
    if (auto load = dyn_cast<LLVM::LoadOp>(op))
      return addAccess(counts.loads, load.getType(), often);
    if (auto load = dyn_cast<LLVM::MaskedLoadOp>(op))
      return addAccess(counts.loads, load.getType(), often);
    if (auto store = dyn_cast<LLVM::StoreOp>(op))
      return addAccess(counts.stores, store.getValue().getType(), often);
    if (auto store = dyn_cast<LLVM::MaskedStoreOp>(op))
      return addAccess(counts.stores, store.getValue().getType(), often);
    if (isa<LLVM::masked_gather>(op))
      counts.strided += often * lanes(op->getResult(0).getType());
    else if (isa<LLVM::masked_scatter>(op))
      counts.strided += often * lanes(op->getOperand(0).getType());
    else if (isa<func::CallOp, LLVM::CallOp>(op))
      counts.calls += often;
    else
      addArithmetic(op, often);
  }

  static double lanes(Type type) {
    auto vector = dyn_cast<VectorType>(type);
    return vector ? static_cast<double>(vector.getNumElements()) : 1;
  }

  void addAccess(double &counter, Type type, double often) {
    counter += often * registersOf(type);
  }

  void addArithmetic(Operation *op, double often) {
    double registers = 0;
    bool vector = false;
    auto see = [&](Type type) {
      vector |= isa<VectorType>(type);
      registers = std::max(registers, registersOf(type));
    };
    for (Type type : op->getOperandTypes())
      see(type);
    for (Type type : op->getResultTypes())
      see(type);
    if (isa<arith::DivFOp, math::SqrtOp>(op))
      counts.divisions += often * registers;
    else if (!vector)
      counts.scalars += often;
    else if (isa<vector::ExtractStridedSliceOp, vector::ExtractOp,
                 vector::InsertOp, vector::BroadcastOp, vector::ReductionOp>(
                 op))
      counts.moves += often * registers;
    else
      counts.vectors += often * registers;
  }

  const KernelCode &code;
  const KernelPlan &plan;
  plan::InstructionCounts counts;
  /// How often the body of each loop around the current op runs.
  SmallVector<double> times;
  llvm::DenseMap<Value, size_t> depths;
};

} // namespace

plan::InstructionCounts cpu::countKernel(const KernelCode &code,
                                         const KernelPlan &plan) {
  return Counter(code, plan).run();
}
