//===- PlanMemory.cpp - regions and offsets of what outlives a task -------===//
#include "dialects/nn/EvenRows.h"
#include "dialects/nn/NN.h"
#include "dialects/pipe/Pipe.h"
#include "passes/Graph.h"
#include "passes/Passes.h"

#include "llvm/ADT/MapVector.h"

#include <set>

namespace pipec {
#define GEN_PASS_DEF_PLANMEMORY
#include "passes/Passes.h.inc"
} // namespace pipec

using namespace mlir;
using namespace pipec;
using namespace pipec::nn;

namespace {

constexpr int64_t kAlignment = 64;
int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Where a tensor is, and how far the region is filled.
struct Place {
  StringRef region;
  int64_t offset = -1;
  int64_t pitch = 0; ///< of rows that are padded
};
struct Edge {
  int64_t id = 0, bytes = 0, from = 0, to = 0;
  bool backward = false;
  SmallVector<std::string> values;
  Place source, target;
};

/// Weights with rounded copies: `rows` of `row` numbers, one behind the other
/// from `offset` on, and from `to` on with `pitch` numbers from row to row.
struct Rounded {
  int64_t offset, rows, row, to, pitch;
};

/// The task's name decides which regions its messages use.
bool inBackward(Operation *op) {
  auto task = op->getParentOfType<func::FuncOp>();
  return task->getAttrOfType<StringAttr>(pipe::kTaskAttr).getValue() !=
         "forward";
}

int64_t idOf(ModuleOp stage) {
  return stage->getAttrOfType<IntegerAttr>(pipe::kStageAttr).getInt();
}

class StageMemory {
public:
  /// `family`: the stage and those of other pieces of the sequence that use its
  /// weights. `holder`: the memory of the stage whose weights this one uses.
  /// `evenRows`: what products read is kept with rows that GPUs like.
  StageMemory(ModuleOp stage, std::map<int64_t, Edge> &edges,
              ArrayRef<ModuleOp> family, const StageMemory *holder,
              bool evenRows)
      : stage(stage), edges(edges), family(family), b(stage.getContext()),
        id(idOf(stage)), holdsWeights(!holder), evenRows(evenRows) {
    if (holder)
      places = holder->places, uses = holder->uses, copies = holder->copies,
      rounded = holder->rounded;
  }

  void run() {
    if (holdsWeights) {
      placeParameters();
      placeAccumulators();
    }
    SmallVector<Operation *> ops;
    stage.walk([&](Operation *op) {
      ops.push_back(op);
      if (auto unstash = dyn_cast<pipe::UnstashOp>(op))
        unstashed[{unstash.getKind(), unstash.getSlot()}].push_back(unstash);
    });
    placeRecvs();
    // Stashes first: a tensor that is kept is sent from where it is kept.
    for (pipe::StashOp stash : byReceivers<pipe::StashOp>())
      placeStash(stash);
    for (pipe::SendOp send : byReceivers<pipe::SendOp>())
      edges[send.getEdge()].source = placeSend(send);
    for (Operation *op : ops)
      rewrite(op);
    writeAttributes();
  }

private:
  Place take(StringRef region, int64_t bytes) {
    int64_t &filled = sizes[region];
    Place place{region, filled};
    filled += aligned(bytes);
    return place;
  }

  //===--------------------------------------------------------------------===//
  // Parameters: trained ones, their gradients and optimizer states share
  // offsets
  //===--------------------------------------------------------------------===//

  void placeParameters() {
    const llvm::StringMap<int64_t> pitches = pitchesOfCopies();
    for (auto parameter : stage.getOps<ParameterOp>()) {
      StringRef role = parameter.getRole();
      StringRef region = role == "weight"  ? "weights"
                         : role == "state" ? "state"
                                           : "constants";
      if (!pitches.contains(parameter.getSymName()))
        places[parameter.getSymName()] =
            take(region, byteSize(parameter.getType()));
    }
    placeRounded(pitches);
    sizes["gradients"] = sizes.lookup("weights");
    placeCopies();
  }

