//===- Topology.h - devices and the links between them ----------*- C++ -*-===//
//
// A cluster is a tree of equal halves: servers hold sockets hold devices.
// Device numbers run depth first, so devices of one server are neighbours. A
// link is priced by the outermost level at which two devices differ.
//
//===----------------------------------------------------------------------===//
#pragma once

#include "compiler/plan/DeviceModel.h"

#include <optional>
#include <string>
#include <vector>

namespace pipec::plan {

/// One level of the tree, outermost first. Bandwidth is bytes/s per device and
/// direction between two devices that differ at this level; latency is seconds.
struct Level {
  std::string name;
  int count = 1;
  double bandwidth = 0;
  double latency = 0;
  bool operator==(const Level &) const = default;
};

/// Planning takes memory and time with the square of the devices.
inline constexpr int kMostDevices = 8192;

struct Link {
  double bandwidth = 0; ///< bytes/s
  double latency = 0;   ///< s
  int level = 0; ///< index into Topology::levels; levels.size() = same device
};

struct Topology {
  std::vector<Level> levels; ///< outermost first, at least one
  DeviceModel device;
  /// CPU ranks: cores of a server, which its ranks share when they are more;
  /// 0: every device is its own.
  int cores = 0;

  bool operator==(const Topology &) const = default;
  int devices() const;
  /// Devices in one component of levels[level] (1 for the innermost level's
  /// units).
  int componentSize(size_t level) const;
  /// Devices of one server: all, when there is one level.
  int serverSize() const {
    return levels.size() > 1 ? componentSize(0) : devices();
  }
  /// Cores' own caches that the devices compute with: ranks may have several
  /// threads each, or take turns on a core. Of other devices, one each.
  int caches() const;
  int server(int device) const { return device / serverSize(); }
  /// The link between two devices.
  Link link(int a, int b) const;
  /// The slowest link inside a set of devices.
  Link slowestLink(const std::vector<int> &group) const;
  /// The least bandwidth and the greatest latency of a ring that all-reduces:
  /// each of its steps waits for all of its links.
  Link ringLink(const std::vector<int> &ring) const;
};

/// The first half of a cluster's servers, or all but one of an odd number; of
/// one server the same of its devices. Nothing of a single device.
std::optional<Topology> partOf(const Topology &topology);

/// `text` is "M" or "NxM": N servers of M devices with the device row's own
/// interconnects. Throws Failure(Exit::Usage).
Topology gridTopology(const std::string &text, const DeviceModel &device);

/// The same ranks on CPUs of so many cores a server: as many threads each as
/// there are cores for, at least one.
Topology shareCores(Topology topology, int cores);

/// Reads a cluster file (README "A cluster file"). Throws
/// Failure(Exit::NoInput) or Failure(Exit::BadPlan) with the key and the
/// reason.
Topology readTopology(const std::string &path);
Topology parseTopology(const std::string &json, const std::string &origin);

/// The cluster in the file format; reading it back gives an equal topology.
std::string writeTopology(const Topology &topology);

} // namespace pipec::plan
