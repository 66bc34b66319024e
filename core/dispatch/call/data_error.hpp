// A data error in words: which operator, which row, which value, what was expected, what to do.
#pragma once

#include <rlk/abi/status.h>

#include <array>
#include <cstdint>
#include <string>

#include "core/declaration/declaration.hpp"

namespace rlk::core {

// The tag that kernels copy into a data error: the operator, and the call's number on its stream.
inline constexpr uint32_t kTagCallBits = 24;
uint32_t make_tag(const OpDecl& decl, uint32_t call_number);
const OpDecl* op_of_tag(uint32_t tag);  // nullptr for a tag that no call has
inline uint32_t call_of_tag(uint32_t tag) {
  return tag & ((1u << kTagCallBits) - 1);
}

// Where the domains of an operator's inputs end in one call, of those inputs that a data error can be of, in their
// declared order.
inline constexpr size_t kMaxDomainEnds = 4;
using DomainEnds = std::array<int64_t, kMaxDomainEnds>;

// Those of a stream's last calls: by the time the stream reports an error, the call is gone.
class RecentDomainEnds {
public:
  // Costs nothing for an operator that has no such input.
  void note(uint32_t tag, const OpDecl& decl, const Values& values);
  // nullptr when that call was too long ago.
  const DomainEnds* of(uint32_t tag) const noexcept;

private:
  struct Call {
    uint32_t tag = 0;
    DomainEnds ends{};
  };
  std::array<Call, 64> calls_{};
  size_t next_ = 0;
};

// `ends`: of the call, where they are known.
std::string describe(const rlk_data_error& error, const std::string& stream_name, const DomainEnds* ends = nullptr);

}  // namespace rlk::core
