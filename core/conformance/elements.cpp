// Integer elements, and what the row inputs of a call have in common.
#include "core/conformance/elements.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace rlk::core::conformance {

bool holds_int(Dtype dtype, int64_t value) {
  return dtype != Dtype::i32 ||
         (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max());
}

void set_int(Argument& argument, int64_t index, int64_t value) {
  std::byte* at = argument.bytes.data() + index * size_of(argument.dtype);
  const auto write = [&](auto limit) {
    using Integer = decltype(limit);
    using Limits = std::numeric_limits<Integer>;
    const auto number = static_cast<Integer>(std::clamp<int64_t>(value, Limits::min(), Limits::max()));
    std::memcpy(at, &number, sizeof(number));
  };
  if (argument.dtype == Dtype::i64) write(int64_t{});
  if (argument.dtype == Dtype::i32) write(int32_t{});
  if (argument.dtype == Dtype::u8) write(uint8_t{});
  if (argument.dtype == Dtype::i8) write(int8_t{});
  if (argument.dtype == Dtype::i16) write(int16_t{});
  if (argument.dtype == Dtype::u16) write(uint16_t{});
  if (argument.dtype == Dtype::u32) write(uint32_t{});
  if (argument.dtype == Dtype::u64) write(int64_t{});  // what an int64_t holds of it
  if (argument.dtype == Dtype::boolean) *at = std::byte{value != 0};
}

namespace {
int find(const ConcreteCall& call, Domain domain) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present && call.decl->inputs[i].domain.kind == domain) return static_cast<int>(i);
  }
  return -1;
}
}  // namespace

Argument* find_domain(ConcreteCall& call, Domain domain) {
  const int i = find(call, domain);
  return i < 0 ? nullptr : &call.inputs[static_cast<size_t>(i)];
}
const Argument* find_domain(const ConcreteCall& call, Domain domain) {
  const int i = find(call, domain);
  return i < 0 ? nullptr : &call.inputs[static_cast<size_t>(i)];
}
const DomainDecl* find_domain_declaration(const ConcreteCall& call, Domain domain) {
  const int i = find(call, domain);
  return i < 0 ? nullptr : &call.decl->inputs[static_cast<size_t>(i)].domain;
}

Argument* find_row_mask(ConcreteCall& call) {
  const int i = find(call, Domain::mask);
  return i < 0 || is_keep_mask(call, static_cast<size_t>(i)) ? nullptr : &call.inputs[static_cast<size_t>(i)];
}

Argument* find_ignorable_ids(ConcreteCall& call) {
  const DomainDecl* domain = find_domain_declaration(call, Domain::id);
  if (domain == nullptr || domain->ignore_param < 0) return nullptr;
  Argument* const ids = find_domain(call, Domain::id);
  return ids != nullptr && holds_int(ids->dtype, call.i64(domain->ignore_param)) ? ids : nullptr;
}

bool is_masked(const ConcreteCall& call, int64_t n) {
  const Argument* mask = find_domain(call, Domain::mask);
  const Argument* ids = find_domain(call, Domain::id);
  // A mask of something smaller than a row (one of several rewards) leaves the row in, as does one of other rows.
  if (mask == nullptr || n >= mask->count() || (ids != nullptr && mask->shape != ids->shape)) return false;
  return get_int(*mask, n) == 0;
}

bool is_keep_mask(const ConcreteCall& call, size_t i) {
  const Argument* ids = find_domain(call, Domain::id);
  return call.decl->inputs[i].domain.kind == Domain::mask && ids != nullptr &&
         call.inputs[i].shape.size() == ids->shape.size() + 1;
}

bool is_ignored(const ConcreteCall& call, int64_t n) {
  if (is_masked(call, n)) return true;
  const Argument* ids = find_domain(call, Domain::id);
  const DomainDecl* domain = find_domain_declaration(call, Domain::id);
  return ids != nullptr && domain->ignore_param >= 0 && get_int(*ids, n) == call.i64(domain->ignore_param);
}

}  // namespace rlk::core::conformance
