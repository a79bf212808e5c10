//===- StageRunner.cpp - compile a stage, run it, know what it means ------===//
#include "test/unit/target/StageRunner.h"
#include "dialects/pipe/Pipe.h"
#include "runtime/kernels/cpu/Kernels.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"

#include <cfloat>
#include <chrono>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace pipec;
using namespace pipec::test;
using nn::Literal;

//===----------------------------------------------------------------------===//
// Literals in memory
//===----------------------------------------------------------------------===//

static int64_t bytesOf(Type element) {
  return std::max<int64_t>(1, element.getIntOrFloatBitWidth() / 8);
}

static Literal readLiteral(RankedTensorType type, const char *at) {
  Type element = type.getElementType();
  int64_t n = type.getNumElements(), width = bytesOf(element);
  if (auto floats = dyn_cast<FloatType>(element)) {
    std::vector<double> values(n);
    for (int64_t i = 0; i < n; ++i) {
      uint64_t raw = 0;
      memcpy(&raw, at + i * width, width);
      APFloat value(floats.getFloatSemantics(), APInt(8 * width, raw));
      values[i] = value.convertToDouble();
    }
    return Literal(type, std::move(values));
  }
  std::vector<int64_t> values(n);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t raw = 0;
    memcpy(&raw, at + i * width, width);
    unsigned shift = 64 - 8 * width;
    values[i] = static_cast<int64_t>(raw << shift) >> shift;
  }
  return Literal(type, std::move(values));
}

static void fillRandom(RankedTensorType type, char *at, std::mt19937 &random,
                       int64_t integerLimit) {
  Type element = type.getElementType();
  int64_t n = type.getNumElements(), width = bytesOf(element);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < n; ++i) {
    if (auto floats = dyn_cast<FloatType>(element)) {
      APFloat value(normal(random));
      bool inexact;
      value.convert(floats.getFloatSemantics(), APFloat::rmNearestTiesToEven,
                    &inexact);
      uint64_t raw = value.bitcastToAPInt().getZExtValue();
      memcpy(at + i * width, &raw, width);
    } else {
      int64_t limit = element.isInteger(1) ? 2 : integerLimit;
      int64_t value = random() % limit;
      memcpy(at + i * width, &value, width);
    }
  }
}

//===----------------------------------------------------------------------===//
// StageRunner
//===----------------------------------------------------------------------===//

StageRunner::StageRunner(StringRef text, const target::TargetOptions &given,
                         StringRef target)
    : context(std::make_unique<MLIRContext>()) {
  pipec_set_threads(1);
  context->disableMultithreading();
  context->loadDialect<nn::NNDialect, pipe::PipeDialect, func::FuncDialect>();
  std::string messages;
  ScopedDiagnosticHandler handler(context.get(), [&](Diagnostic &diagnostic) {
    messages += diagnostic.str() + "\n";
    return success();
  });
  module = parseSourceString<ModuleOp>(text, context.get());
  if (!module) {
    ADD_FAILURE() << "does not parse: " << messages << text.str();
    return;
  }
  llvm::SmallString<128> path;
  if (llvm::sys::fs::createTemporaryFile("pipec-test", "so", path)) {
    ADD_FAILURE() << "no temporary file";
    return;
  }
  target::TargetOptions options = given;
  bool isEmulated = target == "cuda";
  options.keepLlvm |= isEmulated;
  options.gpuCode = options.GpuLlvm;
  if (failed(target::compileStage(target, *module, options, path, result))) {
    ADD_FAILURE() << "does not compile: " << messages << text.str();
    return;
  }
  library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  llvm::sys::fs::remove(path);
  if (!library) {
    ADD_FAILURE() << dlerror();
    return;
  }
  EXPECT_EQ(*static_cast<int32_t *>(dlsym(library, "pipec_abi_version")),
            PIPEC_ABI_VERSION);
  if (auto *load = reinterpret_cast<void (*)()>(dlsym(library, "pipec_load")))
    load();
  if (isEmulated) {
    emulator = std::make_unique<DeviceEmulator>(result.llvm, library);
    frame.device = emulator->table();
  }
  frame.lr_factor = 0.5;
  frame.grad_scale = 0.25;
  frame.update = 3;
  frame.step = 2;
  frame.microbatch = 1;
}

StageRunner::~StageRunner() {
  if (library)
    dlclose(library);
}

