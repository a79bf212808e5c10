//===- MeasurePrograms.cpp - times of whole tasks -------------------------===//
//
// A routine that is repeated finds its code, its operands and its branches
// where it left them. Tasks of a training step do not: little programs are
// compiled as models are, and run step by step.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/MeasurePrograms.h"

#include "compiler/driver/OperandUses.h"
#include "compiler/driver/Planning.h"
#include "compiler/driver/SamplePrograms.h"
#include "compiler/driver/UnitWork.h"
#include "compiler/target/cpu/Cpu.h"
#include "compiler/target/native/Codegen.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Pipelines.h"
#include "runtime/StageAbi.h"
#include "runtime/kernels/cpu/Kernels.h"
#include "runtime/kernels/cpu/SharingTrials.h"
#include "support/Clock.h"
#include "support/Failure.h"
#include "support/Phase.h"
#include "support/ScratchFolder.h"
#include "support/TinyNumbers.h"
#include "support/TrimmedMean.h"

#include "mlir/Pass/PassManager.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <mutex>
#include <sys/mman.h>

using namespace mlir;

namespace pipec {
namespace {

/// Of one step, and how many of them a rank keeps, as in the middle of 1F1B.
constexpr int kMicrobatches = 4, kKept = 2;
/// Different microbatches: branches that depend on the data are not to be
/// learnt by heart.
constexpr int kInputs = 16;

[[noreturn]] void fail() {
  throw Failure(Exit::Internal, "the measured programs do not compile");
}

} // namespace

/// One little model, compiled as one stage.
class MeasuredPrograms::Program {
public:
  Program(MLIRContext &context, Choices &choose, int number, bool wide) {
    SampleProgram program = writeProgram(context, choose, number, wide);
    lower(*program.module, number % 3 == 0 ? "sgd" : "adamw");
    for (auto module : program.module->getOps<ModuleOp>())
      if (module->hasAttr(pipe::kStageAttr))
        readStage(module, program.inputs), findWork(module), compile(module);
    if (!library)
      fail();
  }
  Program(const Program &) = delete;
  ~Program() {
    if (library)
      dlclose(library);
  }

  /// Bytes that a rank goes through before it comes back to the first, by way
  /// of the update or not.
  double workingSet(bool update) const {
    auto of = [&](PipecRegion region) {
      return static_cast<double>(bytes[region]);
    };
    return of(PIPEC_WEIGHTS) + of(PIPEC_GRADIENTS) + kKept * of(PIPEC_STASH) +
           (update ? of(PIPEC_OPTIMIZER) : 0);
  }

  class Rank;

  struct Call {
    plan::KernelWork work;
    std::vector<plan::OperandUse> uses;
  };
  /// The tasks, named, with their calls.
  const std::map<std::string, std::vector<Call>> &tasks() const {
    return calls;
  }

private:
  static void lower(ModuleOp module, const std::string &optimizer) {
    PassManager passes(module.getContext());
    LossChoice loss;
    loss.kind = "cross-entropy";
    addAttachPhase(passes, loss, Purpose::Train, "fp32");
    addPartitionPhase(passes, {});
    addDifferentiatePhase(passes, kMicrobatches, "selective");
    addSplitPhase(passes, false);
    addMemoryPhase(passes);
    addUpdatePhase(passes, optimizer, {});
    if (failed(passes.run(module)))
      fail();
  }

  void readStage(ModuleOp stage, const std::vector<SampleInput> &known) {
    for (NamedAttribute region :
         stage->getAttrOfType<DictionaryAttr>("pipe.regions"))
      if (int index = pipe::regionIndex(region.getName()); index >= 0)
        bytes[index] = cast<IntegerAttr>(region.getValue()).getInt();
    for (Attribute entry : stage->getAttrOfType<ArrayAttr>("pipe.inputs")) {
      auto place = cast<DictionaryAttr>(entry);
      for (const SampleInput &input : known)
        if (cast<StringAttr>(place.get("input")).getValue() == input.name &&
            input.limit)
          whole[cast<IntegerAttr>(place.get("offset")).getInt()].limit =
              input.limit;
    }
    stage.walk([&](pipe::LoadOp load) {
      if (load.getRegion() != "in")
        return;
      if (auto it = whole.find(load.getOffset()); it != whole.end())
        it->second.count = nn::tensorType(load.getResult()).getNumElements();
    });
  }

