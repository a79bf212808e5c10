//===- Gpu.cpp - what code for GPUs promises ------------------------------===//
//
// Every stage of the other files runs on the emulated GPU too (checkStage);
// here is what only matters there.
//
//===----------------------------------------------------------------------===//
#include "test/unit/target/DeviceCode.h"
#include "test/unit/target/Fibers.h"
#include "test/unit/target/StageRunner.h"
#include "test/unit/target/StageText.h"

#include "llvm/Support/FileSystem.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <utility>

using namespace pipec;
using namespace pipec::test;

/// The forward task on both targets, on the same memory.
static void expectLikeCpu(const std::string &text, double tolerance,
                          bool special, int64_t integerLimit = 7) {
  StageRunner cpu(text), gpu(text, {}, "cuda");
  ASSERT_TRUE(cpu.ok() && gpu.ok());
  Memory ours = cpu.randomMemory(3, integerLimit);
  if (special)
    fillSpecial(cpu, ours);
  Memory theirs = ours;
  cpu.run("forward", ours);
  gpu.run("forward", theirs);
  cpu.expectSame("forward", ours, theirs, tolerance);
}

// The same operations in the same order: the same numbers, also where they are
// infinite, not numbers, or below the normal range.
TEST(Gpu, ElementwiseIsTheCpus) {
  for (const char *type : {"512xf32", "37x5xf32"}) {
    StageText t;
    t.load("a", "in", type).load("b", "in", type);
    for (const char *op : {"exp", "log", "log1p", "tanh", "erf", "sigmoid",
                           "sqrt", "rsqrt", "reciprocal", "relu", "round"})
      t.op(op, op, {"a"}).store(op, "out");
    for (const char *op : {"add", "mul", "div", "max", "min"})
      t.op(op, op, {"a", "b"}).store(op, "out");
    expectLikeCpu(t.stage(), 0, /*special=*/true);
  }
}

// A tanh divides without a look at what it divides.
TEST(Gpu, TanhOfManyNumbers) {
  StageText t;
  t.load("x", "in", "50000xf32").op("y", "tanh", {"x"}).store("y", "out");
  expectLikeCpu(t.stage(), 0, /*special=*/false);
}

// Two numbers at a time, eight a thread however wide what all rows add is, and
// what no eight divide.
TEST(Gpu, NarrowRows) {
  for (const char *columns : {"48", "100", "33"}) {
    const std::string c = columns, size = "40x" + c;
    StageText t;
    t.load("n", "in", size + "xbf16").load("bias", "in", "1x" + c + "xf32");
    t.op("x", "cast", {"n"}, size + "xf32");
    t.op("b", "broadcast", {"bias"}, size + "xf32").op("s", "add", {"x", "b"});
    t.op("y", "tanh", {"s"}).op("z", "cast", {"y"}, size + "xbf16");
    t.op("w", "mul", {"z", "n"}).store("z", "out").store("w", "out");
    expectLikeCpu(t.stage(), 0, /*special=*/true);
  }
}

/// A device would end the program; this machine reads four floats anywhere.
TEST(GpuDeathTest, StopsAtAMisalignedAddress) {
  llvm::SmallString<128> path;
  ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("pipec-test", "so", path));
  buildDeviceCode(R"(
    define ptx_kernel void @kernel0(ptr %from, ptr %to) {
      %x = load <4 x float>, ptr %from, align 16
      store <4 x float> %x, ptr %to, align 4
      ret void
    })",
                  path.str().str());
  void *code = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  llvm::sys::fs::remove(path);
  ASSERT_NE(code, nullptr) << dlerror();
  auto entry =
      reinterpret_cast<void (*)(char *const *)>(dlsym(code, "kernel0_entry"));
  alignas(16) char memory[64] = "four floats and some";
  auto copy = [&](int from, int to) {
    char *const arguments[] = {memory + from, memory + to};
    runBlock(0, 1, false, false, [&] { entry(arguments); });
  };
  copy(0, 36);
  EXPECT_STREQ(memory + 36, "four floats and ");
  EXPECT_DEATH(copy(4, 36), "thread 0 of block 0: .* is not aligned to 16");
  EXPECT_DEATH(copy(0, 34), "is not aligned to 4 bytes");
  dlclose(code);
}

