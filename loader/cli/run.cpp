// `rlk-plugins run`: one operator on .npy files.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "loader/cli/execution.hpp"
#include "loader/cli/fit.hpp"
#include "loader/cli/npy.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"

namespace rlk::cli {
namespace {

using core::Dtype;

struct FileWord {
  size_t index = 0;  // of the argument in the declaration
  std::string file;
  std::optional<Dtype> dtype;
};

// "name=file.npy" or "name=file.npy:bf16".
FileWord parse_file_word(const core::OpDecl& decl, const std::string& word, bool input) {
  const char* option = input ? "--input" : "--output";
  const Assignment assignment = split_assignment(word, option);
  const int index = input ? find_input(decl, assignment.name) : find_output(decl, assignment.name);
  if (index < 0) {
    throw UsageError(fmt::format("{} has no {} '{}'{}", decl.name, input ? "input" : "output", assignment.name,
                                 suggestion(assignment.name, argument_names(decl, input, !input))));
  }
  FileWord out{static_cast<size_t>(index), assignment.value, std::nullopt};
  const size_t colon = out.file.rfind(':');
  Dtype dtype = Dtype::f32;
  if (colon != std::string::npos && core::dtype_from(std::string_view(out.file).substr(colon + 1), dtype)) {
    out.dtype = dtype;
    out.file.resize(colon);
  } else if (const size_t end = out.file.rfind(".npy:"); end != std::string::npos) {
    const std::string name = out.file.substr(end + 5);
    throw UsageError(fmt::format("{} {}: no dtype is called '{}'{}", option, word, name,
                                 suggestion(name, {"f32", "bf16", "f16", "f64", "i8", "i16", "i32", "i64", "u8", "u16",
                                                   "u32", "u64", "bool", "f8_e4m3fn", "f8_e5m2"})));
  }
  if (out.file.empty()) throw UsageError(fmt::format("{} {}: expected NAME=FILE.npy", option, word));
  return out;
}

std::vector<std::optional<FileWord>> parse_file_words(const core::OpDecl& decl, const std::vector<std::string>& words,
                                                      bool input) {
  std::vector<std::optional<FileWord>> files(input ? decl.inputs.size() : decl.outputs.size());
  for (const std::string& word : words) {
    FileWord file = parse_file_word(decl, word, input);
    std::optional<FileWord>& slot = files[file.index];
    if (slot) throw UsageError(fmt::format("--{} {}: given twice", input ? "input" : "output", word));
    slot = std::move(file);
  }
  return files;
}

// Where the results will go is known before anything is read or computed.
void require_places(const core::OpDecl& decl, const std::vector<std::optional<FileWord>>& outputs) {
  std::map<std::string, const char*> owners;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;
    const auto [owner, fresh] = owners.emplace(outputs[i]->file, decl.outputs[i].name);
    if (!fresh) {
      throw UsageError(fmt::format("{}: asked for by the outputs {} and {}; expected a file for each", outputs[i]->file,
                                   owner->second, decl.outputs[i].name));
    }
    require_place(outputs[i]->file);
  }
}

// A plugin may change the current folder: what the caller named is settled before any of its code runs.
std::string settled(const std::string& path) {
  std::error_code unknown;  // the current folder was removed
  const std::filesystem::path whole = std::filesystem::absolute(path, unknown);
  return unknown ? path : whole.string();
}

// An output may be asked for in a dtype that the operator itself can write; any other is cast from what it writes.
void prefer_dtypes(OpCall* call, const std::vector<std::optional<FileWord>>& files) {
  std::vector<std::byte> storage(call->decl->params_size);
  const TensorPointers inputs(call->inputs);
  for (size_t i = 0; i < files.size(); ++i) {
    if (!files[i] || !files[i]->dtype) continue;
    const Dtype inferred = call->outputs[i]->dtype;
    call->outputs[i]->dtype = *files[i]->dtype;
    core::BoundCall bound;
    const TensorPointers outputs(call->outputs);
    if (core::validate(*call->decl, call->params.data(), inputs.span(), outputs.span(), false, storage, bound,
                       nullptr) != RLK_OK)
      call->outputs[i]->dtype = inferred;
  }
}

void require_inputs(const OpCall& call) {
  const int form = form_of(*call.decl, call.params);
  std::string missing;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const core::ArgDecl& input = call.decl->inputs[i];
    if (!call.inputs[i] && !input.optional && (input.form < 0 || input.form == form))
      missing += std::string(" --input ") + input.name + "=FILE.npy";
  }
  if (!missing.empty()) throw UsageError(fmt::format("{} also needs{}", call.decl->name, missing));
}

