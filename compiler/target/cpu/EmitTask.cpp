//===- EmitTask.cpp - a planned task as code ------------------------------===//
//
// A task is straight-line code: addresses from the frame, then one call for
// every unit, a kernel through pipec_parallel or a library function.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cpu/EmitTask.h"
#include "dialects/pipe/Pipe.h"
#include "runtime/StageAbi.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace pipec;
using namespace pipec::cpu;
using namespace pipec::fusion;
using nn::tensorType;

//===----------------------------------------------------------------------===//
// What a stage has once
//===----------------------------------------------------------------------===//

FailureOr<KernelCode> StageEmitter::kernel(const KernelPlan &plan,
                                           StringRef task) {
  std::string name = ("kernel" + Twine(kernels.count())).str();
  FailureOr<KernelCode> code = emitKernel(module, name, plan, machine);
  if (failed(code))
    return failure();
  code->function = kernels.unique(code->function);
  return code;
}

static void bytesGlobal(OpBuilder &b, StringRef name, StringRef bytes,
                        bool isConstant) {
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size());
  LLVM::GlobalOp::create(b, b.getUnknownLoc(), type, isConstant,
                         LLVM::Linkage::Internal, name, b.getStringAttr(bytes),
                         /*alignment=*/64);
}

std::string StageEmitter::constant(ElementsAttr value) {
  std::string &name = constants[value];
  if (name.empty()) {
    name = "constant" + std::to_string(constants.size() - 1);
    OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
    bytesGlobal(b, name, constantBytes(value), /*isConstant=*/true);
  }
  return name;
}

std::string StageEmitter::descriptor(const LibraryCall &call) {
  // The same shape prepared for two kinds of call is two descriptors.
  std::string key = call.descriptor;
  if (call.prepared)
    key += static_cast<char>('0' + call.prepareKind);
  std::string &name = descriptors[key];
  if (name.empty()) {
    name = "descriptor" + std::to_string(descriptors.size() - 1);
    OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
    bytesGlobal(b, name, call.descriptor, /*isConstant=*/!call.prepared);
    if (call.prepared)
      prepared.push_back({name, call.prepareKind});
  }
  return name;
}

//===----------------------------------------------------------------------===//
// One task
//===----------------------------------------------------------------------===//

namespace pipec::cpu {
class TaskEmitter {
public:
  TaskEmitter(StageEmitter &stage, const TaskPlan &plan)
      : stage(stage), plan(plan), b(stage.module.getContext()),
        loc(b.getUnknownLoc()),
        pointer(LLVM::LLVMPointerType::get(b.getContext())) {}