// Rows that one warp, several warps and many passes of a block take.
TEST(Gpu, RowsOfAnyLength) {
  for (const char *columns : {"1", "3", "40", "301", "1024", "1025", "4100",
                              "4101", "20000", "20003"})
    for (const char *rows : {"1", "11"}) {
      std::string full = std::string(rows) + "x" + columns + "xf32";
      StageText t;
      t.load("x", "in", full).op("p", "softmax", {"x"}).store("p", "out");
      t.reduce("m", "max", "x", "1", std::string(rows) + "x1xf32");
      t.store("m", "out");
      checkStage(t.stage());
    }
}

// Long rows stay in shared memory, or are read again where a device has little
// (in the descending order): with lanes behind the last 16 bytes and without,
// of one tensor and of two, and of more than there is room for.
TEST(Gpu, RowsInSharedMemory) {
  for (const auto &[shape, others] : {std::pair{"3x20000", false},
                                      {"1x20003", false},
                                      {"3x17000", true},
                                      {"1x27005", true},
                                      {"3x60000", false}}) {
    const std::string size = shape, narrow = size + "xbf16",
                      full = size + "xf32", row = size.substr(0, 2) + "1xf32";
    StageText t;
    t.load("n", "in", narrow).op("x", "cast", {"n"}, full);
    if (others) {
      t.load("more", "in", narrow).op("f", "cast", {"more"}, full);
      t.op("s", "mul", {"x", "f"});
    } else {
      t.op("s", "neg", {"x"});
    }
    t.reduce("top", "max", "s", "1", row);
    t.op("tops", "broadcast", {"top"}, full).op("d", "sub", {"s", "tops"});
    t.op("e", "exp", {"d"}).reduce("sum", "sum", "e", "1", row);
    t.op("sums", "broadcast", {"sum"}, full).op("p", "div", {"e", "sums"});
    t.op("y", "cast", {"p"}, narrow).store("y", "out");
    checkStage(t.stage(), 1e-2);
  }
}

// More partial sums than a thread adds alone, of few and of many columns.
TEST(Gpu, ColumnsOfManyRows) {
  for (const char *columns : {"1", "4", "37", "1100"}) {
    std::string full = std::string("1500x") + columns + "xf32";
    StageText t;
    t.load("x", "in", full);
    t.reduce("s", "sum", "x", "0", std::string("1x") + columns + "xf32");
    t.reduce("m", "max", "x", "0", std::string("1x") + columns + "xf32");
    t.store("s", "out").store("m", "out");
    checkStage(t.stage(), 5e-6);
  }
}

// As many sums as a group has room for, of rows of 16 warps: each has a place
// in shared memory, of which there are 48 KiB.
TEST(Gpu, ManyRowSums) {
  StageText t;
  t.load("x", "in", "2x4100xf32");
  std::string from = "x";
  for (int i = 0; i < 150; ++i) {
    const std::string s = "s" + std::to_string(i);
    t.reduce(s, i % 2 ? "max" : "sum", from, "1", "2x1xf32").store(s, "out");
    const std::string to = "y" + std::to_string(i);
    t.op(to, "neg", {std::exchange(from, to)});
  }
  checkStage(t.stage(), 1e-5);
}

