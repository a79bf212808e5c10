//===- Mutate.h - damage done to ONNX files ---------------------*- C++ -*-===//
//
// What the tests with hostile files and the fuzzer share.
//
//===----------------------------------------------------------------------===//

#pragma once

#include <onnx/onnx_pb.h>
#include <random>
#include <string>

namespace pipec::fuzz {

using Random = std::mt19937;

/// 0 … n - 1; 0 for n = 0.
inline size_t below(Random &random, size_t n) { return n ? random() % n : 0; }

/// One to four changed, removed, repeated or cut off places.
std::string damageBytes(Random &random, std::string bytes);

/// One to three changed operators, attributes, names, types, sizes or values:
/// files that still parse.
void changeFields(Random &random, ::ONNX_NAMESPACE::ModelProto &model);

} // namespace pipec::fuzz