  /// Of the weights that tasks read rounded: elements from row to row of their
  /// copies, 0 for dense ones.
  llvm::StringMap<int64_t> pitchesOfCopies() {
    llvm::StringMap<int64_t> pitches;
    for (ModuleOp member : family)
      member.walk([&](WeightOp op) {
        if (!tensorType(op.getY()).getElementType().isBF16())
          return;
        const int64_t pitch =
            evenRows && isMatrixOfProducts(op) ? evenPitch(op.getY()) : 0;
        auto [known, isNew] = pitches.insert({op.getParameter(), pitch});
        if (!isNew && known->second != pitch)
          known->second = 0;
      });
    return pitches;
  }

  /// Whether rows may have gaps for all that read the weight.
  static bool isMatrixOfProducts(WeightOp op) {
    return tensorType(op.getY()).getRank() == 2 &&
           llvm::all_of(op->getUsers(), [](Operation *user) {
             return isa<MatmulOp>(user) ||
                    (isa<TransposeOp>(user) &&
                     llvm::all_of(user->getUsers(), llvm::IsaPred<MatmulOp>));
           });
  }

  /// Behind other weights, so that gradients of those, which the last backward
  /// task completes, are at one end. Where copies lie side by side at half of
  /// their weights' offsets those have whole lines, too.
  void placeRounded(const llvm::StringMap<int64_t> &pitches) {
    if (pitches.empty())
      return;
    constexpr int64_t kWhole = 2 * kAlignment;
    int64_t &filled = sizes["weights"];
    filled = llvm::alignTo(filled, kWhole);
    const int64_t begin = filled;
    SmallVector<std::pair<ParameterOp, int64_t>> padded;
    for (auto parameter : stage.getOps<ParameterOp>()) {
      auto found = pitches.find(parameter.getSymName());
      if (found == pitches.end())
        continue;
      if (found->second) {
        padded.push_back({parameter, found->second});
        continue;
      }
      const Place place =
          take("weights", llvm::alignTo(byteSize(parameter.getType()), kWhole));
      places[parameter.getSymName()] = place;
      copies[parameter.getSymName()] = {0, (place.offset - begin) / 2};
    }
    if (const int64_t dense = (filled - begin) / 4)
      rounded.push_back({begin, 1, dense, 0, dense});
    for (auto &[parameter, pitch] : padded) {
      ArrayRef<int64_t> shape = parameter.getTensorType().getShape();
      const Place place = take("weights", byteSize(parameter.getType()));
      places[parameter.getSymName()] = place;
      copies[parameter.getSymName()] = {rounded.size(), 0};
      rounded.push_back({place.offset, shape[0], shape[1], 0, pitch});
    }
  }

  /// Behind all weights.
  void placeCopies() {
    for (Rounded &piece : rounded)
      piece.to = take("weights", piece.rows * piece.pitch * 2).offset;
  }

  Place placeOf(WeightOp op) {
    auto parameter = SymbolTable::lookupNearestSymbolFrom<ParameterOp>(
        op, op.getParameterAttr());
    if (op.getY().getType() == parameter.getType())
      return places[op.getParameter()];
    const Copy &copy = copies[op.getParameter()];
    const Rounded &piece = rounded[copy.piece];
    return {"weights", piece.to + copy.offset,
            piece.pitch == piece.row ? 0 : piece.pitch};
  }

  /// The first use of a weight accumulates at the weight's own offset, further
  /// ones behind all weights.
  void placeAccumulators() {
    for (ModuleOp member : family)
      member.walk([&](pipe::AccumulateOp op) {
        auto &list = uses[op.getParameter().str()];
        const auto use = static_cast<int64_t>(op.getUse());
        if (llvm::none_of(list,
                          [&](auto &known) { return known.first == use; }))
          list.push_back({use, Place()});
      });
    for (auto parameter : stage.getOps<ParameterOp>()) {
      auto it = uses.find(parameter.getSymName().str());
      if (it == uses.end())
        continue;
      llvm::sort(it->second,
                 [](auto &x, auto &y) { return x.first < y.first; });
      for (auto [i, use] : llvm::enumerate(it->second))
        use.second =
            i == 0 ? Place{"gradients", places[parameter.getSymName()].offset}
                   : take("gradients", byteSize(parameter.getType()));
    }
  }