// Rows of 4096 and more may have a tail, and chunks of them sums that are not
// aligned.
TEST(Gpu, NormalizationGradientOfManyRows) {
  checkStage(layerNormBackward("1100", "101", "0.00990099").stage(), 2e-5);
  checkStage(layerNormBackward("40", "1500", "0.000666667").stage(), 2e-5);
  // Rows of a warp: several warps of a block take one each, all at once or some
  // in the last round, and read their points at once (768) or in a loop.
  checkStage(layerNormBackward("70", "768", "0.00130208").stage(), 2e-5);
  checkStage(layerNormBackward("3", "768", "0.00130208").stage(), 2e-5);
  checkStage(layerNormBackward("36", "1024", "0.000976562").stage(), 2e-5);
  // What a later phase reads again is written where it is not in registers.
  checkStage(layerNormBackward("70", "768", "0.00130208", "tanh").stage(),
             2e-5);
  checkStage(layerNormBackward("70", "4099", "0.000243962").stage(), 2e-5);
  checkStage(layerNormBackward("70", "4098", "0.000244021").stage(), 2e-5);
}

// What the warps leave of each column is aligned, whatever its neighbours are.
TEST(Gpu, ColumnsOfSeveralTypesBesideRows) {
  StageText t;
  t.load("x", "in", "70x42xf32").reduce("r", "sum", "x", "1", "70x1xf32");
  t.op("b", "broadcast", {"r"}, "70x42xf32").op("d", "sub", {"x", "b"});
  t.op("w", "cast", {"d"}, "70x42xf64");
  t.reduce("narrow", "sum", "d", "0", "1x42xf32");
  t.reduce("wide", "sum", "w", "0", "1x42xf64");
  t.store("narrow", "out").store("wide", "out");
  checkStage(t.stage(), 2e-5);
}

// The sum of equal indices has the CPU's order, of a few and of several tiles
// of them, in rows of one block and of several.
TEST(Gpu, RepeatedIndices) {
  for (const char *ids : {"100", "2100"})
    for (const char *inner : {"4", "5", "200", "1028"}) {
      if (ids == std::string("2100") && inner == std::string("200"))
        continue; // as 4
      StageText t;
      t.load("ids", "in", std::string(ids) + "xi64")
          .load("dy", "in", std::string(ids) + "x" + inner + "xf32");
      t.op("g", "scatter_add", {"ids", "dy"},
           std::string("6x") + inner + "xf32", "{axis = 0 : i64}");
      t.store("g", "out");
      expectLikeCpu(t.stage(), 0, /*special=*/false, 6);
    }
}

// Products whose rows have no whole 16 bytes lie with gaps: read and written by
// rows, as one run, through views, in part, and added to.
TEST(Gpu, UnevenRows) {
  for (const char *type : {"f32", "bf16"}) {
    auto of = [&](const char *shape) {
      return std::string(shape) + "x" + type;
    };
    StageText t;
    t.load("x", "in", of("48x16")).load("v", "weights", "16x67xf32");
    std::string w = "v";
    if (type == std::string("bf16"))
      t.op(w = "w", "cast", {"v"}, "16x67xbf16");
    t.op("y", "matmul", {"x", w}, of("48x67"))
        .op("cut", "reshape", {"y"}, of("2x24x67"))
        .op("e", "tanh", {"cut"}, of("2x24x67"))
        .reduce("row", "max", "e", "2", of("2x24x1"))
        .reduce("all", "sum", "y", "0, 1", of("1x1"))
        .reduce("column", "sum", "e", "0, 1", of("1x1x67"))
        .op("part", "slice", {"e"}, of("2x24x3"),
            "{starts = array<i64: 0, 0, 64>, strides = array<i64: 1, 1, 1>}")
        .op("flat", "reshape", {"e"}, of("48x67"))
        .op("z", "matmul", {"flat", w}, of("48x16"), "{transpose_b}")
        .op("dw", "matmul", {"x", "flat"}, of("16x67"), "{transpose_a}");
    for (const char *name : {"row", "all", "column", "part", "z"})
      t.store(name, "out");
    t.store("dw", "gradients", /*accumulate=*/type == std::string("f32"));
    checkStage(t.stage(), type == std::string("f32") ? 1e-5 : 2e-2);
  }
}

