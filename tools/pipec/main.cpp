//===- main.cpp - pipec ---------------------------------------------------===//
#include "compiler/driver/Main.h"

int main(int argc, char **argv) { return pipec::pipecMain(argc, argv); }