  Place accumulator(pipe::AccumulateOp op) {
    for (auto &[use, place] : uses[op.getParameter().str()])
      if (use == static_cast<int64_t>(op.getUse()))
        return place;
    llvm_unreachable("every use was placed");
  }

  //===--------------------------------------------------------------------===//
  // Slots
  //===--------------------------------------------------------------------===//

  void placeStash(pipe::StashOp op) {
    // What is sent from here, too, stays dense: others read it.
    int64_t pitch = evenRows ? evenPitch(op.getX()) : 0;
    for (pipe::UnstashOp reader : unstashed[{op.getKind(), op.getSlot()}])
      if (evenRows && !pitch)
        pitch = evenPitch(reader.getY());
    if (isSent(op.getX()))
      pitch = 0;
    Place place =
        take(op.getKind(), pipe::placeBytes(op.getX().getType(), pitch));
    place.pitch = pitch;
    stashPlaces[{op.getKind(), op.getSlot()}] = place;
    valuePlaces[op.getX()] = place;
  }

  static bool isSent(Value x) {
    return llvm::any_of(
        x.getUsers(), [](Operation *user) { return isa<pipe::SendOp>(user); });
  }

  Place placeSend(pipe::SendOp op) {
    auto it = valuePlaces.find(op.getX());
    if (it != valuePlaces.end() && it->second.region != "wstash")
      return it->second;
    Place place = take(inBackward(op) ? "grad_out" : "out",
                       byteSize(op.getX().getType()));
    valuePlaces[op.getX()] = place;
    needsStore.insert({place.region, place.offset});
    return place;
  }

  /// What goes to the same stages is to lie side by side at both ends: it then
  /// travels as one message (`joined`). Of the two the later stage to be placed
  /// follows the order of the other.
  template <typename Op> SmallVector<Op> byReceivers() {
    using Key = std::tuple<std::vector<std::pair<uint64_t, int64_t>>, size_t>;
    SmallVector<std::pair<Key, Op>> keyed;
    stage.walk([&](Op op) {
      std::vector<std::pair<uint64_t, int64_t>> receivers;
      for (Operation *user : op.getX().getUsers())
        if (auto send = dyn_cast<pipe::SendOp>(user)) {
          auto known = edges.find(send.getEdge());
          receivers.push_back(
              {send.getTo(),
               known == edges.end() ? -1 : known->second.target.offset});
        }
      llvm::sort(receivers);
      keyed.push_back({{std::move(receivers), keyed.size()}, op});
    });
    llvm::sort(keyed, [](auto &x, auto &y) { return x.first < y.first; });
    return llvm::map_to_vector(keyed, [](auto &of) { return of.second; });
  }

  void placeRecvs() {
    using Key = std::tuple<uint64_t, StringRef, int64_t, size_t>;
    SmallVector<std::pair<Key, pipe::RecvOp>> keyed;
    stage.walk([&](pipe::RecvOp op) {
      const Place &source = edges[op.getEdge()].source;
      keyed.push_back(
          {{op.getFrom(), source.region, source.offset, keyed.size()}, op});
    });
    llvm::sort(keyed, [](auto &x, auto &y) { return x.first < y.first; });
    for (auto &[key, op] : keyed)
      placeRecv(op);
  }

  void placeRecv(pipe::RecvOp op) {
    Edge &edge = edges[op.getEdge()];
    if (edge.target.offset >= 0) // another task of the stage reads it, too
      return;
    // A forward edge read by the backward task alone still arrives before it.
    edge.backward = op.getFrom() > static_cast<uint64_t>(id);
    edge.target =
        take(edge.backward ? "grad_in" : "in", byteSize(op.getY().getType()));
  }