  LogicalResult run() {
    b.setInsertionPointToEnd(stage.module.getBody());
    function = func::FuncOp::create(b, loc, "pipec_" + plan.name,
                                    b.getFunctionType({pointer}, {}));
    Block *body = function.addEntryBlock();
    b.setInsertionPointToEnd(body);
    for (int unit : plan.order)
      if (failed(emit(plan.units[unit])))
        return failure();
    func::ReturnOp::create(b, loc);
    return success();
  }

private:
  Value integer(int64_t value, unsigned width = 64) {
    return arith::ConstantIntOp::create(b, loc, value, width);
  }
  Value frame() { return function.getArgument(0); }
  /// base + bytes, for any number of bytes.
  Value displaced(Value base, int64_t bytes) {
    if (bytes == 0)
      return base;
    return LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), base,
                               ArrayRef<LLVM::GEPArg>{integer(bytes)});
  }

  Value symbol(StringRef name) {
    return LLVM::AddressOfOp::create(b, loc, pointer, name);
  }

  /// The bases of the regions are read once.
  Value regionBase(int region) {
    Value &base = bases[region];
    if (!base) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(&function.front());
      Value field = displaced(frame(), offsetof(PipecFrame, base) +
                                           region * sizeof(char *));
      base = LLVM::LoadOp::create(b, loc, pointer, field);
    }
    return base;
  }

  Value address(int buffer, int64_t bytes) {
    const Buffer &place = plan.buffers[buffer];
    switch (place.kind) {
    case Buffer::Region:
      return displaced(regionBase(place.region), place.offset + bytes);
    case Buffer::Frame:
      return displaced(frame(), place.offset + bytes);
    case Buffer::Arena:
      return displaced(regionBase(PIPEC_WORKSPACE), place.offset + bytes);
    case Buffer::Constant:
      return displaced(symbol(stage.constant(place.constant)), bytes);
    }
    llvm_unreachable("a kind of buffer");
  }
  Value address(const Placement &place, Type element) {
    if (place.buffer < 0)
      return LLVM::ZeroOp::create(b, loc, pointer);
    return address(place.buffer, place.offset * elementBytes(element));
  }

  func::FuncOp external(StringRef name, TypeRange arguments) {
    if (auto known = stage.module.lookupSymbol<func::FuncOp>(name))
      return known;
    OpBuilder at = OpBuilder::atBlockBegin(stage.module.getBody());
    auto declared =
        func::FuncOp::create(at, loc, name, at.getFunctionType(arguments, {}));
    declared.setPrivate();
    return declared;
  }
  void call(StringRef name, ValueRange arguments) {
    func::CallOp::create(b, loc, external(name, arguments.getTypes()),
                         arguments);
  }

  LogicalResult emit(const Unit &unit) {
    switch (unit.kind) {
    case Unit::Kernel:
      return emitKernelCall(unit);
    case Unit::Library:
      return emitLibraryCall(unit);
    case Unit::Copy:
      emitCopy(unit);
      return success();
    case Unit::Scalar:
      emitScalar(unit);
      return success();
    }
    llvm_unreachable("a kind of unit");
  }

  LogicalResult emitKernelCall(const Unit &unit) {
    FailureOr<KernelCode> code = stage.kernel(unit.kernel, plan.name);
    if (failed(code))
      return failure();
    if (code->count == 0)
      return success();
    Value array = argumentArray(code->arguments.size());
    for (auto [i, argument] : llvm::enumerate(code->arguments)) {
      Value slot =
          LLVM::GEPOp::create(b, loc, pointer, pointer, array,
                              ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
      LLVM::StoreOp::create(
          b, loc, address(argument.buffer, argument.byteOffset), slot);
    }
    Value kernel = func::ConstantOp::create(
        b, loc, code->function.getFunctionType(), code->function.getName());
    call("pipec_parallel",
         {kernel, integer(code->count), integer(code->grain), array});
    return success();
  }

  /// One array on the stack serves all kernels of the task.
  Value argumentArray(size_t size) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&function.front());
    if (!array) {
      Value count = integer(size);
      array = LLVM::AllocaOp::create(b, loc, pointer, pointer, count, 8);
      arraySize = size;
    }
    if (size > arraySize) {
      arraySize = size;
      auto alloca = array.getDefiningOp<LLVM::AllocaOp>();
      b.setInsertionPoint(alloca);
      alloca.getArraySizeMutable().assign(integer(size));
    }
    return array;
  }

  LogicalResult emitLibraryCall(const Unit &unit) {
    FailureOr<LibraryCall> library =
        libraryCall(unit.op, unit.operands, unit.accumulate);
    if (failed(library))
      return failure();
    SmallVector<Value> values(unit.op->getOperands());
    llvm::append_range(values, unit.op->getResults());
    SmallVector<Value> arguments = {symbol(stage.descriptor(*library))};
    for (int index : library->arguments) {
      if (index < 0)
        arguments.push_back(unit.scratch < 0
                                ? Value(LLVM::ZeroOp::create(b, loc, pointer))
                                : address(unit.scratch, 0));
      else
        arguments.push_back(address(
            unit.operands[index], tensorType(values[index]).getElementType()));
    }
    if (library->clears) {
      Value result = unit.op->getResult(0);
      LLVM::MemsetOp::create(b, loc, arguments.back(), integer(0, 8),
                             integer(nn::byteSize(result.getType())), false);
    }
    call(library->function, arguments);
    return success();
  }

  void emitCopy(const Unit &unit) {
    if (llvm::is_contained(unit.shape, 0))
      return;
    LibraryCall copy;
    copy.descriptor = copyDescriptor(unit.shape, unit.from, unit.to,
                                     elementBytes(unit.element));
    call("pipec_copy",
         {symbol(stage.descriptor(copy)), address(unit.from, unit.element),
          address(unit.to, unit.element)});
  }

  /// The number of the update as f64.
  void emitScalar(const Unit &unit) {
    Value count =
        LLVM::LoadOp::create(b, loc, b.getI64Type(),
                             displaced(frame(), offsetof(PipecFrame, update)));
    Value number = arith::SIToFPOp::create(b, loc, b.getF64Type(), count);
    LLVM::StoreOp::create(b, loc, number,
                          address(unit.operands.front(), b.getF64Type()));
  }

  StageEmitter &stage;
  const TaskPlan &plan;
  OpBuilder b;
  Location loc;
  Type pointer;
  func::FuncOp function;
  std::map<int, Value> bases;
  Value array;
  size_t arraySize = 0;
};
} // namespace pipec::cpu

LogicalResult StageEmitter::emitTask(const TaskPlan &plan) {
  return TaskEmitter(*this, plan).run();
}

void StageEmitter::finish() {
  OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
  Location loc = b.getUnknownLoc();
  LLVM::GlobalOp::create(b, loc, b.getI32Type(), /*isConstant=*/true,
                         LLVM::Linkage::External, "pipec_abi_version",
                         b.getI32IntegerAttr(PIPEC_ABI_VERSION));
  if (prepared.empty())
    return;
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto prepare =
      func::FuncOp::create(b, loc, "pipec_prepare_conv",
                           b.getFunctionType({pointer, b.getI32Type()}, {}));
  prepare.setPrivate();
  auto load =
      func::FuncOp::create(b, loc, "pipec_load", b.getFunctionType({}, {}));
  b.setInsertionPointToEnd(load.addEntryBlock());
  for (const auto &[name, kind] : prepared) {
    Value descriptor = LLVM::AddressOfOp::create(b, loc, pointer, name);
    Value which = arith::ConstantIntOp::create(b, loc, kind, 32);
    func::CallOp::create(b, loc, prepare, ValueRange{descriptor, which});
  }
  func::ReturnOp::create(b, loc);
}
