//===- EmitTask.cpp - a planned task as host and device code --------------===//
//
// A task is straight-line host code: addresses from the frame, then one call
// into the table of the device (runtime/StageAbi.h) for every unit. Only where
// a library may add a bias or compute attention there are two ways.
//
//===----------------------------------------------------------------------===//
#include "compiler/target/cuda/EmitTask.h"
#include "compiler/target/cuda/AttentionCall.h"
#include "compiler/target/cuda/EvenProduct.h"
#include "compiler/target/cuda/JoinKernel.h"
#include "compiler/target/cuda/PlainKernel.h"
#include "compiler/target/fusion/LibraryCall.h"
#include "runtime/CallNames.h"
#include "runtime/StageAbi.h"
#include "runtime/kernels/cpu/Kernels.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cstring>
#include <utility>

using namespace mlir;
using namespace pipec;
using namespace pipec::cuda;
using namespace pipec::fusion;
using nn::tensorType;

int64_t cuda::kernelNumber(func::FuncOp function) {
  int64_t number = 0;
  function.getName()
      .drop_front(StringRef("kernel").size())
      .getAsInteger(10, number);
  return number;
}

void cuda::emitBytes(ModuleOp module, StringRef name, StringRef bytes,
                     bool isExported) {
  OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
  auto type = LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size());
  LLVM::GlobalOp::create(b, b.getUnknownLoc(), type, /*isConstant=*/true,
                         isExported ? LLVM::Linkage::External
                                    : LLVM::Linkage::Internal,
                         name, b.getStringAttr(bytes), /*alignment=*/64);
}

int64_t StageEmitter::literal(ElementsAttr value) {
  auto [it, isNew] = literalOffsets.try_emplace(value, literalBytes.size());
  if (isNew) {
    literalBytes += constantBytes(value);
    literalBytes.resize(llvm::alignTo(literalBytes.size(), 64));
  }
  return it->second;
}

std::string StageEmitter::descriptor(const std::string &bytes) {
  std::string &name = descriptors[bytes];
  if (name.empty()) {
    name = "descriptor" + std::to_string(descriptors.size() - 1);
    emitBytes(host, name, bytes, /*isExported=*/false);
  }
  return name;
}

namespace pipec::cuda {
class TaskEmitter {
public:
  TaskEmitter(StageEmitter &stage, const TaskPlan &plan)
      : stage(stage), plan(plan),
        b(UnknownLoc::get(stage.host.getContext()), stage.host.getContext()),
        pointer(LLVM::LLVMPointerType::get(b.getContext())) {}

  LogicalResult run() {
    b.setInsertionPointToEnd(stage.host.getBody());
    function = func::FuncOp::create(b, "pipec_" + plan.name,
                                    b.getFunctionType({pointer}, {}));
    b.setInsertionPointToEnd(function.addEntryBlock());
    device = field(frame(), offsetof(PipecFrame, device));
    for (int unit : plan.order) {
      listed = stage.calls ? &plan.units[unit] : nullptr;
      if (failed(emit(plan.units[unit])))
        return failure();
    }
    flush();
    func::ReturnOp::create(b);
    return success();
  }

private:
  Value integer(int64_t value, unsigned width = 64) {
    return arith::ConstantIntOp::create(b, value, width);
  }
  Value frame() { return function.getArgument(0); }
  Value displaced(Value base, int64_t bytes) {
    if (bytes == 0)
      return base;
    return LLVM::GEPOp::create(b, pointer, b.getI8Type(), base,
                               ArrayRef<LLVM::GEPArg>{integer(bytes)});
  }
  /// A pointer in a struct; those are read once, at the start.
  Value field(Value base, int64_t offset) {
    Value &known = fields[{base.getAsOpaquePointer(), offset}];
    if (!known) {
      OpBuilder::InsertionGuard guard(b);
      if (Operation *op = base.getDefiningOp())
        b.setInsertionPointAfter(op);
      else
        b.setInsertionPointToStart(&function.front());
      known = LLVM::LoadOp::create(b, pointer, displaced(base, offset));
    }
    return known;
  }
  Value regionBase(int region) {
    return field(frame(), offsetof(PipecFrame, base) + region * sizeof(char *));
  }

