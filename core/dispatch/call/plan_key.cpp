// What tells two calls apart, as plain words.
#include "core/dispatch/call/plan_key.hpp"

#include <cstring>
#include <utility>

#include "core/declaration/overlap.hpp"
#include "core/dispatch/call/call_description.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace rlk::core {

uint64_t PlanKey::hash_of(std::span<const uint64_t> words) {
  return XXH3_64bits(words.data(), words.size_bytes());
}

void PlanKey::add_bytes(const void* bytes, size_t count) {
  const size_t whole = count / 8 + (count % 8 != 0);
  if (whole > words_.size() - size_) {
    is_full_ = true;
    return;
  }
  if (whole == 0) return;
  words_[size_ + whole - 1] = 0;
  std::memcpy(words_.data() + size_, bytes, count);
  size_ += whole;
}

void PlanKey::add_tensors(std::span<const ArgDecl> args, std::span<const rlk_tensor* const> tensors, int form) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const rlk_tensor* t = tensors[i];
    if (t == nullptr) continue;  // presence says so
    const bool contiguous = is_contiguous(*t);
    add(alignment_class(*t) | uint64_t{contiguous} << 32 | static_cast<uint64_t>(t->ndim) << 40);
    for (int32_t d = 0; d < t->ndim && !contiguous; ++d) add(static_cast<uint64_t>(t->strides[d]));
    if (args[i].shapes[static_cast<size_t>(form)].kind != ShapeDecl::Kind::any) continue;
    for (int32_t d = 0; d < t->ndim; ++d) add(static_cast<uint64_t>(t->shape[d]));
  }
}

bool PlanKey::build(const Scope& scope, const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                    std::span<const rlk_tensor* const> outputs, uint32_t numerics) {
  const OpDecl& decl = *call.decl;
  size_ = 0;
  is_full_ = false;
  add(scope.dispatcher);
  add(scope.generation);
  add(reinterpret_cast<uintptr_t>(scope.device));
  add(scope.pin.size());
  add(scope.capturing);
  add_bytes(scope.pin.data(), scope.pin.size());
  uint64_t magnitudes[kMaxSymbols / 8] = {};
  for (size_t i = 0; i < decl.symbols.size(); ++i) {
    const int64_t value = call.symbols[i];
    if (!decl.symbols[i].dynamic || value <= 0) continue;
    magnitudes[i / 8] |= static_cast<uint64_t>(64 - __builtin_clzll(static_cast<uint64_t>(value))) << (i % 8 * 8);
  }
  for (const uint64_t word : magnitudes) add(word);

  structure_ = size_;
  add(reinterpret_cast<uintptr_t>(&decl));
  add(call.present);
  add(numerics);
  static_assert(kMaxDtypeVariables <= 8);
  uint64_t dtypes = 0;
  for (size_t i = 0; i < decl.dtypes.size(); ++i) dtypes |= static_cast<uint64_t>(call.dtypes[i]) << (8 * i);
  add(dtypes);
  add_bytes(static_cast<const char*>(call.params) + 8, decl.params_size - 8);  // without the header
  uint64_t aliases = 0;
  for (size_t i = 0; i < decl.outputs.size(); ++i) {
    aliases = aliases << 8 | static_cast<uint64_t>(call.output_alias[i] + 1);
    if (i % 8 == 7) add(std::exchange(aliases, 0));
  }
  add(aliases);
  for (size_t i = 0; i < decl.symbols.size(); ++i) {
    if (!decl.symbols[i].dynamic) add(static_cast<uint64_t>(call.symbols[i]));
  }
  add_tensors(decl.inputs, inputs, call.form);
  add_tensors(decl.outputs, outputs, call.form);
  scope.privates->describe([&](uint64_t word) { add(word); },
                           [&](const void* bytes, size_t count) { add_bytes(bytes, count); });
  hash_ = hash_of(words());
  return !is_full_;
}

}  // namespace rlk::core