  Place placeInput(StringRef name, Type type) {
    auto [it, isNew] = inputs.insert({name, Place()});
    if (isNew)
      it->second = take("in", byteSize(type));
    return it->second;
  }

  //===--------------------------------------------------------------------===//
  // Rewriting
  //===--------------------------------------------------------------------===//

  void load(Operation *op, Place place) {
    OpBuilder at(op);
    Value y = pipe::LoadOp::create(at, op->getLoc(), op->getResult(0).getType(),
                                   place.region, place.offset, place.pitch);
    op->getResult(0).replaceAllUsesWith(y);
    op->erase();
  }
  void store(Operation *op, Value x, Place place, bool accumulate = false) {
    OpBuilder at(op);
    pipe::StoreOp::create(at, op->getLoc(), x, place.region, place.offset,
                          accumulate, place.pitch);
    op->erase();
  }

  void rewrite(Operation *op) {
    if (auto weight = dyn_cast<WeightOp>(op))
      load(op, placeOf(weight));
    else if (auto input = dyn_cast<pipe::InputOp>(op))
      load(op, placeInput(input.getInput(), input.getY().getType()));
    else if (auto recv = dyn_cast<pipe::RecvOp>(op))
      load(op, edges[recv.getEdge()].target);
    else if (auto unstash = dyn_cast<pipe::UnstashOp>(op))
      load(op, stashPlaces.at({unstash.getKind(), unstash.getSlot()}));
    else if (auto stash = dyn_cast<pipe::StashOp>(op))
      store(op, stash.getX(),
            stashPlaces.at({stash.getKind(), stash.getSlot()}));
    else if (auto add = dyn_cast<pipe::AccumulateOp>(op))
      store(op, add.getGradient(), accumulator(add), true);
    else if (auto loss = dyn_cast<pipe::LossOp>(op))
      store(op, loss.getX(), {"loss", 0});
    else if (auto output = dyn_cast<pipe::OutputOp>(op))
      rewriteOutput(output);
    else if (auto track = dyn_cast<TrackOp>(op))
      rewriteTrack(track);
    else if (auto send = dyn_cast<pipe::SendOp>(op))
      rewriteSend(send);
    else if (auto counter = dyn_cast<CounterOp>(op))
      rewriteCounter(counter);
  }

  void rewriteCounter(CounterOp op) {
    OpBuilder at(op);
    op.replaceAllUsesWith(pipe::ScalarOp::create(at, op.getLoc(),
                                                 op.getY().getType(),
                                                 op.getName())
                              .getY());
    op.erase();
  }

  void rewriteSend(pipe::SendOp op) {
    Edge &edge = edges[op.getEdge()];
    edge.id = op.getEdge();
    edge.from = id;
    edge.to = op.getTo();
    edge.backward = edge.to < edge.from;
    edge.bytes = byteSize(op.getX().getType());
    edge.values = {op.getX().getDefiningOp()
                       ? nodeName(op.getX().getDefiningOp())
                       : "input"};
    if (needsStore.erase({edge.source.region, edge.source.offset}))
      store(op, op.getX(), edge.source);
    else
      op.erase();
  }

  void rewriteTrack(TrackOp op) {
    Place place = take("stats", byteSize(op.getX().getType()));
    trackers.push_back(b.getDictionaryAttr(
        {b.getNamedAttr("parameter", op.getParameterAttr()),
         b.getNamedAttr("offset", b.getI64IntegerAttr(place.offset)),
         b.getNamedAttr("momentum", op.getMomentumAttr())}));
    store(op, op.getX(), place);
  }

  void rewriteOutput(pipe::OutputOp op) {
    Place place = take("outputs", byteSize(op.getX().getType()));
    outputs.push_back(b.getDictionaryAttr(
        {b.getNamedAttr("output", op.getOutputAttr()),
         number("offset", place.offset),
         b.getNamedAttr("type", TypeAttr::get(op.getX().getType())),
         number("batch_axis", op.getBatchAxis())}));
    store(op, op.getX(), place);
  }