// A large product of uneven rows lies with gaps, as its second operand does,
// and is added to a gradient that has none.
TEST(Gpu, LargeProductsOfUnevenRows) {
  for (const char *type : {"f32", "bf16"}) {
    StageText t;
    t.load("x", "in", std::string("24x1000x") + type)
        .load("y", "in", std::string("24x515x") + type)
        .op("g", "tanh", {"y"})
        .op("dw", "matmul", {"x", "g"}, "1000x515xf32",
            type == std::string("f32") ? "{transpose_a}"
                                       : "{transpose_a, wide}");
    t.store("dw", "gradients", /*accumulate=*/true);
    checkStage(t.stage(), type == std::string("f32") ? 1e-5 : 2e-2);
  }
}

// The order of a row's sum follows from its length: it has the same bits where
// nothing is aligned, and beside operands of which fewer fit into 16 bytes.
TEST(Gpu, RowsHaveTheSameSumsAnywhere) {
  for (int length : {64, 4099}) {
    auto of = [&](const char *rows) {
      return rows + ("x" + std::to_string(length)) + "xf32";
    };
    StageText t;
    t.load("x", "in", "11x" + std::to_string(length + 3) + "xf32")
        .load("more", "in", of("5"))
        .load("ids", "in", "11x" + std::to_string(length) + "xi64");
    t.op("part", "slice", {"x"}, of("11"),
         "{starts = array<i64: 0, 3>, strides = array<i64: 1, 1>}")
        .reduce("there", "sum", "part", "1", "11x1xf32")
        .op("rows", "concat", {"part", "more"}, of("16"), "{axis = 0 : i64}")
        .op("dense", "slice", {"rows"}, of("11"),
            "{starts = array<i64: 0, 0>, strides = array<i64: 1, 1>}")
        .reduce("here", "sum", "dense", "1", "11x1xf32")
        .op("numbers", "cast", {"ids"}, of("11"))
        .op("none", "sub", {"numbers", "numbers"})
        .op("same", "add", {"part", "none"})
        .reduce("beside", "sum", "same", "1", "11x1xf32");
    t.op("first", "sub", {"there", "here"}).store("first", "out");
    t.op("second", "sub", {"beside", "here"}).store("second", "out");
    StageRunner gpu(t.stage(), {}, "cuda");
    ASSERT_TRUE(gpu.ok());
    Memory memory = gpu.randomMemory(3);
    gpu.run("forward", memory);
    for (const char byte : memory[PIPEC_OUT])
      EXPECT_EQ(byte, 0) << length;
  }
}

// Columns are added row by row whether one warp has the rows or several do: a
// program that is cut between a normalization and a bias has the same
// gradients.
TEST(Gpu, ColumnsHaveTheSameSumsBesideRows) {
  for (const char *length : {"40", "768", "1024"}) {
    auto of = [&](const char *rows) {
      return std::string(rows) + "x" + length + "xf32";
    };
    StageText t;
    t.load("x", "in", of("75")).load("more", "in", of("5"));
    t.reduce("top", "max", "x", "1", "75x1xf32")
        .op("tops", "broadcast", {"top"}, of("75"))
        .op("y", "sub", {"x", "tops"})
        .reduce("beside", "sum", "y", "0", of("1"))
        .op("rows", "concat", {"y", "more"}, of("80"), "{axis = 0 : i64}")
        .op("dense", "slice", {"rows"}, of("75"),
            "{starts = array<i64: 0, 0>, strides = array<i64: 1, 1>}")
        .reduce("alone", "sum", "dense", "0", of("1"));
    t.op("none", "sub", {"beside", "alone"}).store("none", "out");
    StageRunner gpu(t.stage(), {}, "cuda");
    ASSERT_TRUE(gpu.ok());
    Memory memory = gpu.randomMemory(3);
    gpu.run("forward", memory);
    for (const char byte : memory[PIPEC_OUT])
      EXPECT_EQ(byte, 0) << length;
  }
}

