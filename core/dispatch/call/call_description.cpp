// A call without its memory.
#include "core/dispatch/call/call_description.hpp"

#include <cstring>

namespace rlk::core {

CallDescription::CallDescription(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                                 std::span<const rlk_tensor* const> outputs, uint32_t numerics,
                                 const PrivateParams& privates)
    : decl_(call.decl),
      params_(call.decl->params_size),
      symbols_(call.symbols),
      numerics_(numerics),
      privates_(privates) {
  std::memcpy(params_.data(), call.params, call.decl->params_size);
  const size_t count = decl_->inputs.size() + decl_->outputs.size();
  tensors_.reserve(count);
  sizes_.reserve(count * 2 * RLK_MAX_NDIM);
  copy(decl_->inputs, inputs, inputs_);
  copy(decl_->outputs, outputs, outputs_);
  output_alias_.assign(call.output_alias.begin(),
                       call.output_alias.begin() + static_cast<std::ptrdiff_t>(decl_->outputs.size()));
}

void CallDescription::copy(std::span<const ArgDecl> args, std::span<const rlk_tensor* const> tensors,
                           std::vector<const rlk_tensor*>& pointers) {
  for (size_t i = 0; i < args.size(); ++i) {
    const rlk_tensor* from = i < tensors.size() ? tensors[i] : nullptr;
    if (from == nullptr) {
      pointers.push_back(nullptr);
      continue;
    }
    rlk_tensor& tensor = tensors_.emplace_back(*from);
    tensor.struct_size = sizeof(rlk_tensor);
    tensor.alignment = alignment_class(*from);
    tensor.data = nullptr;
    tensor.byte_offset = 0;
    const auto own = [&](const int64_t* values) {
      if (tensor.ndim > 0) sizes_.insert(sizes_.end(), values, values + tensor.ndim);
      return sizes_.data() + sizes_.size() - tensor.ndim;
    };
    tensor.shape = own(from->shape);
    tensor.strides = own(from->strides);
    pointers.push_back(&tensor);
  }
}

CallDescription CallDescription::for_plugin(std::string_view plugin) && {
  own_ = OwnPrivateParams(privates_.of(plugin));
  privates_ = {};
  return std::move(*this);
}

rlk_call_desc CallDescription::desc(std::string_view plugin, rlk_private_params* mine) const {
  rlk_call_desc desc = this->desc();
  if (const rlk_private_params* given = privates_.of(plugin)) {
    *mine = *given;
    mine->struct_size = sizeof(*mine);
    mine->next = nullptr;
    desc.next = reinterpret_cast<const rlk_ext*>(mine);
  } else if (!own_.empty()) {
    *mine = own_.view();
    desc.next = reinterpret_cast<const rlk_ext*>(mine);
  }
  return desc;
}

rlk_call_desc CallDescription::desc() const {
  rlk_call_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.op_revision = decl_->revision;
  desc.op = decl_->name;
  desc.params = params_.data();
  desc.n_inputs = static_cast<uint32_t>(inputs_.size());
  desc.n_outputs = static_cast<uint32_t>(outputs_.size());
  desc.inputs = inputs_.data();
  desc.outputs = outputs_.data();
  desc.output_alias = output_alias_.data();
  desc.symbols = symbols_.data();
  desc.n_symbols = static_cast<uint32_t>(decl_->symbols.size());
  desc.numerics = numerics_;
  return desc;
}

}  // namespace rlk::core
