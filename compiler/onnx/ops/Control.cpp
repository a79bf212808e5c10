//===- Control.cpp - importers of control flow, sequences, optionals ------===//
//
// The program has no control flow: branches are chosen and loops unrolled at
// import, which needs conditions and trip counts known then. Sequences exist
// only at import.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/Importer.h"
#include "compiler/onnx/ops/Ops.h"

#include <algorithm>

using namespace mlir;

namespace pipec::onnx {

/// Iterations that are unrolled at most.
static constexpr int64_t kMostIterations = 4096;

static const Graph &subgraph(NodeContext &c, const char *name) {
  const Attribute *a = c.attribute(name);
  if (!a || !a->graph)
    c.fail(std::string("its subgraph '") + name + "' is missing");
  return *a->graph;
}

static bool knownCondition(NodeContext &c, const Val &v, const char *what) {
  if (!v.isKnown())
    c.fail(std::string("its ") + what + " depends on data",
           "export the model without data-dependent control flow");
  const std::vector<int64_t> values = c.e.literal(v).integers();
  if (values.size() != 1)
    c.fail(std::string("its ") + what + " is not one boolean");
  return values[0] != 0;
}

void importIf(NodeContext &c) {
  const bool condition = knownCondition(c, c.in(0), "condition");
  const std::vector<Val> results = c.importer.runSubgraph(
      subgraph(c, condition ? "then_branch" : "else_branch"), {});
  for (size_t i = 0; i < results.size(); ++i)
    c.out(i, results[i]);
}

/// Joins the values of a scan output, one an iteration, along a new axis.
static Val stack(NodeContext &c, const std::vector<Val> &values, int64_t axis) {
  if (values.empty())
    c.fail("it runs no iteration, so that its scan output has no shape");
  std::vector<Val> rows;
  for (const Val &v : values) {
    SmallVector<int64_t> shape(v.getShape());
    shape.insert(shape.begin() + axis, 1);
    rows.push_back(c.e.reshape(v, shape));
  }
  return c.e.concat(rows, axis);
}

/// A scalar as the body's input declares it: a vector of one element in files
/// of some exporters.
static Val asDeclared(NodeContext &c, const Val &scalar, const Graph &body,
                      size_t input) {
  const bool isVector = input < body.inputs.size() &&
                        body.inputs[input].shape &&
                        body.inputs[input].shape->size() == 1;
  return isVector ? c.e.reshape(scalar, {1}) : scalar;
}

/// Inputs: trip count, condition, carried values. Body: iteration, condition,
/// carried values to condition, carried values, scan outputs.
void importLoop(NodeContext &c) {
  const Graph &body = subgraph(c, "body");
  const int64_t trips =
      c.has(0) ? c.scalarInt(0, "trip count") : kMostIterations + 1;
  bool goes = !c.has(1) || knownCondition(c, c.in(1), "condition");
  std::vector<Val> carried;
  for (size_t i = 2; i < c.inputCount(); ++i)
    carried.push_back(c.inputOrSequence(i));
  std::vector<std::vector<Val>> scans;
  const Type i1 = IntegerType::get(c.e.getContext(), 1);
  Val condition = nn::Literal::splatInt(RankedTensorType::get({}, i1), 1);
  if (body.outputs.size() < carried.size() + 1)
    c.fail("its body has too few outputs");
  scans.resize(body.outputs.size() - carried.size() - 1);
  for (int64_t i = 0; i < trips && goes; ++i) {
    if (i >= kMostIterations)
      c.fail("it runs more than " + std::to_string(kMostIterations) +
             " iterations");
    const Val count = nn::Literal::scalarInt(c.e.getContext(), i);
    std::vector<Val> arguments{asDeclared(c, count, body, 0),
                               asDeclared(c, condition, body, 1)};
    arguments.insert(arguments.end(), carried.begin(), carried.end());
    const std::vector<Val> results = c.importer.runSubgraph(body, arguments);
    goes = knownCondition(c, results[0], "condition");
    carried.assign(results.begin() + 1, results.begin() + 1 + carried.size());
    for (size_t s = 0; s < scans.size(); ++s)
      scans[s].push_back(results[1 + carried.size() + s]);
  }
  for (size_t i = 0; i < carried.size(); ++i)
    c.out(i, carried[i]);
  for (size_t s = 0; s < scans.size(); ++s)
    if (c.wants(carried.size() + s))
      c.out(carried.size() + s, stack(c, scans[s], 0));
}

/// Inputs: states, then sequences that are sliced along an axis. Body: states
/// and slices to states and scan outputs.
void importScan(NodeContext &c) {
  if (c.opset < 9)
    c.fail("the batched Scan of opset 8 is not supported");
  const Graph &body = subgraph(c, "body");
  const int64_t sliced = c.intAttr("num_scan_inputs"),
                given = static_cast<int64_t>(c.inputCount());
  const int64_t states = given - std::clamp<int64_t>(sliced, 0, given);
  const auto scans = static_cast<int64_t>(body.outputs.size()) - states;
  if (sliced < 1 || sliced > given || scans < 0)
    c.fail("its inputs do not fit its body");
  const auto listed = [&](const char *name, int64_t i) -> int64_t {
    const auto list = c.intsAttr(name);
    return list && i < static_cast<int64_t>(list->size()) ? (*list)[i] : 0;
  };
  std::vector<Val> state, inputs;
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < states; ++i)
    state.push_back(c.inputOrSequence(i));
  for (int64_t i = 0; i < sliced; ++i) {
    inputs.push_back(c.in(states + i));
    axes.push_back(
        c.axis(listed("scan_input_axes", i), inputs.back().getRank()));
  }
  const int64_t length = inputs[0].dim(axes[0]);
  if (length > kMostIterations)
    c.fail("it runs more than " + std::to_string(kMostIterations) +
           " iterations");
  std::vector<std::vector<Val>> rows(scans);
  for (int64_t t = 0; t < length; ++t) {
    std::vector<Val> arguments = state;
    for (int64_t i = 0; i < sliced; ++i) {
      const Val &x = inputs[i];
      if (x.dim(axes[i]) != length)
        c.fail("its scanned inputs have different lengths");
      const int64_t at =
          listed("scan_input_directions", i) ? length - 1 - t : t;
      SmallVector<int64_t> shape(x.getShape());
      shape.erase(shape.begin() + axes[i]);
      arguments.push_back(c.e.reshape(c.e.sliceAxis(x, axes[i], at, 1), shape));
    }
    const std::vector<Val> results = c.importer.runSubgraph(body, arguments);
    state.assign(results.begin(), results.begin() + states);
    for (int64_t s = 0; s < scans; ++s)
      rows[s].push_back(results[states + s]);
  }
  for (int64_t i = 0; i < states; ++i)
    c.out(i, state[i]);
  for (int64_t s = 0; s < scans; ++s) {
    if (!c.wants(states + s))
      continue;
    if (listed("scan_output_directions", s))
      std::reverse(rows[s].begin(), rows[s].end());
    if (rows[s].empty())
      c.fail("it runs no iteration, so that its scan output has no shape");
    c.out(states + s, stack(c, rows[s],
                            c.axis(listed("scan_output_axes", s),
                                   rows[s][0].getRank() + 1)));
  }
}

