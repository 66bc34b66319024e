// Dtype and shape of every output, from the inputs alone.
#include <fmt/core.h>
#include "core/declaration/bind.hpp"

#include "core/declaration/validate.hpp"

namespace rlk::core {
namespace {

// The shape of one output, or false when the inputs do not fix it.
bool infer_shape(const OpDecl& decl, const ShapeDecl& declared, const BoundCall& call, Tensors inputs,
                 std::vector<int64_t>& shape) {
  if (declared.kind == ShapeDecl::Kind::broadcast) {
    int64_t sizes[RLK_MAX_NDIM];
    int32_t ndim = 0;
    const bool fits = broadcast_shape(decl, call.form, inputs, sizes, &ndim);
    shape.assign(sizes, sizes + ndim);
    return fits;
  }
  if (declared.kind == ShapeDecl::Kind::same) {
    const rlk_tensor& first = *inputs[static_cast<size_t>(declared.of)];
    shape.assign(first.shape, first.shape + first.ndim);
    return true;
  }
  if (declared.kind != ShapeDecl::Kind::dims) return false;
  for (const Dim& dim : declared.dims) {
    shape.push_back(dim.evaluate(call.values()));
    if (shape.back() < 0) return false;
  }
  return true;
}

}  // namespace

rlk_status infer_outputs(const OpDecl& decl, const void* params, std::span<const rlk_tensor* const> inputs,
                         uint64_t wanted, std::vector<InferredTensor>& out, rlk_error* error) {
  BoundCall call;
  std::vector<std::byte> storage(decl.params_size);
  Binder binder(decl, inputs, {}, /*infer=*/true, call, error);
  if (const rlk_status s = binder.bind_params(params, storage); s != RLK_OK) return s;
  if (const rlk_status s = binder.bind_presence(wanted); s != RLK_OK) return s;
  if (const rlk_status s = binder.bind_dtypes(); s != RLK_OK) return s;
  if (const rlk_status s = binder.bind_shapes(); s != RLK_OK) return s;
  if (const rlk_status s = binder.check_rules(); s != RLK_OK) return s;
  out.clear();
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    const ArgDecl& arg = decl.outputs[i];
    const ShapeDecl& declared = arg.shapes[static_cast<size_t>(call.form)];
    const bool present = call.values().has(32 + static_cast<int>(i));
    InferredTensor inferred{resolve(arg.dtype, call), {}, false};
    const bool of_form = declared.kind != ShapeDecl::Kind::none && (arg.form < 0 || arg.form == call.form);
    if (of_form && !infer_shape(decl, declared, call, inputs, inferred.shape)) {
      if (!present) {  // the caller did not ask for it
        inferred.shape.clear();
        out.push_back(std::move(inferred));
        continue;
      }
      for (const Dim& dim : declared.dims) {
        if (!dim.is_computed() || dim.size.eval(call.values()) >= 0) continue;
        return binder.refuse(fmt::format("{} has shape {}, and {} is no size for {}",
                                         Binder::name_of_argument(arg, true), declared.text, dim.size.text,
                                         binder.seen_in(dim.size.text)));
      }
      return binder.refuse(
          fmt::format("{} has shape {}, which the inputs given do not fix. Pass the optional inputs that do",
                      Binder::name_of_argument(arg, true), declared.text));
    }
    inferred.present = of_form && present;
    out.push_back(std::move(inferred));
  }
  return RLK_OK;
}

}  // namespace rlk::core
