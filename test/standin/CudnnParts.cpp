//===- CudnnParts.cpp - a stand-in for cuDNN's graph API ------------------===//
//
// A graph may be run in three ways: one whose results may differ from run to
// run, one that works in more memory than there is, and one like the others of
// this library.
//
//===----------------------------------------------------------------------===//
#include "test/standin/CudnnParts.h"
#include "test/standin/Machine.h"

using namespace pipec::standin;
using namespace pipec::cudnn;

namespace {

// cudnnStatus_t.
enum Status { Success = 0, BadParameter = 2000, NotSupported = 3000 };
enum Choice { Unordered, Large, Ordered, Choices };
constexpr int64_t kWorkspaceOf[Choices] = {64, int64_t(1) << 40, 4096};

size_t bytesOf(int type) {
  return type == kBooleanType ? sizeof(bool)
         : type == kDataType || type == kHeuristicType || type == kNoteType ||
                 type == kPointwiseType || type == kReductionType
             ? sizeof(int)
             : sizeof(int64_t);
}

int64_t tensorOf(GraphProgram &program, const CudnnPart &operation, int name) {
  if (!operation.has(name))
    return 0;
  const auto *part = operation.get<const CudnnPart *>(name);
  GraphTensor tensor;
  tensor.number = part->get<int64_t>(kTensorNumber);
  tensor.type = part->get<int>(kTensorType);
  tensor.sizes = part->get<Index>(kTensorSizes);
  tensor.strides = part->get<Index>(kTensorStrides);
  tensor.isBetween = part->get<bool>(kTensorIsVirtual);
  tensor.isOnHost = part->get<bool>(kTensorIsByValue);
  program.tensors[tensor.number] = tensor;
  return tensor.number;
}

/// False for an operation that is not known here.
bool addStep(GraphProgram &program, const CudnnPart &operation) {
  auto number = [&](int name) { return tensorOf(program, operation, name); };
  GraphStep step;
  step.kind = operation.kind;
  if (operation.kind == kPointwiseOperation) {
    const auto *how = operation.get<const CudnnPart *>(kPointwiseDescriptor);
    step.mode = how->get<int>(kPointwiseMode);
    step.axis = how->get<int64_t>(kPointwiseAxis);
    step.x = number(kPointwiseX), step.b = number(kPointwiseB);
    step.t = number(kPointwiseT), step.y = number(kPointwiseY);
  } else if (operation.kind == kMatmulOperation) {
    step.x = number(kMatmulA), step.b = number(kMatmulB);
    step.y = number(kMatmulC);
  } else if (operation.kind == kReductionOperation) {
    step.mode = operation.get<const CudnnPart *>(kReductionDescriptor)
                    ->get<int>(kReductionOperator);
    step.x = number(kReductionX), step.y = number(kReductionY);
  } else if (operation.kind == kReshapeOperation) {
    step.x = number(kReshapeX), step.y = number(kReshapeY);
  } else {
    return false;
  }
  program.steps.push_back(step);
  return step.x && step.y;
}

int finishGraph(CudnnPart &graph) {
  auto program = std::make_shared<GraphProgram>();
  for (const CudnnPart *operation :
       graph.list<const CudnnPart *>(kGraphOperations))
    if (!operation->isFinished || !addStep(*program, *operation))
      return BadParameter;
  graph.program = std::move(program);
  return graph.has(kGraphHandle) ? Success : BadParameter;
}

} // namespace

extern "C" {

int cudnnBackendCreateDescriptor(int kind, void **part) {
  auto *made = new CudnnPart;
  made->kind = kind;
  *part = made;
  return Success;
}
int cudnnBackendDestroyDescriptor(void *part) {
  delete static_cast<CudnnPart *>(part);
  return Success;
}
int cudnnBackendSetAttribute(void *part, int name, int type, int64_t count,
                             const void *values) {
  auto &p = *static_cast<CudnnPart *>(part);
  if (p.isFinished)
    return BadParameter;
  const auto *bytes = static_cast<const char *>(values);
  p.attributes[name].assign(bytes,
                            bytes + bytesOf(type) * static_cast<size_t>(count));
  return Success;
}
int cudnnBackendFinalize(void *part) {
  auto &p = *static_cast<CudnnPart *>(part);
  int status = Success;
  if (p.kind == kOperationGraph) {
    status = finishGraph(p);
  } else if (p.kind == kHeuristic) {
    p.program = p.get<const CudnnPart *>(kHeuristicGraph)->program;
    status = p.program ? Success : BadParameter;
  } else if (p.kind == kPlan) {
    const auto *config = p.get<const CudnnPart *>(kPlanConfig);
    p.program = config->program, p.choice = config->choice;
    status = p.program && p.has(kPlanHandle) ? Success : BadParameter;
  }
  p.isFinished = status == Success;
  return status;
}
int cudnnBackendGetAttribute(void *part, int name, int, int64_t wanted,
                             int64_t *count, void *values) {
  const auto &p = *static_cast<CudnnPart *>(part);
  *count = 1;
  if (name == kHeuristicResults && p.isFinished) {
    *count = setting("PIPEC_STANDIN_ATTENTION", 1) ? Choices : 0;
    for (int i = 0; i < *count && i < wanted; ++i) {
      CudnnPart &config = *static_cast<CudnnPart **>(values)[i];
      config.program = p.program, config.choice = i;
    }
  } else if (name == kConfigEngine && p.program) {
    (*static_cast<CudnnPart **>(values))->choice = p.choice;
  } else if (name == kEngineNotes && p.choice >= 0) {
    *static_cast<int *>(values) = p.choice == Unordered ? kNotDeterministic : 0;
  } else if (name == kPlanWorkspace && p.isFinished) {
    *static_cast<int64_t *>(values) = kWorkspaceOf[p.choice];
  } else {
    return NotSupported;
  }
  return Success;
}
int cudnnBackendExecute(void *handle, void *plan, void *pack) {
  const auto &p = *static_cast<CudnnPart *>(plan);
  const auto &given = *static_cast<CudnnPart *>(pack);
  void *stream = static_cast<CudnnHandle *>(handle)->stream;
  const auto numbers = given.list<int64_t>(kPackNumbers);
  const auto pointers = given.list<void *>(kPackPointers);
  if (!p.isFinished || !given.isFinished || !isOurs(stream) ||
      p.choice != Ordered || numbers.size() != pointers.size() ||
      !Machine::get().isDevice(given.get<void *>(kPackWorkspace),
                               kWorkspaceOf[Ordered]))
    return BadParameter;
  std::map<int64_t, void *> at;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto tensor = p.program->tensors.find(numbers[i]);
    // Its numbers on the host are as they are now.
    if (tensor == p.program->tensors.end() ||
        tensor->second.isOnHost == Machine::get().isDevice(pointers[i], 1))
      return BadParameter;
    at[numbers[i]] = pointers[i];
  }
  Machine::get().log("attend");
  queueWork(stream, [program = p.program, at] { program->run(at); });
  return Success;
}
}
