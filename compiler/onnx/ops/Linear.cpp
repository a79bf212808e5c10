//===- Linear.cpp - importers of matrix products --------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <algorithm>

using namespace mlir;

namespace pipec::onnx {

/// NumPy's matmul: vectors become matrices for a moment, leading dimensions
/// broadcast. A matrix on the right folds the leading dimensions of the left
/// into rows: one large product instead of many small ones.
Val matmulLikeNumpy(Emitter &e, Val x, Val y) {
  const bool vectorX = x.getRank() == 1, vectorY = y.getRank() == 1;
  if (x.getRank() == 0 || y.getRank() == 0)
    throw NodeError{"one of its operands is a scalar", ""};
  if (vectorX)
    x = e.reshape(x, {1, x.dim(0)});
  if (vectorY)
    y = e.reshape(y, {y.dim(0), 1});
  SmallVector<int64_t> shape;
  Val product;
  if (y.getRank() == 2) {
    const int64_t k = x.getShape().back();
    shape.assign(x.getShape().begin(), x.getShape().end() - 1);
    int64_t rows = 1;
    for (const int64_t size : shape)
      rows *= size;
    product = e.matmul(e.reshape(x, {rows, k}), y);
    shape.push_back(y.dim(1));
    product = e.reshape(product, shape);
  } else {
    const auto batchOf = [](const Val &v) { return v.getShape().drop_back(2); };
    const int64_t rank = std::max(x.getRank(), y.getRank());
    SmallVector<int64_t> batch(rank - 2, 1);
    for (const Val *v : {&x, &y})
      for (size_t i = 0; i < batchOf(*v).size(); ++i) {
        int64_t &size = batch[batch.size() - batchOf(*v).size() + i];
        if (const int64_t own = batchOf(*v)[i]; own != 1)
          size = own;
      }
    const auto widen = [&](const Val &v) {
      SmallVector<int64_t> to(batch);
      llvm::append_range(to, v.getShape().take_back(2));
      return e.broadcast(v, to);
    };
    product = e.matmul(widen(x), widen(y));
    shape.assign(product.getShape().begin(), product.getShape().end());
  }
  if (vectorY)
    shape.pop_back();
  if (vectorX)
    shape.erase(shape.end() - (vectorY ? 1 : 2));
  return e.reshape(product, shape);
}

void importMatMul(NodeContext &c) {
  c.out(matmulLikeNumpy(c.e, c.in(0), c.in(1)));
}

/// alpha * op(A) op(B) + beta * C
void importGemm(NodeContext &c) {
  const Val &a = c.in(0), &b = c.in(1);
  if (a.getRank() != 2 || b.getRank() != 2)
    c.fail("its operands are no matrices but " + shapeText(a.getShape()) +
           " and " + shapeText(b.getShape()));
  const double alpha = c.floatAttr("alpha", 1), beta = c.floatAttr("beta", 1);
  Val y = c.e.matmul(a, b, c.intAttr("transA", 0) != 0,
                     c.intAttr("transB", 0) != 0);
  y = c.e.mul(y, alpha);
  if (c.has(2) && beta != 0) {
    const Val bias = c.e.mul(c.in(2), beta);
    c.out(c.e.add(y, c.e.broadcast(bias, y.getShape())));
    return;
  }
  c.out(y);
}

//===----------------------------------------------------------------------===//
// Einsum
//===----------------------------------------------------------------------===//

namespace {
/// An operand whose dimensions have letters.
struct Labelled {
  Val v;
  std::string labels;
};

class Einsum {
public:
  Einsum(NodeContext &c) : c(c), e(c.e) {}
  Val run();

private:
  void parse();
  std::string expand(const std::string &labels, const std::string &ellipsis);
  void recordSizes(const Labelled &x);
  Labelled diagonal(Labelled x);
  Labelled sumAway(Labelled x, const std::string &keep);
  Labelled permute(Labelled x, const std::string &to);
  Labelled contract(const Labelled &x, const Labelled &y,
                    const std::string &keep);

  NodeContext &c;
  Emitter &e;
  std::vector<Labelled> operands;
  std::string result;
  std::map<char, int64_t> sizes;
};
} // namespace

/// The letters of "..." of each operand, aligned at the right.
static std::string ellipsisLetters(int64_t rank) {
  std::string out;
  for (int64_t i = rank; i-- > 0;)
    out += static_cast<char>('0' + i);
  return out;
}

void Einsum::parse() {
  std::string text = c.stringAttr("equation", "");
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  std::vector<std::string> terms(1);
  for (const char ch : left)
    if (ch == ',')
      terms.emplace_back();
    else
      terms.back() += ch;
  if (terms.size() != c.inputCount())
    c.fail("its equation '" + text + "' has another number of operands");
  int64_t widest = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const size_t dots = terms[i].find("...");
    if (dots != std::string::npos) {
      const int64_t rank =
          c.in(i).getRank() - (static_cast<int64_t>(terms[i].size()) - 3);
      if (rank < 0 || rank > 9)
        c.fail("its equation '" + text + "' does not fit its operands");
      widest = std::max(widest, rank);
      terms[i].replace(dots, 3, ellipsisLetters(rank));
    }
    if (static_cast<int64_t>(terms[i].size()) != c.in(i).getRank())
      c.fail("its equation '" + text + "' does not fit its operands");
    operands.push_back({c.in(i), terms[i]});
  }
  if (arrow != std::string::npos) {
    result = text.substr(arrow + 2);
    if (const size_t dots = result.find("..."); dots != std::string::npos)
      result.replace(dots, 3, ellipsisLetters(widest));
  } else {
    std::map<char, int> count;
    for (const Labelled &x : operands)
      for (const char label : x.labels)
        ++count[label];
    result = ellipsisLetters(widest);
    for (const auto &[label, n] : count)
      if (n == 1 && std::isalpha(static_cast<unsigned char>(label)))
        result += label;
  }
}