  Value address(int buffer, int64_t bytes) {
    if (buffer == kFaultBuffer)
      return field(device, offsetof(PipecDevice, fault));
    if (buffer == kUpdateBuffer)
      return displaced(field(frame(), offsetof(PipecFrame, scalars)),
                       offsetof(PipecFrame, update));
    const Buffer &place = plan.buffers[buffer];
    switch (place.kind) {
    case Buffer::Region:
      return displaced(regionBase(place.region), place.offset + bytes);
    case Buffer::Frame:
      return displaced(field(frame(), offsetof(PipecFrame, scalars)),
                       place.offset + bytes);
    case Buffer::Arena:
      return displaced(regionBase(PIPEC_WORKSPACE), place.offset + bytes);
    case Buffer::Constant:
      return displaced(field(device, offsetof(PipecDevice, literals)),
                       stage.literal(place.constant) + bytes);
    }
    llvm_unreachable("a kind of buffer");
  }
  Value address(const Placement &place, Type element) {
    return address(place.buffer, place.offset * elementBytes(element));
  }

  /// A call of a function of the device's table.
  LLVM::CallOp call(int64_t offset, ArrayRef<Value> arguments,
                    Type result = {}) {
    flush();
    SmallVector<Value> operands = {field(device, offset), device};
    llvm::append_range(operands, arguments);
    auto type = LLVM::LLVMFunctionType::get(
        result ? result : LLVM::LLVMVoidType::get(b.getContext()),
        llvm::to_vector(ValueRange(operands).drop_front().getTypes()));
    return LLVM::CallOp::create(b, type, operands);
  }

  LogicalResult emit(const Unit &unit) {
    if (unit.isDeferred)
      return success();
    switch (unit.kind) {
    case Unit::Kernel:
      return emitGenerated(unit);
    case Unit::Library:
      if (isAttention(unit.op))
        return emitAttention(unit);
      return unit.bias.kernel < 0 ? emitLibrary(unit) : emitBiased(unit);
    case Unit::Copy:
      return launch(emitCopyKernel(stage.device, stage.nextName(), unit.shape,
                                   unit.from, unit.to, unit.element,
                                   plan.buffers));
    case Unit::Scalar:
      return launch(emitScalar(unit));
    }
    llvm_unreachable("a kind of unit");
  }

  LogicalResult emitGenerated(const Unit &unit) {
    FailureOr<KernelCode> code =
        emitKernel(stage.device, stage.nextName(), unit.kernel, plan.buffers,
                   /*mayHold=*/true);
    if (succeeded(code) && code->sharedBytes > kSharedLimit)
      return emitHolding(unit, *code);
    const bool addsPartials =
        llvm::any_of(unit.kernel.leaves, [](const auto &leaf) {
          return leaf.second.kind == Leaf::Partials;
        });
    if (failed(code) || !addsPartials || code->blocks == 0)
      return launch(code);
    code->function = stage.kernels.unique(code->function);
    if (!mayJoin(unit, *code))
      flush();
    joined.push_back({*code, &unit, listed != nullptr});
    return success();
  }

  /// The kernel that holds its rows in shared memory, or the one that does not,
  /// as the device has enough of it.
  LogicalResult emitHolding(const Unit &unit, const KernelCode &code) {
    flush();
    Value most = LLVM::LoadOp::create(
        b, b.getI64Type(), displaced(device, offsetof(PipecDevice, row_bytes)));
    Value fits = arith::CmpIOp::create(b, arith::CmpIPredicate::sge, most,
                                       integer(code.sharedBytes));
    auto either = scf::IfOp::create(b, fits, /*withElse=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(either.thenBlock());
    if (failed(launch(code)))
      return failure();
    const Unit *was = std::exchange(listed, nullptr);
    b.setInsertionPointToStart(either.elseBlock());
    const LogicalResult result =
        launch(emitKernel(stage.device, stage.nextName(), unit.kernel,
                          plan.buffers, /*mayHold=*/false));
    listed = was;
    return result;
  }

  /// Sums of partial sums that wait to be launched together.
  struct Joined {
    KernelCode code;
    const Unit *unit;
    bool isListed;
  };
  static constexpr size_t kMostJoined = 4;

