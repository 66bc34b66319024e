// Reading and writing single elements of a call's values.
#pragma once

#include "core/conformance/call.hpp"
#include "core/golden/golden.hpp"

namespace rlk::core::conformance {

// Both enumerations list the same dtypes in the same order.
inline golden::Dtype golden_dtype(Dtype dtype) {
  return static_cast<golden::Dtype>(dtype);
}
static_assert(static_cast<int>(Dtype::f4_e2m1fn) == static_cast<int>(golden::Dtype::f4_e2m1fn));

inline golden::View flat_view(const std::vector<std::byte>& bytes, Dtype dtype) {
  golden::View view;
  view.data = bytes.data();
  view.dtype = golden_dtype(dtype);
  return view;
}

inline double get(const Argument& argument, int64_t index) {
  return flat_view(argument.bytes, argument.dtype).load_at(index);
}
inline int64_t get_int(const Argument& argument, int64_t index) {
  return flat_view(argument.bytes, argument.dtype).load_int_at(index);
}
inline void set(Argument& argument, int64_t index, double value) {
  golden::store(argument.bytes.data() + index * size_of(argument.dtype), golden_dtype(argument.dtype), value);
}
// Numbers that the dtype cannot hold are cut to its range.
void set_int(Argument& argument, int64_t index, int64_t value);
// Whether an integer dtype has the value: an id that is ignored may be one that 32 bits do not hold.
bool holds_int(Dtype dtype, int64_t value);

// The first present input of the domain, or nullptr.
Argument* find_domain(ConcreteCall& call, Domain domain);
const Argument* find_domain(const ConcreteCall& call, Domain domain);
// The declaration of find_domain's input.
const DomainDecl* find_domain_declaration(const ConcreteCall& call, Domain domain);

// A mask of rows or of tokens, and ids of which one value is ignored. nullptr: the call has none.
Argument* find_row_mask(ConcreteCall& call);
Argument* find_ignorable_ids(ConcreteCall& call);
// Whether the mask of rows, if there is one, leaves row n out.
bool is_masked(const ConcreteCall& call, int64_t n);

// Whether input i is a mask over the columns of rows that ids name: it drops scores, and not rows.
bool is_keep_mask(const ConcreteCall& call, size_t i);

// Whether output row n is ignored, by its id or by the mask; false where the operator knows neither.
bool is_ignored(const ConcreteCall& call, int64_t n);

}  // namespace rlk::core::conformance
