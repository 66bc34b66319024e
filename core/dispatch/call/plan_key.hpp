// What tells two calls apart, as plain words: equal words, same decision and same plan.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/declaration/validate.hpp"
#include "core/dispatch/call/private_params.hpp"

namespace rlk::core {

// Two parts. The first selects the candidate: dispatcher, registry generation, device, capture, pin, and the
// magnitude of every dynamic symbol (a cost may turn there). The second is the structure that a plan is made for:
// operator, parameters, private parameters, presence, dtypes, numerics demanded, aliasing, symbols that are not
// dynamic, and per tensor alignment class, contiguity or exact strides, and its shape where no symbol names it. Written
// anew for every call into memory of the thread; no allocation.
class PlanKey {
public:
  static constexpr size_t kMaxPinLength = 64;

  struct Scope {
    uint64_t dispatcher;
    uint64_t generation;
    const void* device;
    bool capturing;
    std::string_view pin;
    const PrivateParams* privates;
  };
  // False: the call has more words than a key holds, and the key is none. No call that was accepted (accept.hpp) has;
  // whatever is given here, nothing is written beyond the key.
  [[nodiscard]] bool build(const Scope& scope, const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                           std::span<const rlk_tensor* const> outputs, uint32_t numerics);

  std::span<const uint64_t> words() const { return {words_.data(), size_}; }
  std::span<const uint64_t> structure() const { return words().subspan(structure_); }
  uint64_t hash() const { return hash_; }

  static uint64_t hash_of(std::span<const uint64_t> words);

private:
  void add(uint64_t word) {
    if (size_ < words_.size()) {
      words_[size_++] = word;
    } else {
      is_full_ = true;
    }
  }
  void add_bytes(const void* bytes, size_t count);
  void add_tensors(std::span<const ArgDecl> args, std::span<const rlk_tensor* const> tensors, int form);

  // Everything has a bound: scope, pin, parameters, symbols, and of each tensor one word and its strides and shape.
  static constexpr size_t kMaxWords = 16 + kMaxPinLength / 8 + kMaxParams + size_t{2} * kMaxSymbols +
                                      size_t{2} * kMaxArguments * (1 + 2 * RLK_MAX_NDIM) + PrivateParams::kMaxWords;
  std::array<uint64_t, kMaxWords> words_;
  size_t size_ = 0;
  size_t structure_ = 0;
  bool is_full_ = false;  // more was added than fits
  uint64_t hash_ = 0;
};

}  // namespace rlk::core