TEST(Gpu, IndexOutOfRange) {
  StageText t;
  t.load("x", "in", "4x8xf32").load("ids", "in", "10xi64");
  t.op("y", "gather", {"x", "ids"}, "10x8xf32", "{axis = 0 : i64}");
  t.store("y", "out");
  for (int64_t limit : {4, 7}) {
    StageRunner gpu(t.stage(), {}, "cuda");
    ASSERT_TRUE(gpu.ok());
    Memory memory = gpu.randomMemory(3, limit);
    gpu.run("forward", memory);
    EXPECT_EQ(gpu.takeFault(), limit > 4);
  }
}

// A bias that the library adds is the kernel's: the same bits, in f32 and where
// the sum is rounded once, dense or a part of something, with any bias.
TEST(Gpu, LibrariesAddBiases) {
  for (const char *type : {"f32", "bf16"}) {
    const bool isNarrow = std::string(type) == "bf16";
    StageText t;
    t.load("x", "in", std::string("3x8x12x") + type)
        .load("w", "in", std::string("3x12x20x") + type)
        .load("vectors", "weights", "60xf32");
    std::string bias = "bias", sum = "sum";
    t.op("bias", "slice", {"vectors"}, "20xf32",
         "{starts = array<i64: 20>, strides = array<i64: 1>}");
    if (isNarrow)
      t.op("rounded", "cast", {"bias"}, "20xbf16")
          .op(bias = "widened", "cast", {"rounded"}, "20xf32");
    t.op("product", "matmul", {"x", "w"}, "3x8x20xf32",
         isNarrow ? "{wide}" : "");
    t.op("row", "reshape", {bias}, "1x1x20xf32")
        .op("rows", "broadcast", {"row"}, "3x8x20xf32")
        .op("sum", "add", {"product", "rows"}, "3x8x20xf32");
    if (isNarrow)
      t.op(sum = "narrow", "cast", {"sum"}, "3x8x20xbf16");
    // Not alone where it is written: beside another.
    t.load("other", "in", std::string("3x8x4x") + type)
        .op("all", "concat", {sum, "other"}, std::string("3x8x24x") + type,
            "{axis = 2 : i64}")
        .store("all", "out");
    StageRunner gpu(t.stage(), {}, "cuda");
    ASSERT_TRUE(gpu.ok());
    Memory before = gpu.randomMemory(3), alone = before, together = before;
    gpu.setAddsBiases(false);
    gpu.run("forward", alone);
    EXPECT_EQ(gpu.takeBiasedCalls(), 1) << type;
    gpu.setAddsBiases(true);
    gpu.run("forward", together);
    gpu.expectSame("forward", alone, together, 0);
    gpu.expectMatches("forward", before, together, isNarrow ? 5e-3 : 2e-6);
  }
}

// The emulation notices what a GPU would punish.
TEST(Gpu, EmulationFindsThreadsThatWaitForever) {
  EXPECT_THROW(runBlock(0, 64, true, false,
                        [] {
                          if (currentThread() != 7)
                            meetBlock();
                        }),
               std::logic_error);
}

TEST(Gpu, EmulationFindsAMissingBarrier) {
  for (bool waits : {true, false}) {
    int shared[64] = {}, read[64] = {};
    for (bool descending : {false, true}) {
      runBlock(0, 64, true, descending, [&] {
        int thread = currentThread();
        shared[thread] = thread + 1;
        if (waits)
          meetBlock();
        read[thread] += shared[63 - thread];
      });
      std::fill_n(shared, 64, 0);
    }
    int right = 0;
    for (int i = 0; i < 64; ++i)
      right += read[i] == 2 * (64 - i);
    EXPECT_EQ(right == 64, waits);
  }
}