Memory StageRunner::randomMemory(unsigned seed, int64_t integerLimit) const {
  Memory memory;
  std::mt19937 random(seed);
  auto grow = [&](StringRef region, int64_t offset, Type type) {
    auto &bytes = memory[pipe::regionIndex(region)];
    size_t end = offset + nn::byteSize(type);
    if (bytes.size() < end)
      bytes.resize(end, 0);
  };
  stage().walk([&](Operation *op) {
    if (auto load = dyn_cast<pipe::LoadOp>(op))
      grow(load.getRegion(), load.getOffset(), load.getY().getType());
    else if (auto store = dyn_cast<pipe::StoreOp>(op))
      grow(store.getRegion(), store.getOffset(), store.getX().getType());
  });
  stage().walk([&](pipe::LoadOp load) {
    fillRandom(nn::tensorType(load.getY()),
               memory[pipe::regionIndex(load.getRegion())].data() +
                   load.getOffset(),
               random, integerLimit);
  });
  stage().walk([&](pipe::StoreOp store) {
    if (store.getAccumulate())
      fillRandom(nn::tensorType(store.getX()),
                 memory[pipe::regionIndex(store.getRegion())].data() +
                     store.getOffset(),
                 random, integerLimit);
  });
  return memory;
}

int64_t StageRunner::workspaceOf(StringRef task) const {
  for (const target::TaskCode &code : result.tasks)
    if (code.name == task)
      return code.workspaceBytes;
  return 0;
}

PipecTask StageRunner::function(StringRef task) const {
  auto name = ("pipec_" + task).str();
  return reinterpret_cast<PipecTask>(dlsym(library, name.c_str()));
}

void StageRunner::run(StringRef task, Memory &memory, bool inPlace) const {
  if (!ok())
    return;
  PipecFrame call = frame;
  call.scalars = reinterpret_cast<char *>(&call);
  std::vector<std::vector<char>> aligned(PIPEC_REGION_COUNT);
  memory[PIPEC_WORKSPACE].assign(workspaceOf(task), '\xff');
  // Exactly as large as promised, at the promised alignment; a red zone after.
  constexpr int64_t kZone = 256;
  for (int i = 0; i < PIPEC_REGION_COUNT; ++i) {
    aligned[i].assign(memory[i].size() + 64 + kZone, '\xa5');
    char *base = reinterpret_cast<char *>(
        llvm::alignTo(reinterpret_cast<uintptr_t>(aligned[i].data()), 64));
    memcpy(base, memory[i].data(), memory[i].size());
    call.base[i] = base;
  }
  ASSERT_NE(function(task), nullptr) << task.str();
  if (inPlace)
    call.base[PIPEC_NEW_WEIGHTS] = call.base[PIPEC_WEIGHTS];
  function(task)(&call);
  for (int i = 0; i < PIPEC_REGION_COUNT; ++i) {
    memcpy(memory[i].data(), call.base[i], memory[i].size());
    if (inPlace && i == PIPEC_NEW_WEIGHTS)
      continue;
    const char *end = call.base[i] + memory[i].size();
    for (const char *p = end; p < aligned[i].data() + aligned[i].size(); ++p)
      ASSERT_EQ(*p, '\xa5') << "written beyond region " << i;
  }
}

double StageRunner::time(StringRef task, Memory &memory) const {
  PipecFrame call = frame;
  memory[PIPEC_WORKSPACE].assign(workspaceOf(task), 0);
  for (int i = 0; i < PIPEC_REGION_COUNT; ++i) {
    memory[i].resize(memory[i].size() + 64);
    call.base[i] = reinterpret_cast<char *>(
        llvm::alignTo(reinterpret_cast<uintptr_t>(memory[i].data()), 64));
  }
  using Clock = std::chrono::steady_clock;
  double least = 1e9, total = 0;
  for (int run = 0; run < 2000 && (run < 5 || total < 1); ++run) {
    auto start = Clock::now();
    function(task)(&call);
    double seconds =
        std::chrono::duration<double>(Clock::now() - start).count();
    least = std::min(least, seconds);
    total += seconds;
  }
  return least;
}

/// Whether two numbers agree to `tolerance` of `scale`.
static bool agrees(double got, double want, double scale, double tolerance) {
  if (std::isnan(want))
    return std::isnan(got);
  if (std::isinf(want))
    return got == want;
  return std::abs(got - want) <= tolerance * scale;
}

bool StageRunner::has(StringRef task) const {
  return llvm::any_of(result.tasks, [&](const target::TaskCode &code) {
    return code.name == task;
  });
}

func::FuncOp StageRunner::taskOf(StringRef task) const {
  for (auto candidate : stage().getOps<func::FuncOp>()) {
    auto name = candidate->getAttrOfType<StringAttr>(pipe::kTaskAttr);
    if (name && name == task)
      return candidate;
  }
  return {};
}

