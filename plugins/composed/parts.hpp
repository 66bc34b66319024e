// A program in parts, one after the other, each recorded by itself: what is in between in one part is gone in the next,
// so that the largest part has the whole workspace. An operator that decides on its parts itself says so:
//
//   RLK_COMPOSED_PARTS(Attention, refuse_scores(...), lengths_of(call), compose_attention)
//
// The operator's name, what it declines, the inputs that the host must have read before there is a program (bits of
// sdk::bits_of), and a function that adds the parts. What a query asks for is one part, without what the host reads.
#pragma once

#include <functional>
#include <vector>

#include "program.hpp"

namespace rlk::composed {

class Parts {
public:
  Parts(const Primitives& primitives, const std::vector<Alias>& aliases, bool is_whole = false)
      : primitives_(primitives), aliases_(aliases), is_whole_(is_whole) {}

  // Nothing is to be run, only asked for: all in one part.
  bool is_whole() const { return is_whole_; }
  // Memory that parts share, as a place to read and write. All of it is asked for before the first part.
  View keep(sdk::Dtype dtype, const Dims& dims);
  uint64_t kept_bytes() const { return static_cast<uint64_t>(kept_bytes_); }
  // Whether a part stays within the vendor's bound, with so much that is kept.
  bool fits(const Record& record, uint64_t kept_bytes) const;

  void add(const Record& record) { add(record, {}, Pass::whole); }
  void add(const Record& record, const Window& window, Pass pass);
  // A data error that the host has found, behind all parts; may_fail: there could be one.
  void fail(const DataError& error);
  void may_fail() { need(Word::report, sdk::Dtype::boolean); }
  // What calls of other sizes need, so that the vendor declines an empty one, too.
  void need(Word word, sdk::Dtype dtype);
  Program take() { return std::move(program_); }

private:
  void settle(Operand& operand) const;

  const Primitives& primitives_;
  const std::vector<Alias>& aliases_;
  const bool is_whole_;
  std::vector<int64_t> places_;  // of what is kept
  int64_t kept_bytes_ = 0;
  Program program_;
};

}  // namespace rlk::composed

#define RLK_COMPOSED_PARTS(OP, refusal, read_by_host, compose_call)                                  \
  namespace rlk::composed {                                                                          \
  struct OP##Parts {                                                                                 \
    using Op = sdk::ops::OP;                                                                         \
    static constexpr uint32_t kNumerics = 0;                                                         \
    static sdk::Refusal refuse(const Arguments<Op>& call, bool) { return refusal; }                  \
    static Factors factors_of(const Arguments<Op>&) { return {}; }                                   \
    static uint64_t host_inputs([[maybe_unused]] const Arguments<Op>& call) { return read_by_host; } \
    static void compose(Parts& parts, const Arguments<Op>& call) { compose_call(parts, call); }      \
  };                                                                                                 \
  }                                                                                                  \
  RLK_COMPOSED_LISTED(OP##Parts)
