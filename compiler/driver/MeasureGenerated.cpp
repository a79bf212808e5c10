//===- MeasureGenerated.cpp - times of generated kernels ------------------===//
//
// Tasks are written at random, of what training consists of: chains of
// elementwise ops, norms and softmaxes over rows, sums over rows. Compiled as a
// stage they are timed like library routines.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/MeasureGenerated.h"

#include "compiler/driver/MeasureKernels.h"
#include "compiler/driver/MeasuredMemory.h"
#include "compiler/driver/Planning.h"
#include "compiler/driver/UnitWork.h"
#include "compiler/target/cpu/Cpu.h"
#include "compiler/target/native/Codegen.h"
#include "dialects/nn/Build.h"
#include "dialects/pipe/Pipe.h"
#include "runtime/StageAbi.h"
#include "support/Failure.h"
#include "support/Phase.h"
#include "support/ScratchFolder.h"

#include <dlfcn.h>
#include <filesystem>

using namespace mlir;
using namespace pipec::nn;

namespace pipec {
namespace {

constexpr int64_t kAlignment = 64;
int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// One task at a time, at random.
class TaskWriter {
public:
  TaskWriter(NNBuilder &b, Choices &choose) : b(b), choose(choose) {}

  /// Bytes that the task reads and writes.
  int64_t in = 0, out = 0;

  void write(int number) {
    rows = choose.of({1, 4, 16, 32, 64, 128, 128, 256, 512, 1024});
    columns = choose.of(
        {1, 4, 8, 10, 16, 32, 32, 48, 64, 64, 100, 128, 256, 512, 1000, 4096});
    while (rows * columns > int64_t(1) << 18)
      rows = (rows + 1) / 2;
    switch (number % 5) {
    case 0:
    case 1:
      store(chain(source(), choose.between(1, 10)));
      if (choose.between(0, 2) == 0)
        store(chain(source(), choose.between(1, 4)));
      break;
    case 2:
      store(softmax(chain(source(), choose.between(0, 4))));
      break;
    case 3:
      store(chain(norm(chain(source(), choose.between(0, 3))),
                  choose.between(1, 6)));
      break;
    default:
      sums();
    }
  }

private:
  RankedTensorType type(ArrayRef<int64_t> shape) {
    return RankedTensorType::get(shape, b.getF32Type());
  }
  Value load(ArrayRef<int64_t> shape) {
    Value x = pipe::LoadOp::create(b, type(shape), "in", in);
    in += aligned(byteSize(x.getType()));
    return x;
  }
  void store(Value x, bool accumulate = false) {
    pipe::StoreOp::create(b, x, "out", out, accumulate);
    out += aligned(byteSize(x.getType()));
  }
  Value whole(Value x) { return broadcast(b, x, {rows, columns}); }
  Value source() { return load({rows, columns}); }

  /// Another operand: a tensor, a row or column that repeats, or the other way
  /// round in memory.
  Value operand() {
    switch (choose.between(0, 7)) {
    case 0:
      return whole(load({1, columns}));
    case 1:
      return whole(load({rows, 1}));
    case 2:
      return transpose(b, load({columns, rows}), {1, 0});
    case 3:
      return splat(b, type({rows, columns}), 0.75);
    default:
      return source();
    }
  }

  Value chain(Value x, int64_t length) {
    for (int64_t i = 0; i < length; ++i)
      x = step(x);
    return x;
  }

  Value step(Value x) {
    switch (choose.between(0, 15)) {
    case 0:
      return exp(b, x);
    case 1:
      return TanhOp::create(b, x);
    case 2:
      return ErfOp::create(b, x);
    case 3:
      return div(b, x, addScalar(b, operand(), 3));
    case 4:
      return SqrtOp::create(b, addScalar(b, mul(b, x, x), 1));
    case 5:
      return ReluOp::create(b, x);
    case 6:
      return selectOrZero(b, compare(b, "gt", operand(), x), x);
    case 7:
    case 8:
      return sub(b, x, operand());
    case 9:
    case 10:
    case 11:
      return mul(b, x, operand());
    case 12:
      return mulScalar(b, x, 1.25);
    default:
      return add(b, x, operand());
    }
  }

  Value softmax(Value x) {
    Value centred = sub(b, x, whole(reduce(b, "max", x, {1})));
    Value e = exp(b, centred);
    Value sum = reduce(b, "sum", e, {1});
    return mul(b, e, whole(ReciprocalOp::create(b, sum)));
  }

  Value norm(Value x) {
    Value centred = sub(b, x, whole(mean(b, x, {1})));
    Value variance = mean(b, mul(b, centred, centred), {1});
    return mul(b, centred,
               whole(RsqrtOp::create(b, addScalar(b, variance, 1e-5))));
  }

  /// Gradients of a bias, or of a norm: sums over rows beside what goes on.
  void sums() {
    Value x = chain(source(), choose.between(0, 4));
    if (choose.between(0, 1))
      x = norm(x);
    store(reduce(b, "sum", x, {0}), choose.between(0, 1));
    if (choose.between(0, 1))
      store(reduce(b, "sum", mul(b, x, operand()), {0}));
    if (choose.between(0, 1))
      store(x);
  }

