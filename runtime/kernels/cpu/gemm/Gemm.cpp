//===- Gemm.cpp - blocked products of packed panels -----------------------===//
//
// The usual loops: a block of one operand is packed and stays in the
// second-level cache, the other operand is packed and streamed past it in small
// bands, k goes in blocks. Which one stays is whatever needs less packing.
// Every thread packs what it needs itself: no barriers, and packing is a few
// percent.
//
//===----------------------------------------------------------------------===//

#include "runtime/kernels/cpu/gemm/Gemm.h"
#include "runtime/kernels/cpu/Parallel.h"

#include <algorithm>
#include <memory>
#include <new>
#include <unistd.h>

namespace pipec::cpu {
namespace {

/// Most rows of A or columns of B that stay; rows of A that stream past B.
constexpr int64_t kMostRows = 512, kMostColumns = 528, kBand = 96;

/// How many lines of kDepth floats leave half of the second-level cache to the
/// rest, in whole tiles of any processor level.
int64_t residentLines() {
  static const int64_t lines = [] {
    const int64_t cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const int64_t fit =
        (cache > 0 ? cache : int64_t(1) << 20) * 5 / 9 / (kDepth * 4);
    return std::clamp<int64_t>(fit / 48 * 48, 96, kMostRows);
  }();
  return lines;
}

/// Panels of a block of columns: no tile has fewer than 4 columns.
constexpr int64_t kMaxPanels = kMostColumns / 4;

/// Lines of both packed operands together, with room for rounding up.
constexpr int64_t kPackedLines = 704;
constexpr int64_t kBlockBytes = kPackedLines * kDepth * sizeof(double);
constexpr int64_t kTileBytes = 64 * 64 * sizeof(double);
constexpr int64_t kScratchBytes = kScratchElements * sizeof(double);

/// What a thread keeps: a block of A, a block of B, one tile, scratch.
class Workspace {
public:
  Workspace()
      : memory(static_cast<char *>(
            ::operator new(threadWorkspaceBytes(), std::align_val_t(64)))) {}
  ~Workspace() { ::operator delete(memory, std::align_val_t(64)); }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;