  //===--------------------------------------------------------------------===//
  // What the plan is made from
  //===--------------------------------------------------------------------===//

  NamedAttribute number(StringRef name, int64_t value) {
    return b.getNamedAttr(name, b.getI64IntegerAttr(value));
  }

  DictionaryAttr attributeOf(const Rounded &piece) {
    return b.getDictionaryAttr(
        {number("offset", piece.offset), number("rows", piece.rows),
         number("row", piece.row), number("to", piece.to),
         number("pitch", piece.pitch)});
  }

  void writeAttributes() {
    SmallVector<NamedAttribute> regions;
    for (StringRef name : pipe::regionNames())
      if (int64_t bytes = sizes.lookup(name))
        regions.push_back(number(name, bytes));
    stage->setAttr("pipe.regions", b.getDictionaryAttr(regions));
    SmallVector<Attribute> list;
    for (auto &[name, place] : inputs)
      list.push_back(
          b.getDictionaryAttr({b.getNamedAttr("input", b.getStringAttr(name)),
                               number("offset", place.offset)}));
    stage->setAttr("pipe.inputs", b.getArrayAttr(list));
    list.clear();
    for (auto parameter : stage.getOps<ParameterOp>()) {
      if (!holdsWeights)
        break;
      Place place = places[parameter.getSymName()];
      SmallVector<Attribute> accumulators;
      for (auto &[use, at] : uses[parameter.getSymName().str()])
        accumulators.push_back(b.getDenseI64ArrayAttr({use, at.offset}));
      list.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("parameter", b.getStringAttr(parameter.getSymName())),
           b.getNamedAttr("region", b.getStringAttr(place.region)),
           number("offset", place.offset),
           b.getNamedAttr("uses", b.getArrayAttr(accumulators))}));
    }
    stage->setAttr("pipe.weights", b.getArrayAttr(list));
    if (holdsWeights && !rounded.empty())
      stage->setAttr("pipe.rounded",
                     b.getArrayAttr(llvm::map_to_vector(
                         rounded, [&](const Rounded &piece) -> Attribute {
                           return attributeOf(piece);
                         })));
    stage->setAttr("pipe.trackers", b.getArrayAttr(trackers));
    stage->setAttr("pipe.outputs", b.getArrayAttr(outputs));
  }

  ModuleOp stage;
  std::map<int64_t, Edge> &edges;
  SmallVector<ModuleOp> family;
  Builder b;
  int64_t id;
  bool holdsWeights; ///< else another stage of this rank does
  bool evenRows;
  llvm::StringMap<int64_t> sizes;
  llvm::StringMap<Place> places;
  /// Of a weight that is read rounded: in which piece, and how far behind its
  /// beginning.
  struct Copy {
    size_t piece = 0;
    int64_t offset = 0;
  };
  llvm::StringMap<Copy> copies;
  SmallVector<Rounded> rounded;
  std::map<std::string, SmallVector<std::pair<int64_t, Place>>> uses;
  std::map<std::pair<StringRef, int64_t>, Place> stashPlaces;
  std::map<std::pair<StringRef, int64_t>, SmallVector<pipe::UnstashOp>>
      unstashed;
  llvm::DenseMap<Value, Place> valuePlaces;
  std::set<std::pair<StringRef, int64_t>> needsStore;
  llvm::MapVector<StringRef, Place> inputs;
  SmallVector<Attribute> trackers, outputs;
};