void Einsum::recordSizes(const Labelled &x) {
  for (size_t i = 0; i < x.labels.size(); ++i) {
    int64_t &size = sizes.try_emplace(x.labels[i], 1).first->second;
    const int64_t own = x.v.dim(static_cast<int64_t>(i));
    if (size != 1 && own != 1 && size != own)
      c.fail(std::string("its label '") + x.labels[i] + "' has two sizes");
    size = std::max(size, own);
  }
}

/// A letter that one operand has twice selects the diagonal.
Labelled Einsum::diagonal(Labelled x) {
  for (size_t i = 0; i < x.labels.size(); ++i) {
    const size_t j = x.labels.find(x.labels[i], i + 1);
    if (j == std::string::npos)
      continue;
    if (x.v.dim(static_cast<int64_t>(i)) != x.v.dim(static_cast<int64_t>(j)))
      c.fail(std::string("its label '") + x.labels[i] + "' has two sizes");
    const auto mask = RankedTensorType::get(x.v.getShape(), e.i64());
    const Val same = e.compare("eq", e.iota(mask, static_cast<int64_t>(i)),
                               e.iota(mask, static_cast<int64_t>(j)));
    const Val only = e.select(same, x.v, e.splatLike(x.v, 0));
    const Val sum = e.reduce("sum", only, {static_cast<int64_t>(j)});
    SmallVector<int64_t> shape(sum.getShape());
    shape.erase(shape.begin() + static_cast<int64_t>(j));
    x = {e.reshape(sum, shape), x.labels.substr(0, j) + x.labels.substr(j + 1)};
    i = static_cast<size_t>(-1);
  }
  return x;
}

/// Sums over the letters that `keep` has not.
Labelled Einsum::sumAway(Labelled x, const std::string &keep) {
  SmallVector<int64_t> axes, shape;
  std::string labels;
  for (size_t i = 0; i < x.labels.size(); ++i)
    if (keep.find(x.labels[i]) == std::string::npos) {
      axes.push_back(static_cast<int64_t>(i));
    } else {
      labels += x.labels[i];
      shape.push_back(x.v.dim(static_cast<int64_t>(i)));
    }
  return {e.reshape(e.reduce("sum", x.v, axes), shape), labels};
}

/// Reorders to the letters of `to`; those it has not yet get size 1.
Labelled Einsum::permute(Labelled x, const std::string &to) {
  SmallVector<int64_t> permutation, shape;
  for (const char label : to)
    if (const size_t at = x.labels.find(label); at != std::string::npos) {
      permutation.push_back(static_cast<int64_t>(at));
      shape.push_back(x.v.dim(static_cast<int64_t>(at)));
    } else {
      shape.push_back(1);
    }
  return {e.reshape(e.transpose(x.v, permutation), shape), to};
}

/// The product of two operands, summed over the letters not kept: a batched
/// matmul of [batch, left, inner] and [batch, inner, right].
Labelled Einsum::contract(const Labelled &x, const Labelled &y,
                          const std::string &keep) {
  const auto in = [](char label, const std::string &s) {
    return s.find(label) != std::string::npos;
  };
  std::string batch, left, right, inner;
  for (const char label : x.labels)
    (!in(label, y.labels) ? left : in(label, keep) ? batch : inner) += label;
  for (const char label : y.labels)
    if (!in(label, x.labels))
      right += label;
  const auto full = [&](const Labelled &v, const std::string &order) {
    Labelled p = permute(v, order);
    SmallVector<int64_t> shape;
    for (const char label : order)
      shape.push_back(sizes[label]);
    return e.broadcast(p.v, shape);
  };
  const auto count = [&](const std::string &s) {
    int64_t n = 1;
    for (const char label : s)
      n *= sizes[label];
    return n;
  };
  const Val a = e.reshape(full(x, batch + left + inner),
                          {count(batch), count(left), count(inner)});
  const Val b = e.reshape(full(y, batch + inner + right),
                          {count(batch), count(inner), count(right)});
  SmallVector<int64_t> shape;
  for (const char label : batch + left + right)
    shape.push_back(sizes[label]);
  return {e.reshape(e.matmul(a, b), shape), batch + left + right};
}

Val Einsum::run() {
  parse();
  for (Labelled &x : operands) {
    x = diagonal(x);
    recordSizes(x);
  }
  Labelled total = operands[0];
  for (size_t i = 0; i < operands.size(); ++i) {
    // What the result or a later operand still needs.
    std::string keep = result;
    for (size_t later = i + 1; later < operands.size(); ++later)
      keep += operands[later].labels;
    if (i == 0) {
      total = sumAway(total, keep);
      continue;
    }
    const Labelled next = sumAway(operands[i], keep + total.labels);
    total = contract(sumAway(total, keep + next.labels), next, keep);
  }
  for (const char label : result)
    if (!sizes.count(label))
      c.fail(std::string("its result has the label '") + label +
             "', which no operand has");
  SmallVector<int64_t> shape;
  for (const char label : result)
    shape.push_back(sizes[label]);
  return e.broadcast(permute(total, result).v, shape);
}

void importEinsum(NodeContext &c) { c.out(Einsum(c).run()); }

} // namespace pipec::onnx