  template <typename T> T *packed() { return reinterpret_cast<T *>(memory); }
  template <typename T> T *tile() {
    return reinterpret_cast<T *>(memory + kBlockBytes);
  }
  template <typename T> T *scratch() {
    return reinterpret_cast<T *>(memory + kBlockBytes + kTileBytes);
  }

private:
  char *memory;
};

Workspace &workspace() {
  thread_local Workspace w;
  return w;
}

int64_t divideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Steps of k per block: as many as allowed, blocks of about equal size.
template <typename T> int64_t depthOf(const Gemm<T> &g) {
  const int64_t work = g.work ? g.work : g.m * g.n * g.k * kParts<T>;
  const int64_t most = (work <= kSmallWork ? kShortDepth : kDepth) / kParts<T>;
  const int64_t k = g.period ? std::min(g.period, g.k) : g.k;
  return k > 0 ? divideUp(k, divideUp(k, most)) : 1;
}

/// The columns [first, last) of panel `p` of [0, n): full tiles, but the last
/// few share what is left evenly, in whole vectors.
struct Panels {
  int64_t n, lanes, vectors, count;
  Panels(int64_t n, int64_t lanes, int64_t perPanel)
      : n(n), lanes(lanes), vectors(divideUp(n, lanes)),
        count(divideUp(vectors, perPanel)) {}
  int64_t start(int64_t p) const {
    const int64_t each = vectors / count, more = vectors % count;
    return std::min(n, (p * each + std::min(p, more)) * lanes);
  }
  int64_t columns(int64_t p) const { return start(p + 1) - start(p); }
  /// In whole vectors.
  int64_t width(int64_t p) const { return divideUp(columns(p), lanes) * lanes; }
};

template <typename T> class Share {
public:
  Share(const Gemm<T> &g, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
      : g(g), u(microKernels<T>()), m0(m0), m1(m1), n0(n0), n1(n1),
        depth(depthOf(g)) {}

  void run() {
    const int64_t resident = residentLines();
    const int64_t columns = std::min(resident + 72, kMostColumns);
    // What packing costs when A stays and when B stays.
    int64_t ld;
    const double weight = g.a.inPlace(m0, 0, ld) ? 0.25 : 1; // only read again
    const double m = double(m1 - m0) * weight, n = double(n1 - n0);
    if (m + n * double(divideUp(m1 - m0, resident)) <
        n + m * double(divideUp(n1 - n0, columns)))
      forEachBlock(m0, m1, u.rows, resident,
                   [&](int64_t r0, int64_t r1) { keepRows(r0, r1); });
    else
      forEachBlock(n0, n1, u.columns, columns,
                   [&](int64_t j0, int64_t j1) { keepColumns(j0, j1); });
  }

private:
  /// Cuts [lo, hi) into blocks of at most `limit`, equal but for whole tiles.
  template <typename Body>
  static void forEachBlock(int64_t lo, int64_t hi, int64_t tile, int64_t limit,
                           const Body &body) {
    const int64_t blocks = divideUp(hi - lo, limit);
    const int64_t tiles = divideUp(hi - lo, tile);
    for (int64_t i = 0; i < blocks; ++i)
      body(lo + tiles * i / blocks * tile,
           std::min(hi, lo + tiles * (i + 1) / blocks * tile));
  }

  /// Calls body(k0, kc) for the blocks of k; once, with kc = 0, for k = 0.
  template <typename Body> void forEachDepth(const Body &body) const {
    int64_t k0 = 0;
    do {
      const int64_t end =
          g.period ? std::min(g.k, (k0 / g.period + 1) * g.period) : g.k;
      const int64_t kc = std::min(depth, end - k0);
      body(k0, kc);
      k0 += kc;
    } while (k0 < g.k);
  }

  /// Rows of A ready for the tiles: packed (lda 0) or where they are.
  struct Band {
    const Part<T> *a;
    int64_t lda, r0, r1, panelStep;
  };
  Band bandOf(T *room, int64_t r0, int64_t r1, int64_t k0, int64_t kc) {
    int64_t ld = 0;
    if (const Part<T> *a = g.a.inPlace(r0, k0, ld))
      return {a, ld, r0, r1, u.rows * ld};
    g.a.packBand(room, r0, r1, k0, kc);
    return {reinterpret_cast<const Part<T> *>(room), 0, r0, r1,
            u.rows * kc * kParts<T>};
  }

  /// Columns of B ready for the tiles: packed or where they are.
  struct Panel {
    const T *b;
    int64_t stride, first, count;
  };
  Panel panelOf(T *room, const Panels &panels, int64_t p, int64_t base,
                int64_t k0, int64_t kc) {
    const int64_t first = base + panels.start(p), count = panels.columns(p);
    const int64_t width = panels.width(p);
    int64_t stride = 0;
    if (const T *b = g.b.panelInPlace(first, count, width, k0, stride))
      return {b, stride, first, count};
    g.b.pack(room, width, first, count, k0, kc);
    return {room, width, first, count};
  }

  void keepRows(int64_t r0, int64_t r1) {
    const Panels panels(n1 - n0, u.lanes, u.vectors);
    T *a = workspace().template packed<T>();
    T *b = a + divideUp(r1 - r0, u.rows) * u.rows * depth;
    forEachDepth([&](int64_t k0, int64_t kc) {
      const Band band = bandOf(a, r0, r1, k0, kc);
      for (int64_t p = 0; p < panels.count; ++p) {
        const Panel panel = panelOf(b, panels, p, n0, k0, kc);
        tiles(band, panel, k0, kc, [&](int64_t part, int64_t parts) {
          if (p + 1 < panels.count) // meanwhile ask for the next panel
            g.b.prefetch(n0 + panels.start(p + 1), panels.columns(p + 1), k0,
                         kc, part, parts);
        });
      }
    });
  }

  void keepColumns(int64_t j0, int64_t j1) {
    const Panels panels(j1 - j0, u.lanes, u.vectors);
    T *b = workspace().template packed<T>();
    T *a = b + panels.vectors * u.lanes * depth;
    forEachDepth([&](int64_t k0, int64_t kc) {
      Panel ready[kMaxPanels];
      for (int64_t p = 0; p < panels.count; ++p)
        ready[p] = panelOf(b + panels.start(p) * kc, panels, p, j0, k0, kc);
      for (int64_t r0 = m0; r0 < m1; r0 += kBand) {
        const int64_t r1 = std::min(r0 + kBand, m1);
        const Band band = bandOf(a, r0, r1, k0, kc);
        for (int64_t p = 0; p < panels.count; ++p) {
          if (r1 < m1) // meanwhile ask for the next band
            g.a.prefetch(r1, std::min(kBand, m1 - r1), k0, kc, p, panels.count);
          tiles(band, ready[p], k0, kc, [](int64_t, int64_t) {});
        }
      }
    });
  }

  /// The tiles of a band and a panel; meanwhile(i, n) comes before tile i of n.
  template <typename Meanwhile>
  void tiles(const Band &band, const Panel &panel, int64_t k0, int64_t kc,
             const Meanwhile &meanwhile) {
    const int64_t count = divideUp(band.r1 - band.r0, u.rows);
    const bool add = g.add || k0 > 0;
    int64_t ld = 0;
    Sum<T> *c = g.c.inPlace(band.r0, panel.first, panel.count, ld);
    for (int64_t i = 0; i < count; ++i) {
      meanwhile(i, count);
      const int64_t row = i * u.rows;
      const int64_t m = std::min<int64_t>(u.rows, band.r1 - band.r0 - row);
      const Part<T> *a = band.a + i * band.panelStep;
      if (c)
        u.tile(m, panel.count, kc, a, band.lda, panel.b, panel.stride,
               c + row * ld, ld, add);
      else
        aside(band.r0 + row, m, kc, a, band.lda, panel, add);
    }
  }

  /// A tile whose result is not one matrix in memory.
  void aside(int64_t row, int64_t m, int64_t kc, const Part<T> *a, int64_t lda,
             const Panel &p, bool add) {
    Sum<T> *result = workspace().template tile<Sum<T>>();
    u.tile(m, p.count, kc, a, lda, p.b, p.stride, result, u.columns, false);
    g.c.put(row, m, p.first, p.count, result, u.columns, add);
  }

  const Gemm<T> &g;
  const MicroKernels<T> &u;
  const int64_t m0, m1, n0, n1, depth;
};

/// How many threads share the rows, the rest sharing the columns: the cheapest
/// of all factorizations, in multiply-adds of the busiest thread. Packing an
/// element costs about as much as three.
template <typename T> int64_t rowThreads(const Gemm<T> &g, int64_t threads) {
  const MicroKernels<T> &u = microKernels<T>();
  const int64_t tm = divideUp(g.m, u.rows), tn = divideUp(g.n, u.columns);
  int64_t best = 1;
  double least = 0;
  for (int64_t r = 1; r <= threads; ++r) {
    if (threads % r)
      continue;
    const double rows = double(divideUp(tm, r) * u.rows);
    const double columns = double(divideUp(tn, threads / r) * u.columns);
    const double cost = rows * columns + 3 * (rows + columns);
    if (r == 1 || cost < least) {
      best = r;
      least = cost;
    }
  }
  return best;
}

} // namespace

template <typename T>
void Gemm<T>::share(int64_t m0, int64_t m1, int64_t n0, int64_t n1) const {
  if (m0 < m1 && n0 < n1 && (k > 0 || !add))
    Share<T>(*this, m0, m1, n0, n1).run();
}

template <typename T> void Gemm<T>::run() const {
  const MicroKernels<T> &u = microKernels<T>();
  const int64_t threads = pipec_threads();
  if (threads == 1 ||
      double(m) * double(n) * double(k + 1) < 65536 * double(leastShared()))
    return share(0, m, 0, n);
  const int64_t tm = divideUp(m, u.rows), tn = divideUp(n, u.columns);
  const int64_t rows = rowThreads(*this, threads), columns = threads / rows;
  parallelFor(threads, 1, [&](int64_t t) {
    const int64_t r = t / columns, c = t % columns;
    share(tm * r / rows * u.rows, std::min(m, tm * (r + 1) / rows * u.rows),
          tn * c / columns * u.columns,
          std::min(n, tn * (c + 1) / columns * u.columns));
  });
}

int64_t threadWorkspaceBytes() {
  return kBlockBytes + kTileBytes + kScratchBytes;
}

template <typename T> T *threadScratch() {
  return workspace().template scratch<T>();
}

template struct Gemm<float>;
template struct Gemm<double>;
template struct Gemm<Pair>;
template float *threadScratch<float>();
template double *threadScratch<double>();

} // namespace pipec::cpu

extern "C" void pipec_prepare_kernels(void) {
  pipec::cpu::onEveryThread([] { pipec::cpu::workspace(); });
}

extern "C" int64_t pipec_workspace_bytes(void) {
  return pipec::cpu::threadWorkspaceBytes();
}
