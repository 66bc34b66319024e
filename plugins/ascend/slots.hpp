// What do tokens write to the slots that they name, where of several with one slot the last one counts? Tokens are put
// in the order of their slots, of each the last in place. aclnnInplaceIndexCopy leaves open which of two writes to one
// slot stays, and has no slot for a token that is left out. So every other token writes what the token of the highest
// slot writes, to that slot: the same bits twice.
#pragma once

#include <optional>

#include "plan.hpp"

namespace rlk::ascend {

constexpr int64_t kMostSlots = int64_t{1} << 24;  // of tokens, too: both are counted in fp32

struct SlotConstants {
  explicit SlotConstants(Constants& constants)
      : minus_one(constants.add(-1.0F)),
        zero(constants.add(0.0F)),
        no_slot(constants.add(int64_t{0})),
        no(constants.add_bool(false)) {}
  Operand minus_one, zero, no_slot, no;
};

// Vectors of all tokens in the order of their slots, but for `wrong`.
struct SlotWrites {
  Operand token;     // INT64: where each place of the order comes from
  Operand slot_key;  // FLOAT: its slot, -1 of a token that is left out
  Operand place;     // INT64: the place of the order that is written in its stead, its own or the last
  Operand slot;      // INT64: where to; 0 where no token has a slot
  Operand has_any;   // BOOL [1, 1]: a token has a slot
  Operand wrong;     // BOOL, by tokens: a slot that there is not
};
// given: INT32 or INT64 [n], n > 0. Tokens of `skipped` are left out; other ids outside [0, slots) are, and are
// reported.
SlotWrites add_slot_writes(Builder& b, const SlotConstants& c, const Operand& given, int64_t slots,
                           std::optional<int64_t> skipped);

// Names of what the installed CANN lacks for it.
std::string missing_for_slots();

}  // namespace rlk::ascend