  NNBuilder &b;
  Choices &choose;
  int64_t rows = 1, columns = 1;
};

} // namespace

/// The tasks, compiled and loaded.
class GeneratedKernels::Tasks {
public:
  explicit Tasks(int count) {
    const Phase phase("compiling kernels");
    context.disableMultithreading();
    native::registerLoweringDialects(context);
    context.loadDialect<func::FuncDialect, NNDialect, pipe::PipeDialect>();
    Location loc = UnknownLoc::get(&context);
    module = ModuleOp::create(loc);
    NNBuilder b(loc, &context);
    Choices choose;
    for (int i = 0; i < count; ++i) {
      b.setInsertionPointToEnd(module->getBody());
      const std::string name = "t" + std::to_string(i);
      auto task = func::FuncOp::create(b, name, b.getFunctionType({}, {}));
      task->setAttr(pipe::kTaskAttr, b.getStringAttr(name));
      b.setInsertionPointToStart(task.addEntryBlock());
      TaskWriter writer(b, choose);
      writer.write(i);
      func::ReturnOp::create(b);
      sizes.push_back({writer.in, writer.out});
    }
    findWork();
    compile();
  }
  ~Tasks() {
    if (library)
      dlclose(library);
  }

  size_t count() const { return sizes.size(); }
  /// No kernel where a task is more than generated kernels.
  const plan::KernelWork &work(size_t i) const { return works[i]; }

  /// Repeats task i, on copies of its memory in turn.
  std::function<void()> repeat(size_t i, int64_t footprint) const {
    const auto run = reinterpret_cast<PipecTask>(
        dlsym(library, ("pipec_t" + std::to_string(i)).c_str()));
    if (!run)
      throw Failure(Exit::Internal, "a measured task is not there");
    const int64_t in = sizes[i].first, out = sizes[i].second,
                  work = aligned(workspace[i]);
    auto memory = std::make_shared<Operands>(
        std::vector<int64_t>{in / 4, out / 4, std::max<int64_t>(work / 4, 16)},
        footprint);
    return [=] {
      PipecFrame frame{};
      const Array *next = memory->next();
      frame.base[PIPEC_IN] = reinterpret_cast<char *>(next[0].get());
      frame.base[PIPEC_OUT] = reinterpret_cast<char *>(next[1].get());
      frame.base[PIPEC_WORKSPACE] = reinterpret_cast<char *>(next[2].get());
      run(&frame);
    };
  }

private:
  [[noreturn]] static void fail() {
    throw Failure(Exit::Internal, "the measured kernels do not compile");
  }

  void findWork() {
    OwningOpRef<ModuleOp> source(cast<ModuleOp>((*module)->clone()));
    OwningOpRef<ModuleOp> scratch = ModuleOp::create(module->getLoc());
    FailureOr<fusion::Machine> machine =
        cpu::machineOf(module->getLoc(), "native");
    if (failed(machine) ||
        failed(cpu::planTasks(*source, true, [&](fusion::TaskPlan &task) {
          works.push_back(sumOf(task, *scratch, *machine));
          workspace.push_back(task.workspace);
          return success();
        })))
      fail();
  }

  static plan::KernelWork sumOf(const fusion::TaskPlan &task, ModuleOp scratch,
                                const fusion::Machine &machine) {
    plan::KernelWork sum;
    for (const fusion::Unit &unit : task.units) {
      FailureOr<plan::KernelWork> work =
          unitWork(unit, scratch, machine, productTile());
      if (failed(work))
        fail();
      if (work->kernel.empty())
        continue;
      if (work->kernel != "generated")
        return {};
      sum.kernel = work->kernel;
      sum.divides |= work->divides;
      sum.amounts.resize(work->amounts.size());
      for (size_t i = 0; i < sum.amounts.size(); ++i)
        sum.amounts[i] += work->amounts[i];
    }
    return sum;
  }

  void compile() {
    const ScratchFolder scratch(std::filesystem::temp_directory_path().string(),
                                "pipec-calibrate");
    const std::string path = scratch / "code.so";
    target::StageCode code;
    const bool compiled = succeeded(target::compileStage(
        "cpu", *module, target::TargetOptions(), path, code));
    if (compiled)
      library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      fail();
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::vector<std::pair<int64_t, int64_t>> sizes; ///< bytes in and out
  std::vector<int64_t> workspace;
  std::vector<plan::KernelWork> works;
  void *library = nullptr;
};

GeneratedKernels::GeneratedKernels(int count)
    : tasks(std::make_unique<Tasks>(count)) {}
GeneratedKernels::~GeneratedKernels() = default;

std::vector<plan::KernelSample>
GeneratedKernels::measure(const Workers &workers, int share) const {
  std::vector<plan::KernelSample> samples;
  Phase timing("generated kernel", static_cast<int64_t>(tasks->count()));
  for (size_t i = 0; i < tasks->count(); i += share) {
    timing.at(static_cast<int64_t>(i) + 1);
    if (!tasks->work(i).kernel.empty())
      samples.push_back(
          {tasks->work(i),
           measureCalls([&] { return tasks->repeat(i, workers.footprint); },
                        workers, kCallBudget)});
  }
  return samples;
}

} // namespace pipec
