//===- kernels_shared.cpp - the kernel library as a shared object ---------===//
//
// Nothing of its own: the whole of pipec_kernels is linked in.
//
//===----------------------------------------------------------------------===//
