//===- HostExchange.h - groups of messages of a transport -------*- C++ -*-===//
#pragma once

#include "runtime/control/Watch.h"
#include "runtime/exec/Exchange.h"

#include <vector>

namespace pipec {

class HostExchange : public Exchange {
public:
  HostExchange(Transport &transport, Watch &watch)
      : transport(transport), watch(watch) {}

  void send(int to, int tag, const char *data, int64_t bytes) override {
    pending.push_back({transport.send(to, tag, data, bytes), to});
  }
  void receive(int from, int tag, char *data, int64_t bytes) override {
    pending.push_back({transport.receive(from, tag, data, bytes), from});
  }
  void run(const char *what, int stage, int64_t step) override {
    Operation operation;
    operation.what = what;
    operation.stage = stage;
    operation.step = step;
    for (auto &[request, peer] : pending) {
      operation.peer = peer;
      watch.wait(transport, request, operation);
    }
    pending.clear();
  }

private:
  Transport &transport;
  Watch &watch;
  std::vector<std::pair<Request, int>> pending;
};

} // namespace pipec