void StageRunner::expectSame(StringRef task, const Memory &one,
                             const Memory &other, double tolerance) const {
  for (auto store : taskOf(task).getOps<pipe::StoreOp>()) {
    auto type = nn::tensorType(store.getX());
    int region = pipe::regionIndex(store.getRegion());
    auto read = [&](const Memory &memory) {
      return readLiteral(type, memory[region].data() + store.getOffset());
    };
    std::string where =
        (store.getRegion() + "[" + Twine(store.getOffset()) + "]").str();
    if (!isa<FloatType>(type.getElementType())) {
      EXPECT_TRUE(read(one).integers() == read(other).integers()) << where;
      continue;
    }
    auto want = read(one).doubles(), got = read(other).doubles();
    double scale = 1e-30;
    for (double value : want)
      if (std::isfinite(value))
        scale = std::max(scale, std::abs(value));
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE(agrees(got[i], want[i], scale, tolerance))
          << where << " element " << i << ": " << got[i] << " instead of "
          << want[i] << " (scale " << scale << ")";
  }
}

bool StageRunner::isFinite(StringRef task, const Memory &memory) const {
  for (auto store : taskOf(task).getOps<pipe::StoreOp>()) {
    auto type = nn::tensorType(store.getX());
    int region = pipe::regionIndex(store.getRegion());
    if (!isa<FloatType>(type.getElementType()))
      continue;
    Literal stored =
        readLiteral(type, memory[region].data() + store.getOffset());
    if (!llvm::all_of(stored.doubles(),
                      [](double value) { return std::isfinite(value); }))
      return false;
  }
  return true;
}

void StageRunner::expectMatches(StringRef task, const Memory &before,
                                const Memory &after, double tolerance,
                                bool elementwise) const {
  func::FuncOp function = taskOf(task);
  ASSERT_TRUE(function) << task.str();
  llvm::DenseMap<Value, Literal> values;
  nn::EvaluateOptions options;
  options.round = false;
  std::string why;
  for (Operation &op : function.getBody().front()) {
    if (auto load = dyn_cast<pipe::LoadOp>(op)) {
      values[load.getY()] =
          readLiteral(nn::tensorType(load.getY()),
                      before[pipe::regionIndex(load.getRegion())].data() +
                          load.getOffset());
    } else if (auto scalar = dyn_cast<pipe::ScalarOp>(op)) {
      StringRef name = scalar.getName();
      auto type = nn::tensorType(scalar.getY());
      if (type.getElementType().isInteger(64)) {
        int64_t number = name == "seed"   ? static_cast<int64_t>(frame.seed)
                         : name == "step" ? frame.step
                                          : frame.microbatch;
        values[scalar.getY()] = Literal::splatInt(type, number);
        continue;
      }
      double value = name == "lr_factor"    ? frame.lr_factor
                     : name == "grad_scale" ? frame.grad_scale
                                            : frame.update;
      values[scalar.getY()] = Literal::splat(type, value);
    } else if (auto store = dyn_cast<pipe::StoreOp>(op)) {
      auto type = nn::tensorType(store.getX());
      int region = pipe::regionIndex(store.getRegion());
      Literal got = readLiteral(type, after[region].data() + store.getOffset());
      Literal was =
          readLiteral(type, before[region].data() + store.getOffset());
      Literal want = values[store.getX()];
      std::string where =
          (store.getRegion() + "[" + Twine(store.getOffset()) + "]").str();
      if (!got.isFloat()) {
        auto g = got.integers(), w = want.integers(), o = was.integers();
        for (size_t i = 0; i < g.size(); ++i)
          ASSERT_EQ(g[i], w[i] + (store.getAccumulate() ? o[i] : 0))
              << where << " element " << i;
        continue;
      }
      auto g = got.doubles(), w = want.doubles(), o = was.doubles();
      double scale = 1e-30;
      for (size_t i = 0; i < w.size(); ++i) {
        if (store.getAccumulate())
          w[i] += o[i];
        if (std::isfinite(w[i]))
          scale = std::max(scale, std::abs(w[i]));
      }
      bool single = type.getElementType().isF32();
      for (size_t i = 0; i < g.size(); ++i) {
        if (single && std::isinf(static_cast<float>(w[i])))
          w[i] = std::copysign(INFINITY, w[i]);
        if (elementwise) // or a step between the smallest numbers
          scale = std::abs(w[i]) + (single ? 1.5e-45 : 5e-324) / tolerance;
        ASSERT_TRUE(agrees(g[i], w[i], scale, tolerance))
            << where << " element " << i << ": " << g[i] << " instead of "
            << w[i] << " (scale " << scale << ")";
      }
    } else if (op.getNumResults()) {
      SmallVector<Literal> operands;
      for (Value operand : op.getOperands())
        operands.push_back(values[operand]);
      auto results = nn::evaluate(&op, operands, options, why);
      ASSERT_TRUE(succeeded(results)) << why;
      for (auto [result, literal] : llvm::zip(op.getResults(), *results))
        values[result] = literal;
    }
  }
}