/// Edges between the same regions of the same stages whose tensors lie side by
/// side at both ends are one, which carries what lies between them as well.
std::vector<Edge> joined(const std::map<int64_t, Edge> &edges) {
  std::vector<Edge> sorted;
  for (const auto &[id, edge] : edges)
    sorted.push_back(edge);
  const auto ends = [](const Edge &e) {
    return std::tuple(e.from, e.to, e.source.region, e.target.region);
  };
  llvm::sort(sorted, [&](const Edge &x, const Edge &y) {
    return std::tuple(ends(x), x.source.offset, x.id) <
           std::tuple(ends(y), y.source.offset, y.id);
  });
  std::vector<Edge> result;
  for (const Edge &edge : sorted) {
    Edge *last = result.empty() ? nullptr : &result.back();
    if (last && ends(*last) == ends(edge) &&
        edge.source.offset == last->source.offset + aligned(last->bytes) &&
        edge.target.offset == last->target.offset + aligned(last->bytes)) {
      last->bytes = aligned(last->bytes) + edge.bytes;
      last->values.append(edge.values);
    } else {
      result.push_back(edge);
    }
  }
  llvm::sort(result, [](const Edge &x, const Edge &y) { return x.id < y.id; });
  return result;
}

struct PlanMemoryPass : public pipec::impl::PlanMemoryBase<PlanMemoryPass> {
  using PlanMemoryBase::PlanMemoryBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::map<int64_t, Edge> edges;
    SmallVector<ModuleOp> stages;
    for (auto stage : module.getOps<ModuleOp>())
      if (stage->hasAttr(pipe::kStageAttr))
        stages.push_back(stage);
    // Stage j * count + s is piece j of stage s.
    const size_t count = stages.size() / slicesOf(module);
    std::vector<std::unique_ptr<StageMemory>> memories;
    for (size_t i = 0; i < stages.size(); ++i) {
      SmallVector<ModuleOp> family;
      for (size_t s = i; s < stages.size(); s += count)
        family.push_back(stages[s]);
      memories.push_back(std::make_unique<StageMemory>(
          stages[i], edges, family,
          i < count ? nullptr : memories[i % count].get(),
          evenRows.getValue()));
      memories.back()->run();
    }
    writeEdges(module, edges);
  }

  void writeEdges(ModuleOp module, const std::map<int64_t, Edge> &edges) {
    Builder b(&getContext());
    auto number = [&](StringRef name, int64_t value) {
      return b.getNamedAttr(name, b.getI64IntegerAttr(value));
    };
    auto text = [&](StringRef name, StringRef value) {
      return b.getNamedAttr(name, b.getStringAttr(value));
    };
    SmallVector<Attribute> list;
    for (const Edge &edge : joined(edges))
      list.push_back(b.getDictionaryAttr(
          {number("id", edge.id), text("value", nameOf(edge.values)),
           b.getNamedAttr("backward", b.getBoolAttr(edge.backward)),
           number("bytes", edge.bytes), number("from", edge.from),
           text("from_region", edge.source.region),
           number("from_offset", edge.source.offset), number("to", edge.to),
           text("to_region", edge.target.region),
           number("to_offset", edge.target.offset)}));
    module->setAttr("pipe.edges", b.getArrayAttr(list));
    markSent(module, edges);
  }

  static std::string nameOf(ArrayRef<std::string> values) {
    return values.size() == 1 ? values.front()
                              : values.front() + " and " +
                                    std::to_string(values.size() - 1) + " more";
  }

  /// What is kept and sent, too: its elements stay in the order of its type.
  void markSent(ModuleOp module, const std::map<int64_t, Edge> &edges) {
    Builder b(&getContext());
    std::map<int64_t, SmallVector<Attribute>> sent; // by stage
    for (auto &[id, edge] : edges)
      if (edge.source.region == "stash" || edge.source.region == "wstash")
        sent[edge.from].push_back(b.getDictionaryAttr(
            {b.getNamedAttr("region", b.getStringAttr(edge.source.region)),
             b.getNamedAttr("offset",
                            b.getI64IntegerAttr(edge.source.offset))}));
    for (auto stage : module.getOps<ModuleOp>())
      if (auto number = stage->getAttrOfType<IntegerAttr>(pipe::kStageAttr))
        if (auto of = sent.find(number.getInt()); of != sent.end())
          stage->setAttr("pipe.sent", b.getArrayAttr(of->second));
  }
};

} // namespace
