//===- Tying.cpp - copies that train as one with what they copy -----------===//
#include "compiler/onnx/Importer.h"
#include "compiler/onnx/Ties.h"

using namespace mlir;

namespace pipec::onnx {

/// A copy becomes what reads the other weight, and is written back on export.
void Importer::tieCopies(Scope &scope) {
  Builder b(&context);
  for (const Tie &tie : findTies(model, classes)) {
    const Initializer &copy = *initializers[tie.copy],
                      &of = *initializers[tie.of];
    const std::string relation =
        tie.transposed ? " transposed" : ", element for element";
    if (!options.tie) {
      note("'" + copy.data->name + "' is '" + of.data->name + "'" + relation +
           ": they train apart; --tie auto trains them as one");
      continue;
    }
    emitter->beginNode(NameLoc::get(b.getStringAttr(copy.data->name)),
                       copy.data->name);
    Val value = scope.values[of.data->name];
    if (tie.transposed)
      value = emitter->transpose(value, {1, 0});
    value = emitter->reshape(value, copy.data->dims);
    scope.values[copy.data->name] = value;
    classes[tie.copy].role = Role::Buffer;
    classes[tie.copy].reason = "tied to '" + of.data->name + "'";
    ties.push_back(b.getDictionaryAttr(
        {b.getNamedAttr("name", b.getStringAttr(copy.data->name)),
         b.getNamedAttr("of", b.getStringAttr(of.symbol)),
         b.getNamedAttr("transposed", b.getBoolAttr(tie.transposed)),
         b.getNamedAttr("repeats", b.getI64IntegerAttr(1))}));
  }
}

/// What an exporter repeated for every sample becomes one weight again.
void Importer::tieRepetitions(Scope &scope) {
  Builder b(&context);
  for (size_t i = 0; i < classes.size(); ++i) {
    Initializer &init = *initializers[i];
    const TensorData &whole = *init.data;
    const bool hasCopies = llvm::any_of(ties, [&](mlir::Attribute tie) {
      return cast<DictionaryAttr>(tie).getAs<StringAttr>("of") == init.symbol;
    });
    if (hasCopies || !isRepeated(model, whole, classes[i]))
      continue;
    const std::string times = std::to_string(whole.dims[0]);
    if (!options.tie) {
      note("'" + whole.name + "' repeats the same weights " + times +
           " times, for a batch that was fixed when the model was exported: "
           "each repetition trains apart; --tie auto trains them as one. Or "
           "export it with a symbolic batch");
      continue;
    }
    repeated.push_back(firstRepetition(whole));
    init.data = &repeated.back();
    emitter->beginNode(NameLoc::get(b.getStringAttr(whole.name)), whole.name);
    scope.values[whole.name] = emitter->broadcast(
        Val(initializers[i], tensorType(&context, *init.data)), whole.dims);
    classes[i].reason += ", " + times + " times";
    ties.push_back(b.getDictionaryAttr(
        {b.getNamedAttr("name", b.getStringAttr(whole.name)),
         b.getNamedAttr("of", b.getStringAttr(init.symbol)),
         b.getNamedAttr("transposed", b.getBoolAttr(false)),
         b.getNamedAttr("repeats", b.getI64IntegerAttr(whole.dims[0]))}));
  }
}

} // namespace pipec::onnx
