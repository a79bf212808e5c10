//===- Uses.h - who reads a value -------------------------------*- C++ -*-===//
#pragma once

#include "compiler/onnx/Model.h"

#include <unordered_map>

namespace pipec::onnx {

/// An input of a node.
struct Use {
  const Node *node;
  int operand;
};

/// The uses of every value, looking into subgraphs and local functions: a value
/// passed to a function or a loop is used where its body uses the parameter.
class Uses {
public:
  explicit Uses(const Model &model);
  /// In the order of the file.
  const std::vector<Use> &of(const std::string &name) const;
  /// The main graph's node that makes a value, or null.
  const Node *producer(const std::string &name) const;

private:
  using Table = std::unordered_map<std::string, std::vector<Use>>;
  void collect(const std::vector<Node> &nodes, Table &table, int depth);
  void follow(const Node &node, int operand, Table &into, int depth);
  const Table &tableOf(const Function &function, int depth);
  const Table &tableOf(const Graph &body, int depth);

  const Model &model;
  Table table;
  std::unordered_map<const Function *, Table> functionTables;
  std::unordered_map<const Graph *, Table> bodyTables;
  std::unordered_map<std::string, const Node *> producers;
};

} // namespace pipec::onnx