  /// Whether a kernel is the one that waits to be launched, of other data.
  bool mayJoin(const Unit &unit, const KernelCode &code) {
    if (joined.size() >= kMostJoined)
      return false;
    return llvm::all_of(joined, [&](const Joined &before) {
      const auto number = static_cast<int>(before.unit - plan.units.data());
      return before.code.function == code.function &&
             before.code.blocks == code.blocks &&
             !llvm::is_contained(unit.after, number) &&
             llvm::none_of(code.arguments, [&](const KernelArgument &one) {
               return llvm::any_of(before.code.arguments,
                                   [&](const KernelArgument &other) {
                                     return one.buffer == other.buffer &&
                                            one.byteOffset == other.byteOffset;
                                   });
             });
    });
  }

  void flush() {
    if (joined.empty())
      return;
    const SmallVector<Joined, kMostJoined> all = std::move(joined);
    joined.clear();
    KernelCode code = all.front().code;
    if (all.size() > 1) {
      code.function = stage.kernels.unique(
          joinKernel(stage.device, stage.nextName(), code.function, code.blocks,
                     all.size()));
      code.blocks *= static_cast<int64_t>(all.size());
      for (const Joined &one : ArrayRef(all).drop_front())
        llvm::append_range(code.arguments, one.code.arguments);
    }
    SmallVector<const Unit *> units;
    for (const Joined &one : all)
      if (one.isListed)
        units.push_back(one.unit);
    if (!units.empty())
      stage.calls->add(plan, units, code.function.getName().str(), code.blocks,
                       code.threads);
    launchUnique(code);
  }

  LogicalResult launch(FailureOr<KernelCode> code) {
    if (failed(code))
      return failure();
    if (code->blocks == 0) {
      code->function.erase();
      return success();
    }
    code->function = stage.kernels.unique(code->function);
    flush();
    list(code->function.getName(), code->blocks, code->threads,
         /*isHeld=*/code->sharedBytes > kSharedLimit);
    launchUnique(*code);
    return success();
  }

  void launchUnique(const KernelCode &code) {
    Value array = argumentArray(code.arguments.size());
    for (auto [i, argument] : llvm::enumerate(code.arguments))
      LLVM::StoreOp::create(b, address(argument.buffer, argument.byteOffset),
                            displaced(array, i * sizeof(char *)));
    func::FuncOp function = code.function;
    call(offsetof(PipecDevice, launch),
         {integer(kernelNumber(function), 32), integer(code.blocks),
          integer(code.threads, 32), integer(code.sharedBytes, 32), array,
          integer(code.arguments.size(), 32)});
  }

  void list(StringRef call, int64_t blocks = 0, int64_t threads = 0,
            bool isHeld = false) {
    if (listed && clears)
      stage.calls->addClear(plan.name, call.str(), blocks, threads, clears);
    else if (listed)
      stage.calls->add(plan, listed, call.str(), blocks, threads, isHeld);
  }

