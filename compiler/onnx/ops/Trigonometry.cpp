//===- Trigonometry.cpp - importers of inverse trigonometric functions ----===//
//
// The core has sine, cosine and roots. The arc tangent is Cephes' rational
// approximation after reduction to |x| <= tan(pi/8); it is exact to a few units
// in the last place in both float types.
//
//===----------------------------------------------------------------------===//
#include "compiler/onnx/ops/Ops.h"

#include <cmath>

using namespace mlir;

namespace pipec::onnx {

/// Horner's rule from the highest coefficient down.
static Val polynomial(Emitter &e, const Val &z, ArrayRef<double> coefficients) {
  Val y = e.splatLike(z, coefficients[0]);
  for (const double coefficient : coefficients.drop_front())
    y = e.add(e.mul(y, z), e.splatLike(z, coefficient));
  return y;
}

static Val arcTangent(Emitter &e, const Val &x) {
  const Val zero = e.splatLike(x, 0), one = e.splatLike(x, 1);
  const Val negative = e.compare("lt", x, 0);
  const Val a = e.select(negative, e.neg(x), x);
  // Above tan(3 pi / 8): pi/2 - atan(1/a); above 0.66: pi/4 + atan of a
  // quotient.
  const Val large = e.compare("gt", a, 2.41421356237309504880);
  const Val middle = e.compare("gt", a, 0.66);
  const Val inverse = e.neg(e.div(one, e.select(large, a, one)));
  const Val quotient = e.div(e.add(a, -1), e.add(a, 1));
  const Val r = e.select(large, inverse, e.select(middle, quotient, a));
  const Val start = e.select(large, e.splatLike(x, M_PI_2),
                             e.select(middle, e.splatLike(x, M_PI_4), zero));
  const Val z = e.mul(r, r);
  const Val p =
      polynomial(e, z,
                 {-8.750608600031904122785E-1, -1.615753718733365076637E1,
                  -7.500855792314704667340E1, -1.228866684490136173410E2,
                  -6.485021904942025371773E1});
  const Val q =
      polynomial(e, z,
                 {1, 2.485846490142306297962E1, 1.650270098316988542046E2,
                  4.328810604912902668951E2, 4.853903996359136964868E2,
                  1.945506571482613964425E2});
  const Val y = e.add(start, e.add(e.div(e.mul(e.mul(r, z), p), q), r));
  return e.select(negative, e.neg(y), y);
}

void importAtan(NodeContext &c) { c.out(arcTangent(c.e, c.floatIn(0))); }

/// atan(x / sqrt(1 - x^2)) = 2 atan(x / (1 + sqrt(1 - x^2)))
static Val arcSine(Emitter &e, const Val &x) {
  const Val root = e.unary<nn::SqrtOp>(e.sub(e.splatLike(x, 1), e.mul(x, x)));
  return e.mul(arcTangent(e, e.div(x, e.add(root, 1))), 2);
}

void importAsin(NodeContext &c) { c.out(arcSine(c.e, c.floatIn(0))); }

void importAcos(NodeContext &c) {
  const Val &x = c.floatIn(0);
  c.out(c.e.sub(c.e.splatLike(x, M_PI_2), arcSine(c.e, x)));
}

} // namespace pipec::onnx