//===----------------------------------------------------------------------===//
// Sequences
//===----------------------------------------------------------------------===//

static Val sequenceOf(std::vector<Val> values) {
  Val v;
  v.sequence = std::make_shared<const std::vector<Val>>(std::move(values));
  return v;
}

void importSequenceEmpty(NodeContext &c) { c.out(sequenceOf({})); }

void importSequenceConstruct(NodeContext &c) {
  std::vector<Val> values;
  for (size_t i = 0; i < c.inputCount(); ++i)
    values.push_back(c.in(i));
  c.out(sequenceOf(std::move(values)));
}

/// A position in a sequence of n, counted from the front.
static size_t position(NodeContext &c, size_t input, int64_t n) {
  const int64_t at = c.scalarInt(input, "position");
  if (at < -n || at >= n)
    c.fail("its position " + std::to_string(at) +
           " is outside of a sequence of " + std::to_string(n));
  return static_cast<size_t>(at < 0 ? at + n : at);
}

void importSequenceAt(NodeContext &c) {
  const std::vector<Val> &values = c.sequenceIn(0);
  c.out(values[position(c, 1, static_cast<int64_t>(values.size()))]);
}

void importSequenceErase(NodeContext &c) {
  std::vector<Val> values = c.sequenceIn(0);
  const auto n = static_cast<int64_t>(values.size());
  if (n == 0)
    c.fail("its sequence is empty");
  values.erase(values.begin() + (c.has(1) ? position(c, 1, n) : n - 1));
  c.out(sequenceOf(std::move(values)));
}

