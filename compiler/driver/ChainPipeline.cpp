//===- ChainPipeline.cpp - little models that are run ---------------------===//
#include "compiler/driver/ChainPipeline.h"

#include "compiler/plan/Profile.h"
#include "support/Failure.h"
#include "support/OutputFile.h"
#include "support/ReadFile.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pipec {

namespace fs = std::filesystem;

namespace {

constexpr int kWidth = ChainPipeline::kWidth;

/// Without what a launcher has told us of a job: these are jobs of their own.
class OwnEnvironment {
public:
  OwnEnvironment() {
    for (char **word = environ; *word; ++word)
      if (!isOfAJob(*word))
        words.push_back(*word);
    words.push_back(nullptr);
  }
  std::vector<char *> words;

private:
  static bool isOfAJob(std::string_view word) {
    for (std::string_view front :
         {"OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_", "MPIEXEC_", "HYDRA_",
          "SLURM_", "PIPEC_", "RANK=", "WORLD_SIZE=", "LOCAL_RANK=",
          "LOCAL_WORLD_SIZE=", "GROUP_RANK=", "MASTER_ADDR=", "MASTER_PORT=",
          "TORCHELASTIC_", "OMP_NUM_THREADS="})
      if (word.substr(0, front.size()) == front)
        return true;
    return false;
  }
};

/// Waits for a program; what it says of a failure becomes ours.
void call(std::vector<std::string> words, const ScratchFolder &scratch) {
  const std::string said = scratch / "said";
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, said.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  OwnEnvironment environment;
  int status = posix_spawn(&child, arguments[0], &files, nullptr,
                           arguments.data(), environment.words.data());
  posix_spawn_file_actions_destroy(&files);
  if (status != 0)
    throw Failure(Exit::Unavailable, words[0] + ": " + std::strerror(status));
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return;
  std::string why = readFile(said, "what a program said");
  const size_t error = why.find("error: ");
  why.erase(0, error == std::string::npos ? 0 : error + strlen("error: "));
  throw Failure(Exit::Unavailable,
                fs::path(words[0]).filename().string() +
                    " failed: " + why.substr(0, why.find('\n')));
}

/// A chain of products, each with a relu, of which all tensors are alike.
void writeModel(const std::string &path, int rows, int layers) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto &graph = *model.mutable_graph();
  graph.set_name("messages");
  auto declare = [&](onnx::ValueInfoProto &value, const char *name) {
    value.set_name(name);
    auto *type = value.mutable_type()->mutable_tensor_type();
    type->set_elem_type(onnx::TensorProto::FLOAT);
    for (int size : {rows, kWidth})
      type->mutable_shape()->add_dim()->set_dim_value(size);
  };
  declare(*graph.add_input(), "input");
  declare(*graph.add_output(), "logits");
  auto add = [&](const char *kind, std::vector<std::string> from,
                 const std::string &to) {
    onnx::NodeProto &node = *graph.add_node();
    node.set_op_type(kind), node.set_name(to);
    for (const std::string &name : from)
      node.add_input(name);
    node.add_output(to);
  };
  std::string last = "input";
  for (int layer = 0; layer < layers; ++layer) {
    const std::string number = std::to_string(layer);
    onnx::TensorProto &weight = *graph.add_initializer();
    weight.set_name("weight" + number);
    weight.set_data_type(onnx::TensorProto::FLOAT);
    weight.add_dims(kWidth), weight.add_dims(kWidth);
    for (int i = 0; i < kWidth * kWidth; ++i)
      weight.add_float_data(static_cast<float>((7 * i + layer) % 13 - 6) / 64);
    add("MatMul", {last, weight.name()}, "product" + number);
    last = layer + 1 < layers ? "relu" + number : "logits";
    add("Relu", {"product" + number}, last);
  }
  writeFile(path, model.SerializeAsString());
}

/// So many layers a stage, of two nodes each.
void writeStages(const std::string &path, int ranks, int layers) {
  std::string stages;
  for (int rank = 0; rank < ranks; ++rank)
    stages += (rank ? ", " : "") + std::string("{\"first_node\": ") +
              std::to_string(2 * layers * rank) + "}";
  writeFile(path, "{\"stages\": [" + stages + "]}");
}

/// Numbers of a row-major array in numpy's format.
template <typename T>
void writeArray(const std::string &path, const char *kind,
                const std::string &shape, size_t count) {
  std::string header = std::string("{'descr': '") + kind +
                       "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string bytes = std::string("\x93NUMPY\x01\0", 8);
  bytes += static_cast<char>(header.size() % 256);
  bytes += static_cast<char>(header.size() / 256);
  bytes += header;
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>(i % 7);
  bytes.append(reinterpret_cast<const char *>(values.data()),
               count * sizeof(T));
  writeFile(path, bytes);
}

} // namespace

ChainPipeline::ChainPipeline(int repeats) try
    : scratch(fs::temp_directory_path().string(), "pipec-calibrate"),
      repeats(repeats) {
} catch (const fs::filesystem_error &error) {
  throw Failure(Exit::Unavailable, error.what());
}

ChainPipeline::Run ChainPipeline::run(const Shape &shape, int steps) const try {
  const fs::path self = fs::read_symlink("/proc/self/exe");
  const std::string runtime = self.parent_path() / "pipec-run";
  const std::string model = scratch / "model.onnx", folder = scratch / "plan",
                    input = scratch / "input.npy",
                    labels = scratch / "labels.npy",
                    trace = scratch / "trace.json",
                    profile = scratch / "profile.json",
                    metrics = scratch / "metrics.jsonl",
                    stages = scratch / "stages.json";
  const auto [ranks, products, rows] = shape;
  const auto samples = static_cast<size_t>(rows * kMicrobatches);
  writeModel(model, rows, ranks * products);
  writeStages(stages, ranks, products);
  writeArray<float>(input, "<f4",
                    "(" + std::to_string(samples) + ", " +
                        std::to_string(kWidth) + ")",
                    samples * kWidth);
  writeArray<int64_t>(labels, "<i8", "(" + std::to_string(samples) + ",)",
                      samples);
  call({self, model, "--cpus", "1x" + std::to_string(ranks), "--stage-file",
        stages, "--strategy", "1f1b", "--microbatches",
        std::to_string(kMicrobatches), "--loss", "cross-entropy", "--quiet",
        "-o", folder},
       scratch);
  Run best{readFile(folder + "/plan.json", "plan"), "", ""};
  double least = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < repeats; ++repeat) {
    // With metrics, as most runs have: a line takes 2 us of a step or more.
    call({runtime, folder, "--data", "input=" + input, "--data",
          "labels=" + labels, "--steps", std::to_string(steps), "--timeout",
          "20", "--threads", "1", "--trace", trace, "--profile-out", profile,
          "--metrics", metrics, "--quiet"},
         scratch);
    std::string of = readFile(profile, "profile");
    const auto step = plan::parseProfile(of, "a profile").step;
    if (!step)
      throw Failure(Exit::Unavailable, "a profile has no step");
    if (step->seconds < least) {
      least = step->seconds;
      best.trace = readFile(trace, "trace"), best.profile = std::move(of);
    }
  }
  return best;
} catch (const fs::filesystem_error &error) {
  throw Failure(Exit::Unavailable, error.what());
}

} // namespace pipec
