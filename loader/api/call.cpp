// rlk.h: operators.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/declaration/near_name.hpp"
#include "core/declaration/validate.hpp"
#include "loader/api/handles.hpp"

using rlk::core::failf;
using rlk::core::OpDecl;
using rlk::loader::declaration_of;
using rlk::loader::guarded;
using rlk::loader::guarded_call;

namespace rlk::loader {

rlk_status options_of(const rlk_call_options* given, core::CallOptions* out, rlk_choice** choice, rlk_error* error) {
  if (given == nullptr) return RLK_OK;
  constexpr uint32_t kSmallest = offsetof(rlk_call_options, pin);
  // Whole members alone: a part of a pointer would be taken for one.
  if (given->struct_size < kSmallest || given->struct_size % sizeof(void*) != 0) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "options.struct_size is %u; start from RLK_CALL_OPTIONS_INIT, which sets it to %zu",
                 given->struct_size, sizeof(rlk_call_options));
  }
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  std::memcpy(&options, given, std::min<size_t>(given->struct_size, sizeof(options)));
  out->numerics = options.numerics;
  out->pin = options.pin != nullptr ? options.pin : "";
  out->host_inputs = options.host_inputs;
  out->next = options.next;
  *choice = options.choice;
  if (options.choice != nullptr && options.choice->struct_size < sizeof(rlk_choice)) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "options.choice->struct_size is %u; start from RLK_CHOICE_INIT, which sets it to %zu",
                 options.choice->struct_size, sizeof(rlk_choice));
  }
  return RLK_OK;
}

std::string near_names(std::string_view name) {
  std::string near;
  for (const OpDecl& decl : core::declarations()) {
    const std::string_view candidate = decl.name;
    if (core::slips_between(name, candidate) <= 2 ||
        (!name.empty() && candidate.find(name) != std::string_view::npos)) {
      near += (near.empty() ? "" : ", ") + std::string(decl.name);
    }
  }
  return near.empty() ? fmt::format("rlk-plugins ops lists the {}", core::declarations().size())
                      : "did you mean " + near + "?";
}

}  // namespace rlk::loader

extern "C" {

rlk_status rlk_op_find(const char* name, const rlk_op** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(name);
  RLK_REQUIRE_ARGUMENT(out);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    const OpDecl* decl = rlk::core::find_declaration(name);
    if (decl == nullptr) {
      return failf(error, RLK_NOT_FOUND, "there is no operator '%s'; %s", name, rlk::loader::near_names(name).c_str());
    }
    *out = reinterpret_cast<const rlk_op*>(decl);
    return RLK_OK;
  });
}

rlk_status rlk_infer_outputs(const rlk_op* op, const void* params, const rlk_tensor* const* inputs, uint32_t n_inputs,
                             rlk_output_shape* const* outputs, uint32_t n_outputs, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(op);
  if (n_inputs != 0) RLK_REQUIRE_ARGUMENT(inputs);
  if (n_outputs != 0) RLK_REQUIRE_ARGUMENT(outputs);
  return guarded(error, [&]() -> rlk_status {
    const OpDecl& decl = *declaration_of(op);
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < n_outputs; ++i) {
      if (outputs[i] == nullptr) continue;
      if (i >= decl.outputs.size()) {
        return failf(error, RLK_INVALID_ARGUMENT, "%s: output %u is asked for; the operator has %zu. Pass NULL there",
                     decl.name, i, decl.outputs.size());
      }
      if (outputs[i]->struct_size < sizeof(rlk_output_shape)) {
        return failf(error, RLK_INVALID_ARGUMENT, "%s: outputs[%u]->struct_size is %u; expected at least %zu",
                     decl.name, i, outputs[i]->struct_size, sizeof(rlk_output_shape));
      }
      wanted |= uint64_t{1} << i;
    }
    std::vector<rlk::core::InferredTensor> inferred;
    const rlk_status status = rlk::core::infer_outputs(decl, params, {inputs, n_inputs}, wanted, inferred, error);
    if (status != RLK_OK) return status;
    for (uint32_t i = 0; i < n_outputs; ++i) {
      if (outputs[i] == nullptr) continue;
      const rlk::core::InferredTensor& known = inferred[i];
      outputs[i]->ndim = known.present ? static_cast<int32_t>(known.shape.size()) : -1;
      outputs[i]->dtype = rlk::core::abi_of(known.dtype);
      std::copy(known.shape.begin(), known.shape.end(), outputs[i]->shape);
    }
    return RLK_OK;
  });
}

rlk_status rlk_call(rlk_stream* stream, const rlk_op* op, const void* params, const rlk_tensor* const* inputs,
                    uint32_t n_inputs, const rlk_tensor* const* outputs, uint32_t n_outputs,
                    const rlk_call_options* options, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  RLK_REQUIRE_ARGUMENT(op);
  if (n_inputs != 0) RLK_REQUIRE_ARGUMENT(inputs);
  if (n_outputs != 0) RLK_REQUIRE_ARGUMENT(outputs);
  return guarded_call(error, [&]() -> rlk_status {
    rlk::core::CallOptions wanted;
    rlk_choice* told = nullptr;
    rlk_status status = rlk::loader::options_of(options, &wanted, &told, error);
    if (status != RLK_OK) return status;
    rlk::core::Choice choice;
    if (told != nullptr) wanted.choice = &choice;
    status = stream->runtime->dispatcher->call(*stream->stream, *declaration_of(op), params, {inputs, n_inputs},
                                               {outputs, n_outputs}, wanted, error);
    if (status == RLK_OK && told != nullptr)
      *told = {told->struct_size, choice.staged ? 1u : 0u, choice.backend, choice.plugin, choice.implementation};
    return status;
  });
}

rlk_status rlk_explain_json(rlk_stream* stream, const rlk_op* op, const void* params, const rlk_tensor* const* inputs,
                            uint32_t n_inputs, const rlk_tensor* const* outputs, uint32_t n_outputs,
                            const rlk_call_options* options, char** out, rlk_error* error) {
  RLK_REQUIRE_ARGUMENT(stream);
  RLK_REQUIRE_ARGUMENT(op);
  RLK_REQUIRE_ARGUMENT(out);
  if (n_inputs != 0) RLK_REQUIRE_ARGUMENT(inputs);
  if (n_outputs != 0) RLK_REQUIRE_ARGUMENT(outputs);
  return guarded(error, [&]() -> rlk_status {
    *out = nullptr;
    rlk::core::CallOptions wanted;
    rlk_choice* not_told = nullptr;
    rlk_status status = rlk::loader::options_of(options, &wanted, &not_told, error);
    if (status != RLK_OK) return status;
    rlk::core::Explanation explanation;
    status = stream->runtime->dispatcher->explain(*stream->stream, *declaration_of(op), params, {inputs, n_inputs},
                                                  {outputs, n_outputs}, wanted, &explanation, error);
    if (status != RLK_OK) return status;
    return rlk::loader::give_text(rlk::loader::explain_json(explanation), out, error);
  });
}

}  // extern "C"
