//===- main.cpp - pipec-run -----------------------------------------------===//
#include "runtime/run/Launcher.h"

int main(int argc, char **argv) { return pipec::pipecRun(argc, argv); }