  void findWork(ModuleOp stage) {
    OwningOpRef<ModuleOp> source(cast<ModuleOp>(stage->clone()));
    OwningOpRef<ModuleOp> scratch = ModuleOp::create(stage->getLoc());
    FailureOr<fusion::Machine> machine =
        cpu::machineOf(stage->getLoc(), "native");
    if (failed(machine) ||
        failed(cpu::planTasks(*source, true, [&](fusion::TaskPlan &task) {
          const auto uses = operandUses(task);
          for (auto [unit, operands] : llvm::zip_equal(task.units, uses)) {
            FailureOr<plan::KernelWork> work =
                unitWork(unit, *scratch, *machine, productTile());
            if (failed(work))
              return failure();
            if (!work->kernel.empty())
              calls[task.name].push_back({*work, operands});
          }
          bytes[PIPEC_WORKSPACE] =
              std::max(bytes[PIPEC_WORKSPACE], task.workspace);
          return success();
        })))
      fail();
  }

  void compile(ModuleOp stage) {
    const ScratchFolder scratch(std::filesystem::temp_directory_path().string(),
                                "pipec-calibrate");
    const std::string path = scratch / "code.so";
    target::StageCode code;
    const bool compiled = succeeded(target::compileStage(
        "cpu", stage, target::TargetOptions(), path, code));
    if (compiled)
      library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
      fail();
    if (auto load = reinterpret_cast<void (*)()>(dlsym(library, "pipec_load")))
      load();
  }

  struct Whole {
    int64_t limit = 0, count = 0;
  };
  std::array<int64_t, PIPEC_REGION_COUNT> bytes{};
  std::map<int64_t, Whole> whole; ///< by offset among the inputs
  std::map<std::string, std::vector<Call>> calls;
  void *library = nullptr;
};

namespace {

double mean(const std::vector<double> &times) {
  if (times.empty())
    fail();
  return trimmedMean(times);
}

} // namespace

/// What one worker runs the program in.
class MeasuredPrograms::Program::Rank {
public:
  Rank(const Program &program, int threads)
      : program(program), threads(threads) {
    flushTinyNumbers();
    takeMemory();
    fill(PIPEC_IN, 1), fill(PIPEC_WEIGHTS, 0.2F), fill(PIPEC_CONSTANTS, 1);
    Choices choose;
    for (int slot = 0; slot < kInputs; ++slot)
      for (auto [offset, input] : program.whole) {
        auto *at = reinterpret_cast<int64_t *>(base(PIPEC_IN, slot) + offset);
        for (int64_t i = 0; i < input.count; ++i)
          at[i] = choose.between(0, input.limit - 1);
      }
    for (const auto &[name, calls] : program.tasks())
      tasks[name] = reinterpret_cast<PipecTask>(
          dlsym(program.library, ("pipec_" + name).c_str()));
  }

  /// One step: two forwards, then backward and forward in turn.
  void step() {
    std::memset(base(PIPEC_GRADIENTS, 0), 0,
                static_cast<size_t>(program.bytes[PIPEC_GRADIENTS]));
    for (int i = 0; i < kMicrobatches + kKept - 1; ++i) {
      if (i < kMicrobatches)
        call("forward", i);
      if (i >= kKept - 1)
        call("backward", i - kKept + 1);
    }
    call("update", 0);
    ++update;
  }

  /// Steps until it is known which loops are to be shared, as it is of most
  /// tasks of a run.
  void settle() {
    constexpr int kMostSteps = 20;
    const auto isSettled = [&] {
      return std::ranges::all_of(
          trials, [](const auto &of) { return of.second.isResting(); });
    };
    for (int done = 0; done == 0 || (done < kMostSteps && !isSettled()); ++done)
      step();
    times.clear();
  }

