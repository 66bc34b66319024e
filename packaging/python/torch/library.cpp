// The C functions of rlk_torch.h: the kernels as the dispatcher wants them, a function without context each.
#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <utility>

#include "direct.hpp"
#include "node.hpp"
#include "operator.hpp"
#include "streams.hpp"
#include "threads.hpp"

namespace rlk::torch {
namespace {

constexpr size_t kMaxOperators = 512;
// What torch's conversions of values are to be like: those of 2.10, the oldest torch that has all we call.
constexpr uint64_t kBuiltFor = uint64_t{2} << 56 | uint64_t{10} << 48;

std::unique_ptr<const Operator> operators[kMaxOperators];
size_t count = 0;
TorchLibraryOpaque* library = nullptr;  // of the process: ending it would take the kernels out

using Kernel = void (*)(StableIValue*, uint64_t, uint64_t);
template <size_t I>
void kernel(StableIValue* stack, uint64_t n_arguments, uint64_t n_results) {
  run(*operators[I], stack, n_arguments, n_results);
}
template <size_t... I>
constexpr std::array<Kernel, sizeof...(I)> kernels_of(std::index_sequence<I...> /*numbers*/) {
  return {&kernel<I>...};
}
constexpr std::array<Kernel, kMaxOperators> kKernels = kernels_of(std::make_index_sequence<kMaxOperators>());

rlk_status fail(rlk_error* error, rlk_status status, const std::string& text) {
  if (error != nullptr) {
    error->status = status;
    std::snprintf(error->text, sizeof(error->text), "%s", text.c_str());
  }
  return status;
}

template <class Body>
rlk_status guarded(rlk_error* error, Body&& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    return fail(error, RLK_INTERNAL, e.what());
  }
}

}  // namespace
}  // namespace rlk::torch

using namespace rlk::torch;

extern "C" {

rlk_status rlk_torch_open(rlk_torch_resolve resolve, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    if (const char* const missing = bind_shim(); missing != nullptr) {
      return fail(error, RLK_NOT_FOUND,
                  std::string("this torch has no ") + missing + " (2.10 is the first that has all)");
    }
    set_resolver(resolve);
    share_threads();
    RLK_TORCH(aoti_torch_library_init_impl, "rlk", "CompositeExplicitAutograd", __FILE__, __LINE__, &library);
    return RLK_OK;
  });
}

rlk_status rlk_torch_register(const rlk_torch_operator* description, rlk_error* error) {
  return guarded(error, [&]() -> rlk_status {
    const rlk_torch_operator& d = *description;
    if (count == kMaxOperators || d.n_inputs > kMaxArguments || d.n_outputs > kMaxArguments ||
        d.n_params > kMaxParams) {
      return fail(error, RLK_INTERNAL,
                  std::string(d.name) + ": more operators, arguments or parameters than there is room for");
    }
    auto op = std::make_unique<Operator>();
    if (const rlk_status status = rlk_op_find(d.name, &op->op, error); status != RLK_OK) return status;
    op->place = count;
    op->name = d.name;
    op->n_inputs = static_cast<int>(d.n_inputs);
    op->n_required = static_cast<int>(d.n_required);
    op->n_outputs = static_cast<int>(d.n_outputs);
    op->gives_list = d.gives_list != 0;
    op->bytes_as_u8 = d.bytes_as_u8;
    op->changed = d.changed;
    op->required_outputs = d.required_outputs;
    op->param_kinds.assign(d.param_kinds, d.n_params);
    op->defaults.assign(d.defaults, d.defaults + d.n_params);
    op->must_alias.assign(d.must_alias, d.must_alias + d.n_outputs);
    operators[count] = std::move(op);
    RLK_TORCH(torch_library_impl, library, d.name, kKernels[count], kBuiltFor);
    if (d.changed == 0) {
      RLK_TORCH(torch_library_impl, library, (std::string(d.name) + ".kernel").c_str(), kKernels[count], kBuiltFor);
    }
    ++count;
    return RLK_OK;
  });
}

const void* rlk_torch_operator_address(const char* name) {
  const auto end = std::begin(operators) + count;
  const auto found = std::find_if(std::begin(operators), end, [&](const auto& op) { return op->name == name; });
  return found == end ? nullptr : found->get();
}

void* rlk_torch_callable(const char* name, const rlk_torch_python* functions, void* entry, int32_t is_planned) {
  const auto* const op = static_cast<const Operator*>(rlk_torch_operator_address(name));
  return op == nullptr ? nullptr : callable(*op, *functions, as_object(entry), is_planned != 0);
}

void* rlk_torch_node(const rlk_torch_python* functions, void* base, int32_t is_backward) {
  return node_method(*functions, base, is_backward != 0);
}

void rlk_torch_reloaded(void) {
  note_reload();
}

void rlk_torch_error(rlk_error* out) {
  *out = std::exchange(last_error(), rlk_error RLK_ERROR_INIT);
}

}  // extern "C"