int run_operator(const Arguments& arguments) {
  OpCall call;
  call.decl = &find_op(arguments.operand(0));
  call.params = parse_params(*call.decl, arguments.values("param"));
  const auto input_files = parse_file_words(*call.decl, arguments.values("input"), true);
  const auto output_files = parse_file_words(*call.decl, arguments.values("output"), false);
  const std::string pin = arguments.value("backend");
  const uint32_t numerics = parse_numerics(arguments.value("numerics"));
  require_places(*call.decl, output_files);
  std::vector<std::string> places;
  for (const auto& word : output_files) places.push_back(word ? settled(word->file) : "");

  Arrays inputs(call.decl->inputs.size());
  call.inputs.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!input_files[i]) continue;
    inputs[i] = read_npy(input_files[i]->file, input_files[i]->dtype);
    call.inputs[i] = TensorSpec(inputs[i]->dtype(), inputs[i]->shape());
  }
  require_inputs(call);
  const std::vector<std::string> notes = fit_shapes(&call, &inputs);
  uint64_t wanted = 0;
  for (size_t i = 0; i < output_files.size(); ++i) wanted |= output_files[i] ? uint64_t{1} << i : 0;
  try {
    infer(&call, wanted);
  } catch (const UsageError& error) {
    std::vector<std::string> files;
    for (const auto& word : input_files) files.push_back(word ? word->file : "");
    throw UsageError(error.what() + hints(call, files));
  }
  prefer_dtypes(&call, output_files);

  Session session;
  session.open_for(call, pin);
  Execution execution(&session, std::move(call), &inputs, pin, numerics);
  const auto begin = std::chrono::steady_clock::now();
  execution.enqueue();
  const std::string data_error = execution.finish();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  // Asked for afterwards: an implementation that failed in this call is switched off, and another one computed.
  const std::string where = chosen_of(session.explain_json(execution.call(), execution.options()));

  // Rows without an error are right even when another row has one: they are written, and the exit code tells.
  Arrays outputs = execution.outputs();
  Table table({"output", "shape", "dtype", "value", "ran on", "ms", "file"});
  nlohmann::ordered_json json = {
      {"schema", 1},
      {"op", execution.call().decl->name},
      {"ran_on", where},
      {"ms", ms},
      {"data_error", data_error.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(data_error)},
      {"notes", notes},
      {"outputs", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;
    Array& array = *outputs[i];
    if (output_files[i]) {
      if (output_files[i]->dtype && *output_files[i]->dtype != array.dtype())
        array = cast(array, *output_files[i]->dtype);
      write_npy(places[i], array);
    }
    const std::string file = output_files[i] ? output_files[i]->file : "";
    const char* name = execution.call().decl->outputs[i].name;
    char time[32];
    std::snprintf(time, sizeof(time), "%.3f", ms);
    // One number, a loss, is shown: the user need not open a file for it.
    const bool is_one = array.count() == 1;
    char value[40];
    std::snprintf(value, sizeof(value), "%.9g", is_one ? array.number(0) : 0.0);
    table.row({name, shape_text(array.shape()), core::name_of(array.dtype()), is_one ? value : "-", where, time,
               file.empty() ? Cell("not written") : Cell(file)});
    json["outputs"].push_back(
        {{"name", name}, {"shape", array.shape()}, {"dtype", core::name_of(array.dtype())}, {"file", file}});
    if (is_one) json["outputs"].back()["value"] = array.number(0);
    // Numbers with names, metrics, are shown too.
    const auto& elements = execution.call().decl->outputs[i].elements;
    std::string list;
    for (size_t k = 0; k < elements.size(); ++k) {
      std::snprintf(value, sizeof(value), "%.9g", array.number(static_cast<int64_t>(k)));
      list += (k > 0 ? ", " : "") + fmt::format("{} {}", elements[k], value);
      json["outputs"].back()["elements"][elements[k]] = array.number(static_cast<int64_t>(k));
    }
    if (!list.empty()) table.note(list);
  }
  if (arguments.json()) {
    std::fprintf(output(), "%s\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  } else {
    table.print();
    for (const std::string& note : notes) std::fprintf(output(), "%s\n", note.c_str());
  }
  if (!data_error.empty()) throw Failure(data_error);
  return kFine;
}

}  // namespace

Verb verb_run() {
  return {
      "run",
      "Runs one operator on .npy files.",
      "Files hold <f2 <f4 <f8 <i2 <i4 <i8 <u4 <u8 |i1 |u1 |b1, or <V2 for bf16, as numpy.save writes arrays of\n"
      "ml_dtypes.bfloat16. What NumPy has no word for is named, as in logits=x.npy:bf16: bf16 or u16 of <u2, bool of\n"
      "|b1, f8_e4m3fn or f8_e5m2 of |u1. Any other dtype behind a file's name casts: mask=m.npy:u8. Behind the first\n"
      "inputs that give a symbol its size, a size of 1 is repeated ([B, 1] serves [B, T]) or dropped ([B, 1] serves\n"
      "[B]), and a number without dimensions serves [1]. Optional outputs are computed only when asked for. The time\n"
      "is that of a first call, planning included; `bench` measures. Rows with a data error are NaN, the others are\n"
      "right.\n"
      "`rlk-plugins ops OP` lists what an operator takes.",
      "rlk-plugins run logp --input logits=logits.npy --input ids=ids.npy --output logp=logp.npy",
      {{"OP", true}},
      {{"input", "NAME=FILE[:D]", "an input", true},
       {"output", "NAME=FILE[:D]", "an output and where to write it", true},
       {"param", "K=V", "a parameter; enumerations by name", true},
       {"backend", "B[:IMPL]", "run there or fail, as cuda, cpu:fused or plugin/implementation"},
       {"numerics", "CLASS,...", "demand classes: accurate, deterministic, batch_invariant, portable"}},
      run_operator};
}

}  // namespace rlk::cli