void StageRunner::check(double tolerance, int64_t integerLimit) const {
  if (!ok())
    return;
  for (const target::TaskCode &task : result.tasks) {
    SCOPED_TRACE(task.name);
    Memory before = randomMemory(17, integerLimit), after = before;
    run(task.name, after);
    expectMatches(task.name, before, after, tolerance);
  }
}

//===----------------------------------------------------------------------===//

std::string
test::stageText(ArrayRef<std::string> inputs, StringRef body,
                ArrayRef<std::pair<std::string, std::string>> outputs,
                int number) {
  constexpr int64_t kPlace = 1 << 15;
  MLIRContext context;
  auto sizeOf = [&](const std::string &type) {
    return llvm::alignTo(nn::byteSize(mlir::parseType(type, &context)), 64);
  };
  std::string name = "t" + std::to_string(number);
  std::string text =
      "func.func @" + name + "() attributes {pipe.task = \"" + name + "\"} {\n";
  int64_t offset = number * kPlace;
  for (auto [i, type] : llvm::enumerate(inputs)) {
    text += ("  %" + Twine(i) + " = pipe.load \"in\" [" + Twine(offset) +
             "] : " + type + "\n")
                .str();
    offset += sizeOf(type);
  }
  text += body.str() + "\n";
  offset = number * kPlace;
  for (const auto &[value, type] : outputs) {
    text += ("  pipe.store " + value + ", \"out\" [" + Twine(offset) +
             "] : " + type + "\n")
                .str();
    offset += sizeOf(type);
  }
  return text + "  return\n}\n";
}

void test::fillSpecial(const StageRunner &runner, Memory &memory) {
  std::mt19937 random(5);
  const float values[] = {
      NAN,    INFINITY, -INFINITY, 0.f,     -0.f,  FLT_MAX, -FLT_MAX, FLT_MIN,
      1e-40f, -1e-45f,  1.f,       -1.f,    0.5f,  -2.5f,   3.5f,     88.7f,
      88.8f,  -87.4f,   -103.9f,   -104.1f, 0.93f, -0.95f,  3.9f,     9.1f,
      1e-6f,  1e10f,    -1e30f,    0.6f,    -0.1f, 20.f};
  runner.stage().walk([&](pipe::LoadOp load) {
    auto type = nn::tensorType(load.getY());
    if (!type.getElementType().isF32())
      return;
    auto *at = reinterpret_cast<float *>(
        memory[pipe::regionIndex(load.getRegion())].data() + load.getOffset());
    for (int64_t i = 0; i < type.getNumElements(); ++i)
      at[i] = values[random() % std::size(values)];
  });
}

/// The GPU adds in other orders; the same ones whichever thread runs first.
static void checkOnGpu(const std::string &text, double tolerance,
                       int64_t integerLimit) {
  StageRunner runner(text, {}, "cuda");
  if (!runner.ok())
    return;
  for (const target::TaskCode &task : runner.code().tasks) {
    SCOPED_TRACE("on a GPU: " + task.name);
    Memory before = runner.randomMemory(17, integerLimit);
    Memory one = before, two = before;
    runner.run(task.name, one);
    runner.expectMatches(task.name, before, one, tolerance);
    runner.setDescending(true);
    runner.run(task.name, two);
    runner.setDescending(false);
    for (int i = PIPEC_CONSTANTS; i < PIPEC_REGION_COUNT; ++i)
      EXPECT_TRUE(one[i] == two[i])
          << "region " << i << " depends on the order of threads in\n"
          << text;
  }
}

static void checkOnCpu(const std::string &text, double tolerance,
                       int64_t integerLimit) {
  target::TargetOptions apart;
  apart.fuse = false;
  StageRunner fused(text), unfused(text, apart);
  if (!fused.ok() || !unfused.ok())
    return;
  for (const target::TaskCode &task : fused.code().tasks) {
    SCOPED_TRACE(task.name);
    Memory before = fused.randomMemory(17, integerLimit);
    Memory one = before, two = before;
    fused.run(task.name, one);
    fused.expectMatches(task.name, before, one, tolerance);
    unfused.run(task.name, two);
    for (int i = PIPEC_CONSTANTS; i < PIPEC_REGION_COUNT; ++i)
      EXPECT_TRUE(one[i] == two[i])
          << "region " << i << " differs without fusion in\n"
          << text;
  }
}

void test::checkStage(const std::string &text, double tolerance,
                      int64_t integerLimit) {
  checkOnCpu(text, tolerance, integerLimit);
  checkOnGpu(text, tolerance, integerLimit);
}
