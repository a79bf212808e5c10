//===- PlanJson.cpp - plan.json: reading and writing ----------------------===//
//
// The format is stated once: `fields(io, value)` lists the keys of a struct in
// the order they are written; the reader and the writer both walk that list.
//
//===----------------------------------------------------------------------===//
#include "runtime/program/Plan.h"
#include "support/Failure.h"
#include "support/ParseJson.h"
#include "support/ReadFile.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace pipec::plan {
namespace {

using Json = nlohmann::ordered_json;

template <class IO> void fields(IO &io, File &f) {
  io("relative", f.relative), io("absolute", f.absolute);
  io("sha256", f.sha256), io("bytes", f.bytes);
}
template <class IO> void fields(IO &io, Source &s) {
  io("file", s.file), io("offset", s.offset), io("length", s.length);
}
template <class IO> void fields(IO &io, Copy &c) {
  io("name", c.name), io("transposed", c.transposed);
  io("repeats", c.repeats);
}
template <class IO> void fields(IO &io, Split &s) {
  io("of", s.of), io("node", s.node), io("input", s.input);
}
template <class IO> void fields(IO &io, Weight &w) {
  io("name", w.name), io("dtype", w.dtype), io("role", w.role);
  io("shape", w.shape), io("bytes", w.bytes);
  io("source", w.source), io("exported", w.exported);
  io("split", w.split), io("copies", w.copies);
}
template <class IO> void fields(IO &io, Input &i) {
  io("name", i.name), io("dtype", i.dtype), io("shape", i.shape);
  io("bytes", i.bytes), io("batch_axis", i.batch_axis);
  io("upper", i.upper), io("lower", i.lower), io("ignored", i.ignored);
}
template <class IO> void fields(IO &io, Output &o) {
  io("name", o.name), io("dtype", o.dtype), io("shape", o.shape);
  io("bytes", o.bytes), io("batch_axis", o.batch_axis);
  io("stage", o.stage), io("offset", o.offset);
}
template <class IO> void fields(IO &io, StageInput &i) {
  io("input", i.input), io("offset", i.offset);
}
template <class IO> void fields(IO &io, StageWeight &w) {
  io("weight", w.weight), io("region", w.region), io("offset", w.offset);
  io("gradients", w.gradients), io("optimizer", w.optimizer);
}
template <class IO> void fields(IO &io, Region &r) {
  io("bytes", r.bytes), io("slots", r.slots);
}
template <class IO> void fields(IO &io, Rounded &r) {
  io("offset", r.offset), io("rows", r.rows), io("row", r.row);
  io("to", r.to), io("pitch", r.pitch);
}
template <class IO> void fields(IO &io, Cost &c) {
  io("forward_s", c.forward_s);
  io("backward_input_s", c.backward_input_s);
  io("backward_weight_s", c.backward_weight_s);
}
template <class IO> void fields(IO &io, Stage &s) {
  io("id", s.id), io("ranks", s.ranks), io("library", s.library);
  io("sha256", s.sha256);
  io("first_node", s.first_node), io("last_node", s.last_node);
  io("first_name", s.first_name), io("last_name", s.last_name);
  io("parameters", s.parameters), io("cost", s.cost);
  io("split_backward", s.split_backward), io("tracks", s.tracks);
  io("computes_loss", s.computes_loss), io("recompute", s.recompute);
  io("versions", s.versions), io("warmup", s.warmup);
  io("regions", s.regions), io.list("rounded", s.rounded);
  io("inputs", s.inputs), io("weights", s.weights);
}
template <class IO> void fields(IO &io, Edge &e) {
  io("id", e.id), io("value", e.value), io("backward", e.backward);
  io("bytes", e.bytes);
  io("from_stage", e.from_stage), io("from_region", e.from_region);
  io("from_offset", e.from_offset);
  io("to_stage", e.to_stage), io("to_region", e.to_region);
  io("to_offset", e.to_offset);
}
template <class IO> void fields(IO &io, Action &a) {
  io("kind", a.kind), io("stage", a.stage), io("microbatch", a.microbatch);
  io("slots", a.slots);
}
template <class IO> void fields(IO &io, Program &p) {
  io("kind", p.kind), io("actions", p.actions);
}
template <class IO> void fields(IO &io, Rank &r) {
  io("rank", r.rank), io("host", r.host), io("device", r.device);
  io("stages", r.stages), io("peak_bytes", r.peak_bytes);
  io("weights_bytes", r.weights_bytes);
  io("gradients_bytes", r.gradients_bytes);
  io("optimizer_bytes", r.optimizer_bytes);
  io("stash_bytes", r.stash_bytes), io("workspace_bytes", r.workspace_bytes);
  io("other_bytes", r.other_bytes), io("program", r.program);
}
template <class IO> void fields(IO &io, Strategy &s) {
  io("name", s.name), io("schedule", s.schedule), io("versions", s.versions);
  io("update", s.update), io("synchronous", s.synchronous);
  io("post_validation", s.post_validation);
  io("slices", s.slices);
}
template <class IO> void fields(IO &io, Optimizer &o) {
  io("kind", o.kind), io("options", o.options);
}
template <class IO> void fields(IO &io, Training &t) {
  io("loss", t.loss), io("loss_options", t.loss_options);
  io("optimizer", t.optimizer), io("microbatches", t.microbatches);
  io("microbatch_size", t.microbatch_size), io("clip_norm", t.clip_norm);
  io("precision", t.precision);
}
template <class IO> void fields(IO &io, Predicted &p) {
  io("step_s", p.step_s), io("samples_per_s", p.samples_per_s);
  io("bubble", p.bubble), io("communication_bytes", p.communication_bytes);
  io("bottleneck", p.bottleneck), io("second", p.second);
}
template <class IO> void fields(IO &io, BaselineRow &b) {
  io("name", b.name), io("fits", b.fits), io("step_s", b.step_s);
  io("samples_per_s", b.samples_per_s), io("note", b.note);
}
template <class IO> void fields(IO &io, Model &m) {
  io("path", m.path), io("sha256", m.sha256), io("opset", m.opset);
  io("inputs", m.inputs), io("outputs", m.outputs);
}
template <class IO> void fields(IO &io, Cluster &c) {
  io("kind", c.kind), io("device", c.device), io("servers", c.servers);
  io("devices_per_server", c.devices_per_server);
  io.list("levels", c.levels);
}
template <class IO> void fields(IO &io, Plan &p) {
  io("version", p.version), io("pipec_version", p.pipec_version);
  io("model", p.model), io("training", p.training), io("cluster", p.cluster);
  io("strategy", p.strategy), io("schedule", p.schedule);
  io("files", p.files), io("inputs", p.inputs), io("outputs", p.outputs);
  io("weights", p.weights);
  io("stages", p.stages), io("edges", p.edges), io("ranks", p.ranks);
  io("predicted", p.predicted), io("baselines", p.baselines);
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

template <class T>
concept Scalar = std::is_arithmetic_v<std::remove_const_t<T>> ||
                 std::is_same_v<std::remove_const_t<T>, std::string>;

struct Writer {
  Json object = Json::object();

  template <class T> void operator()(const char *key, T &value) {
    object[key] = write(value);
  }
  /// One that is left out where it is empty.
  template <class T> void list(const char *key, std::vector<T> &values) {
    if (!values.empty())
      object[key] = write(values);
  }
  template <Scalar T> static Json write(const T &value) { return value; }
  template <class A, class B> static Json write(std::pair<A, B> &pair) {
    return Json::array({write(pair.first), write(pair.second)});
  }
  template <class T> static Json write(std::vector<T> &values) {
    Json array = Json::array();
    for (T &value : values)
      array.push_back(write(value));
    return array;
  }
  template <class T> static Json write(std::map<std::string, T> &values) {
    Json object = Json::object();
    for (auto &[key, value] : values)
      object[key] = write(value);
    return object;
  }
  static Json write(RegionSlots &slots) {
    Json object = Json::object();
    for (auto [region, name] : kSlotted)
      if (slots.has(region))
        object[name] = slots.at(region);
    return object;
  }
  template <class T>
    requires(!Scalar<T>)
  static Json write(T &value) {
    Writer writer;
    fields(writer, value);
    return std::move(writer.object);
  }
};

/// What fits a line stays on it; the rest opens up, one element a line.
void print(const Json &json, size_t indent, std::string &out) {
  std::string line = json.dump();
  if (line.size() + indent <= 100 || !json.is_structured()) {
    out += line;
    return;
  }
  const std::string margin(indent + 1, ' ');
  out += json.is_object() ? "{" : "[";
  bool first = true;
  for (auto item = json.begin(); item != json.end(); ++item) {
    out += first ? "\n" : ",\n";
    first = false;
    out += margin;
    if (json.is_object())
      out += Json(item.key()).dump() + ": ";
    print(*item, indent + 1, out);
  }
  out += "\n" + std::string(indent, ' ') + (json.is_object() ? "}" : "]");
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

struct Reader {
  const Json &object;
  const std::string path;

  [[noreturn]] static void fail(const std::string &path,
                                const std::string &what) {
    throw Failure(Exit::BadPlan, "plan.json: " + path + " " + what +
                                     "; compile the model again");
  }

  template <class T> void operator()(const char *key, T &value) {
    const std::string name = path.empty() ? key : path + "." + key;
    auto found = object.find(key);
    if (found == object.end())
      fail(name, "is missing");
    read(*found, name, value);
  }
  template <class T> void list(const char *key, std::vector<T> &values) {
    if (object.contains(key))
      (*this)(key, values);
  }
  static void read(const Json &json, const std::string &path, bool &value) {
    if (!json.is_boolean())
      fail(path, "must be true or false");
    value = json.get<bool>();
  }
  static void read(const Json &json, const std::string &path, int64_t &value) {
    if (!json.is_number_integer() ||
        (json.is_number_unsigned() &&
         json.get<uint64_t>() > uint64_t(std::numeric_limits<int64_t>::max())))
      fail(path, "must be an integer of 64 bits");
    value = json.get<int64_t>();
  }
  static void read(const Json &json, const std::string &path, int &value) {
    int64_t wide = 0;
    read(json, path, wide);
    if (wide < std::numeric_limits<int>::min() ||
        wide > std::numeric_limits<int>::max())
      fail(path, "must be an integer of 32 bits");
    value = static_cast<int>(wide);
  }
  static void read(const Json &json, const std::string &path, double &value) {
    if (!json.is_number())
      fail(path, "must be a number");
    value = json.get<double>();
  }
  static void read(const Json &json, const std::string &path,
                   std::string &value) {
    if (!json.is_string())
      fail(path, "must be a string");
    value = json.get<std::string>();
  }
  template <class A, class B>
  static void read(const Json &json, const std::string &path,
                   std::pair<A, B> &pair) {
    if (!json.is_array() || json.size() != 2)
      fail(path, "must be a pair");
    read(json[0], path + "[0]", pair.first);
    read(json[1], path + "[1]", pair.second);
  }
  template <class T>
  static void read(const Json &json, const std::string &path,
                   std::vector<T> &values) {
    if (!json.is_array())
      fail(path, "must be an array");
    values.resize(json.size());
    for (size_t i = 0; i < values.size(); ++i)
      read(json[i], path + "[" + std::to_string(i) + "]", values[i]);
  }
  template <class T>
  static void read(const Json &json, const std::string &path,
                   std::map<std::string, T> &values) {
    if (!json.is_object())
      fail(path, "must be an object");
    for (auto item = json.begin(); item != json.end(); ++item)
      read(*item, path + "." + item.key(), values[item.key()]);
  }
  static void read(const Json &json, const std::string &path,
                   RegionSlots &slots) {
    std::map<std::string, int> named;
    read(json, path, named);
    for (auto [region, name] : kSlotted)
      if (auto entry = named.extract(name)) {
        if (entry.mapped() < 0)
          fail(path + "." + name, "is negative");
        slots.set(region, entry.mapped());
      }
    if (!named.empty())
      fail(path + "." + named.begin()->first, "is not a region with slots");
  }
  template <class T>
  static void read(const Json &json, const std::string &path, T &value) {
    if (!json.is_object())
      fail(path, "must be an object");
    Reader reader{json, path};
    fields(reader, value);
  }
};

} // namespace

std::string toJson(const Plan &plan) {
  Plan copy = plan; // fields() takes its argument for reading and writing
  std::string text;
  try {
    print(Writer::write(copy), 0, text);
  } catch (const Json::exception &) {
    throw Failure(Exit::BadModel,
                  "the model's path, or a name in it, is not valid UTF-8, "
                  "which plan.json is; give it another name");
  }
  return text + "\n";
}

Plan readPlan(const std::string &directory) {
  const std::string path = directory + "/plan.json";
  const std::string text =
      readFile(path, "the plan", "give the folder that pipec wrote");
  Json json;
  try {
    json = parseJson(text, path, Exit::BadPlan).root;
  } catch (const Failure &failure) {
    throw Failure(failure.code,
                  failure.what() + std::string("; compile again"));
  }
  if (!json.is_object())
    throw Failure(Exit::BadPlan, path + ": must be a JSON object");
  int version = 0;
  Reader{json, ""}("version", version);
  if (version != kPlanVersion)
    throw Failure(Exit::BadPlan, path + ": version " + std::to_string(version) +
                                     ", known here is version " +
                                     std::to_string(kPlanVersion) +
                                     "; compile again");
  Plan plan;
  Reader reader{json, ""};
  fields(reader, plan);
  checkPlan(plan);
  return plan;
}

} // namespace pipec::plan