  std::map<std::string, std::vector<double>> times;

private:
  /// All regions in a row and in large pages, as the runtime has them.
  void takeMemory() {
    constexpr size_t kPage = size_t(2) << 20;
    size_t size = 0;
    for (int region = 0; region < PIPEC_REGION_COUNT; ++region)
      for (int slot = 0; slot < slotsOf(region); ++slot) {
        offsets[region].push_back(size);
        size += static_cast<size_t>((program.bytes[region] + 127) / 64 * 64);
      }
    size = (size + kPage - 1) / kPage * kPage;
    memory.reset(static_cast<char *>(std::aligned_alloc(kPage, size)));
    if (!memory)
      throw std::bad_alloc();
    madvise(memory.get(), size, MADV_HUGEPAGE);
    std::memset(memory.get(), 0, size);
  }
  char *base(int region, int slot) const {
    return memory.get() + offsets[region][slot];
  }
  static int slotsOf(int region) {
    return region == PIPEC_IN ? kInputs : region == PIPEC_STASH ? kKept : 1;
  }
  void fill(int region, float scale) {
    const int64_t count = program.bytes[region] / 4;
    for (int slot = 0; slot < slotsOf(region); ++slot) {
      const Array numbers = makeArray(count, 17 * region + slot);
      auto *at = reinterpret_cast<float *>(base(region, slot));
      for (int64_t i = 0; i < count; ++i)
        at[i] = scale * numbers[i];
    }
  }

  void call(const char *name, int microbatch) {
    auto task = tasks.find(name);
    if (task == tasks.end() || !task->second)
      return;
    PipecFrame frame{};
    for (int region = 0; region < PIPEC_REGION_COUNT; ++region) {
      const int64_t number = update * kMicrobatches + microbatch;
      frame.base[region] = base(region, number % slotsOf(region));
    }
    frame.base[PIPEC_NEW_WEIGHTS] = frame.base[PIPEC_WEIGHTS];
    frame.microbatch = microbatch;
    frame.lr_factor = 1e-3, frame.grad_scale = 1, frame.update = update + 1;
    // As a rank is timed: of several threads by the clock.
    auto time = threads == 1 ? coreSeconds : now;
    pipec::cpu::SharingTrials &sharing = trials[name];
    if (threads > 1)
      pipec_share_from(sharing.next());
    const double begin = time();
    task->second(&frame);
    times[name].push_back(time() - begin);
    sharing.took(times[name].back());
    pipec_share_from(1);
  }

  const Program &program;
  const int threads;
  std::unique_ptr<char, decltype(&std::free)> memory{nullptr, &std::free};
  std::array<std::vector<size_t>, PIPEC_REGION_COUNT> offsets; ///< by slot
  std::map<std::string, PipecTask> tasks;
  std::map<std::string, pipec::cpu::SharingTrials>
      trials; ///< as ranks try them
  int64_t update = 0;
};

MeasuredPrograms::MeasuredPrograms(int narrow, int wide) {
  MLIRContext context;
  context.disableMultithreading();
  native::registerLoweringDialects(context);
  context.loadDialect<func::FuncDialect, nn::NNDialect, pipe::PipeDialect>();
  Choices choose;
  Phase compiling("compiling program", narrow + wide);
  for (int i = 0; i < narrow + wide; ++i) {
    compiling.next();
    programs.push_back(
        std::make_unique<Program>(context, choose, i, i >= narrow));
  }
}
MeasuredPrograms::~MeasuredPrograms() = default;

std::vector<plan::TaskSample>
MeasuredPrograms::measure(const Workers &workers,
                          const plan::DeviceModel &device) const {
  // Some ten steps of the longest: two or three would decide what all costs.
  constexpr double kBudget = 0.03;
  std::vector<plan::TaskSample> samples;
  Phase timing("program", std::ssize(programs));
  for (const auto &program : programs) {
    timing.next();
    std::vector<std::unique_ptr<Program::Rank>> ranks;
    std::mutex mutex;
    measureCalls(
        [&] {
          auto rank =
              std::make_unique<Program::Rank>(*program, workers.threads);
          Program::Rank *own = rank.get();
          if (workers.threads > 1)
            own->settle();
          std::lock_guard lock(mutex);
          ranks.push_back(std::move(rank));
          return [own] { own->step(); };
        },
        workers, kBudget);
    for (const auto &[name, calls] : program->tasks()) {
      double seconds = 0;
      for (auto &rank : ranks)
        seconds += mean(rank->times[name]) / workers.count;
      const double workingSet =
          program->workingSet(name == "update") / workers.threads;
      std::vector<plan::TaskCall> priced;
      for (const auto &[work, uses] : calls)
        priced.push_back(
            {work, plan::farShare(device, uses, workingSet, workers.threads)});
      samples.push_back({std::move(priced), seconds});
    }
  }
  return samples;
}

} // namespace pipec