  /// One array on the stack serves all kernels of the task.
  Value argumentArray(int64_t size) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&function.front());
    if (!array)
      array = LLVM::AllocaOp::create(b, pointer, pointer, integer(size), 8);
    arraySize = std::max(arraySize, size);
    auto alloca = array.getDefiningOp<LLVM::AllocaOp>();
    b.setInsertionPoint(alloca);
    alloca.getArraySizeMutable().assign(integer(arraySize));
    return array;
  }

  LogicalResult emitLibrary(const Unit &unit) {
    Operation *op = unit.op;
    if (isa<nn::MatmulOp, nn::ConvOp, nn::ConvGradInputOp,
            nn::ConvGradWeightOp>(op))
      return emitContraction(unit);
    if (!isa<nn::GatherOp, nn::ScatterAddOp>(op))
      return launch(
          emitWindowKernel(stage.device, stage.nextName(), op, unit.operands));
    if (isa<nn::ScatterAddOp>(op) && !unit.accumulate) {
      Value result = op->getResult(0);
      const int64_t bytes = nn::byteSize(result.getType());
      call(offsetof(PipecDevice, clear),
           {address(unit.operands.back(), tensorType(result).getElementType()),
            integer(bytes)});
      if (listed)
        stage.calls->addClear(plan.name, "clear " + std::to_string(bytes), 0, 0,
                              bytes);
    }
    return launch(emitRowsKernel(stage.device, stage.nextName(), op,
                                 unit.operands, plan.buffers));
  }

  /// What is rounded to bf16 is not added to.
  static LogicalResult checkRounding(Operation *op,
                                     const fusion::LibraryCall &library) {
    if (library.prepared)
      return success();
    PipecMatmul shape;
    std::memcpy(&shape, library.descriptor.data(), sizeof shape);
    bool adds = shape.accumulate;
    for (int i = 0; i < shape.batch_rank; ++i)
      adds |= shape.stride_c[i] == 0;
    if (shape.dtype == PIPEC_BF16 && !shape.wide && adds)
      return op->emitError("a sum of products rounded to bf16 is not "
                           "available on GPUs; use --cpus");
    return success();
  }

  static std::string nameOf(const fusion::LibraryCall &library) {
    if (library.prepared) {
      PipecConv shape;
      std::memcpy(&shape, library.descriptor.data(), sizeof shape);
      return callName(shape, library.prepareKind);
    }
    PipecMatmul shape;
    std::memcpy(&shape, library.descriptor.data(), sizeof shape);
    return callName(shape);
  }

  /// Takes the gaps behind rows into a product; clears those that have to be
  /// zero, a few numbers a row.
  LogicalResult makeEven(const Unit &unit, fusion::LibraryCall &library,
                         ArrayRef<Value> values) {
    PipecMatmul shape;
    std::memcpy(&shape, library.descriptor.data(), sizeof shape);
    auto bufferOf = [&](int which) {
      const Placement &at = unit.operands[library.arguments[which]];
      return at.offset == 0 ? plan.buffers[at.buffer] : Buffer();
    };
    const EvenProduct even(shape, bufferOf(0), bufferOf(1), bufferOf(2));
    library.descriptor.assign(reinterpret_cast<const char *>(&even.shape),
                              sizeof even.shape);
    const int64_t rows[] = {shape.m, shape.n};
    for (int which : {0, 1}) {
      if (!even.clearsGaps)
        break;
      const int index = library.arguments[which];
      const Placement &at = unit.operands[index];
      const Buffer &buffer = plan.buffers[at.buffer];
      Type element = tensorType(values[index]).getElementType();
      clears =
          rows[which] * (buffer.pitch - buffer.row) * elementBytes(element);
      if (failed(launch(emitGapKernel(stage.device, stage.nextName(),
                                      rows[which], at, element, plan.buffers))))
        return failure();
    }
    clears = 0;
    return success();
  }

  /// Descriptors and the order of operands are those of the CPU's library.
  LogicalResult emitContraction(const Unit &unit) {
    FailureOr<fusion::LibraryCall> library =
        fusion::libraryCall(unit.op, unit.operands, unit.accumulate);
    if (failed(library))
      return failure();
    if (failed(checkRounding(unit.op, *library)))
      return failure();
    SmallVector<Value> values(unit.op->getOperands());
    llvm::append_range(values, unit.op->getResults());
    // A bias is as long as a row without its gap.
    if (isa<nn::MatmulOp>(unit.op) && unit.bias.kernel < 0 &&
        failed(makeEven(unit, *library, values)))
      return failure();
    SmallVector<Value> arguments = {LLVM::AddressOfOp::create(
        b, pointer, stage.descriptor(library->descriptor))};
    if (library->prepared)
      arguments.push_back(integer(library->prepareKind, 32));
    for (int index : library->arguments)
      if (index >= 0)
        arguments.push_back(address(
            unit.operands[index], tensorType(values[index]).getElementType()));
    call(library->prepared ? offsetof(PipecDevice, conv)
                           : offsetof(PipecDevice, matmul),
         arguments);
    list(nameOf(*library));
    return success();
  }

  /// The library's sum of product and bias, else the product and the kernel
  /// that adds the bias.
  LogicalResult emitBiased(const Unit &unit) {
    SmallVector<Placement> places(unit.operands);
    places.back() = unit.bias.to;
    FailureOr<fusion::LibraryCall> library =
        fusion::libraryCall(unit.op, places, /*accumulate=*/false);
    if (failed(library))
      return failure();
    PipecMatmul shape;
    std::memcpy(&shape, library->descriptor.data(), sizeof shape);
    shape.wide = 0; // the sum is rounded, if at all
    Type operand = tensorType(unit.op->getOperand(0)).getElementType();
    SmallVector<Value> arguments = {
        LLVM::AddressOfOp::create(
            b, pointer,
            stage.descriptor(std::string(reinterpret_cast<const char *>(&shape),
                                         sizeof shape))),
        address(unit.operands[library->arguments[0]], operand),
        address(unit.operands[library->arguments[1]], operand),
        address(unit.bias.from, operand), address(unit.bias.to, operand)};
    list(nameOf(*library) + " + bias");
    LLVM::CallOp added =
        call(offsetof(PipecDevice, biased), arguments, b.getI32Type());
    return otherwise(added, [&] {
      return failure(failed(emitContraction(unit)) ||
                     failed(emitGenerated(plan.units[unit.bias.kernel])));
    });
  }

  /// Where a library has done nothing: its call returned 0.
  LogicalResult otherwise(LLVM::CallOp asked,
                          llvm::function_ref<LogicalResult()> body) {
    listed = nullptr; // what runs where the library refuses
    Value isLeft = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                         asked.getResult(), integer(0, 32));
    auto isRefused = scf::IfOp::create(b, isLeft, /*withElse=*/false);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(isRefused.thenBlock());
    const LogicalResult result = body();
    flush();
    return result;
  }

  /// The library's attention, else the stage's own kernels.
  LogicalResult emitAttention(const Unit &unit) {
    auto own = [&] {
      for (int part : {unit.attention.delta, unit.attention.queries})
        if (part >= 0 && failed(emitOwn(plan.units[part])))
          return failure();
      return emitOwn(unit);
    };
    const auto library = attentionCall(plan, unit);
    if (!library || !mayAttend(*library))
      return own();
    list(callName(library->shape));
    const std::string bytes(reinterpret_cast<const char *>(&library->shape),
                            sizeof library->shape);
    flush(); // which writes to the same array
    Value at = argumentArray(PIPEC_ATTENTION_ARGUMENTS);
    for (auto [i, place] : llvm::enumerate(library->places)) {
      Type element = i < PIPEC_ATTENTION_TENSORS ? Type(b.getBF16Type())
                                                 : Type(b.getF32Type());
      Value where = place.buffer < 0 ? LLVM::ZeroOp::create(b, pointer)
                                     : address(place, element);
      LLVM::StoreOp::create(b, where, displaced(at, i * sizeof(char *)));
    }
    LLVM::CallOp asked = call(
        offsetof(PipecDevice, attention),
        {LLVM::AddressOfOp::create(b, pointer, stage.descriptor(bytes)), at},
        b.getI32Type());
    return otherwise(asked, own);
  }

  LogicalResult emitOwn(const Unit &unit) {
    if (unit.kind == Unit::Kernel)
      return emitGenerated(unit);
    return launch(emitAttentionKernel(stage.device, stage.nextName(), unit.op,
                                      unit.operands, plan.buffers));
  }

  /// Forward may always be a library's; gradients where forward's numbers of
  /// rows may be of one.
  bool mayAttend(const AttentionCall &library) {
    const int tops = library.places[PIPEC_ATTENTION_TOPS].buffer;
    const auto place = library.topsInRegion(plan.buffers);
    if (library.shape.gradient)
      return place ? stage.libraryTops.contains(*place)
                   : ownTops.contains(tops);
    if (place)
      stage.libraryTops.insert(*place);
    else
      ownTops.insert(tops);
    return true;
  }

  /// The number of the update as f64.
  KernelCode emitScalar(const Unit &unit) {
    return emitScalarKernel(stage.device, stage.nextName(), {kUpdateBuffer, 0},
                            argumentOf(unit.operands.front(), b.getF64Type()));
  }

  StageEmitter &stage;
  const TaskPlan &plan;
  /// The unit whose calls are listed; null where none are.
  const Unit *listed = nullptr;
  /// Bytes that the next call sets to zero, where it does only that.
  int64_t clears = 0;
  ImplicitLocOpBuilder b;
  Type pointer;
  func::FuncOp function;
  SmallVector<Joined, kMostJoined> joined;
  llvm::DenseSet<int> ownTops; ///< StageEmitter::libraryTops in the workspace
  Value device, array;
  int64_t arraySize = 0;
  std::map<std::pair<void *, int64_t>, Value> fields;
};
} // namespace pipec::cuda

LogicalResult StageEmitter::emitTask(const TaskPlan &plan) {
  return TaskEmitter(*this, plan).run();
}
