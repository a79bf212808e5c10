//===- Cudnn.h - numbers of cuDNN, as far as used ---------------*- C++ -*-===//
#pragma once

#include <cstddef>
#include <cstdint>

namespace pipec::cudnn {

constexpr int kSuccess = 0;

constexpr int kFloat = 0, kDouble = 1, kBfloat16 = 9; ///< cudnnDataType_t
constexpr int kCrossCorrelation = 1; ///< cudnnConvolutionMode_t
constexpr int kRowMajor = 0;         ///< cudnnTensorFormat_t
// cudnnMathType_t: f32 products, or TF32 ones if the device has them; tensor
// cores for narrow numbers.
constexpr int kFmaMath = 3, kDefaultMath = 0, kTensorMath = 1;
constexpr int kDeterministic = 1; ///< cudnnDeterminism_t

/// cudnnConvolutionFwdAlgo_t and its two likes: those that transform operands
/// (FFT, Winograd) before they multiply are the bits that are set.
constexpr unsigned kTransformForward = 0b11110000, kTransformData = 0b00111100,
                   kTransformFilter = 0b01110100;

/// cudnnConvolutionFwdAlgoPerf_t and its two likes.
struct Found {
  int algorithm, status;
  float time;
  size_t bytes;
  int determinism, math;
  int reserved[3];
};

// The graph API: kinds of descriptors (cudnnBackendDescriptorType_t) ...
enum Part {
  kPointwise = 0,
  kEngineConfig = 3,
  kHeuristic = 4,
  kPlan = 5,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kEngine = 2,
};
// ... their attributes (cudnnBackendAttributeName_t) ...
enum Attribute {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPointwiseDescriptor = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kTensorNumber = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackNumbers = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNotes = 1303,
  kMatmulPrecision = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionPrecision = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionDescriptor = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
};
// ... the types of those (cudnnBackendAttributeType_t) ...
enum AttributeType {
  kHandleType = 0,
  kDataType = 1,
  kBooleanType = 2,
  kNumberType = 3,
  kPointerType = 6,
  kHeuristicType = 8,
  kNoteType = 11,
  kPointwiseType = 14,
  kPartType = 15,
  kReductionType = 18,
};
// ... and what they may be: cudnnDataType_t, cudnnPointwiseMode_t,
// cudnnReduceTensorOp_t, cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t.
constexpr int kInt32 = 4, kBoolean = 11;
enum PointwiseMode {
  kAdd = 0,
  kMultiply = 1,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kIsGreaterOrEqual = 303,
  kIndexAlong = 501,
  kSelect = 601,
};
constexpr int kSumUp = 0, kLargest = 3;
constexpr int kFastHeuristic = 3;
constexpr int kNotDeterministic = 4;

} // namespace pipec::cudnn