void importSequenceInsert(NodeContext &c) {
  std::vector<Val> values = c.sequenceIn(0);
  const auto n = static_cast<int64_t>(values.size());
  values.insert(values.begin() + (c.has(2) ? position(c, 2, n + 1) : n),
                c.in(1));
  c.out(sequenceOf(std::move(values)));
}

void importSequenceLength(NodeContext &c) {
  c.out(nn::Literal::scalarInt(c.e.getContext(),
                               static_cast<int64_t>(c.sequenceIn(0).size())));
}

void importConcatFromSequence(NodeContext &c) {
  const std::vector<Val> &values = c.sequenceIn(0);
  if (values.empty())
    c.fail("its sequence is empty");
  if (c.intAttr("new_axis", 0) != 0) {
    c.out(stack(c, values, c.axis(c.intAttr("axis"), values[0].getRank() + 1)));
    return;
  }
  c.out(c.e.concat(values, c.axis(c.intAttr("axis"), values[0].getRank())));
}

std::vector<int64_t> splitSizes(NodeContext &c, int64_t size, size_t parts);

void importSplitToSequence(NodeContext &c) {
  const Val &x = c.in(0);
  const int64_t axis = c.axis(c.intAttr("axis", 0), x.getRank()),
                size = x.dim(axis);
  std::vector<int64_t> sizes;
  const bool single = !c.has(1);
  if (single)
    sizes.assign(size, 1);
  else if (c.in(1).getRank() > 0)
    sizes = c.ints(1, "split");
  else
    for (int64_t each = c.scalarInt(1, "split"), at = 0; at < size;
         at += each) {
      if (each < 1)
        c.fail("it splits into parts of " + std::to_string(each));
      sizes.push_back(std::min(each, size - at));
    }
  std::vector<Val> values;
  int64_t at = 0;
  for (const int64_t part : sizes) {
    if (part < 0 || part > size - at)
      c.fail("its parts do not fit its input");
    Val v = c.e.sliceAxis(x, axis, at, part);
    if (single && c.intAttr("keepdims", 1) == 0) {
      SmallVector<int64_t> shape(x.getShape());
      shape.erase(shape.begin() + axis);
      v = c.e.reshape(v, shape);
    }
    values.push_back(v);
    at += part;
  }
  c.out(sequenceOf(std::move(values)));
}

/// Runs its body on each element.
void importSequenceMap(NodeContext &c) {
  const Graph &body = subgraph(c, "body");
  const std::vector<Val> first = c.sequenceIn(0);
  std::vector<std::vector<Val>> outputs(body.outputs.size());
  for (size_t i = 0; i < first.size(); ++i) {
    std::vector<Val> arguments{first[i]};
    for (size_t k = 1; k < c.inputCount(); ++k) {
      const Val &other = c.inputOrSequence(k);
      if (other.isSequence() && i >= other.sequence->size())
        c.fail("its sequences have different lengths");
      arguments.push_back(other.isSequence() ? (*other.sequence)[i] : other);
    }
    const std::vector<Val> results = c.importer.runSubgraph(body, arguments);
    for (size_t k = 0; k < outputs.size(); ++k)
      outputs[k].push_back(results[k]);
  }
  for (size_t k = 0; k < outputs.size(); ++k)
    c.out(k, sequenceOf(std::move(outputs[k])));
}

//===----------------------------------------------------------------------===//
// Optionals: an element that is there is itself
//===----------------------------------------------------------------------===//

void importOptional(NodeContext &c) {
  if (!c.has(0))
    c.fail("an empty optional has no value");
  c.out(c.inputOrSequence(0));
}

void importOptionalGetElement(NodeContext &c) { importOptional(c); }

void importOptionalHasElement(NodeContext &c) {
  const auto type =
      RankedTensorType::get({}, IntegerType::get(c.e.getContext(), 1));
  c.out(nn::Literal::splatInt(type, c.has(0)));
}

} // namespace pipec::onnx
