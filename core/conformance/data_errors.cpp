// The catalogue of data errors by domain, and how each is planted.
#include "core/conformance/data_errors.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "core/conformance/blocks.hpp"

namespace rlk::core::conformance {
namespace {

// A number outside of a domain: beyond which end, and how far. Code that looks at one end alone, or narrows a number to
// 32 bits before looking, takes some of them for good.
enum class Beyond { above, below, far_above, far_below, largest, smallest };
constexpr int kBeyond = 6;
// Where it stands: loops that forget their first or last row are as common as those that forget to look.
enum class Spot { middle, first, last };
constexpr int kSpots = 3;

constexpr int kOutside = kBeyond * kSpots;
constexpr int kTwoIds = kOutside;
constexpr int kRowTwice = kOutside, kRowBack = kOutside + 1;

Beyond beyond_of(int fault) {
  return static_cast<Beyond>(fault / kSpots);
}
Spot spot_of(int fault) {
  return static_cast<Spot>(fault % kSpots);
}

// Far from every tensor, also times the size of a row; the largest number, times that, comes back to where it began.
constexpr int64_t kFar = int64_t{1} << 40;
constexpr auto kHighest = std::numeric_limits<int64_t>::max(), kLowest = std::numeric_limits<int64_t>::min();

// What is beyond [low, high], in the place of a good number. Far ones have that number in their low 32 bits; an i32
// holds the largest instead.
int64_t outside(Beyond beyond, int64_t low, int64_t high, int64_t good) {
  switch (beyond) {
    case Beyond::above:
      return high + 1;
    case Beyond::below:
      return low - 1;
    case Beyond::far_above:
      return good + kFar;
    case Beyond::far_below:
      return good - kFar;
    case Beyond::largest:
      return kHighest;
    case Beyond::smallest:
      break;
  }
  return kLowest;
}

bool is_above(Beyond beyond) {
  return beyond == Beyond::above || beyond == Beyond::far_above || beyond == Beyond::largest;
}

std::vector<int> faults_of_input(const DomainDecl& domain, const Argument& argument) {
  std::vector<int> list;
  const bool has_faults = domain.kind == Domain::id || domain.kind == Domain::row_index ||
                          domain.kind == Domain::cu_seqlens || domain.kind == Domain::length ||
                          domain.kind == Domain::block_table;
  if (!has_faults || argument.count() < 3) return list;  // no room for good rows beside the bad one
  for (int fault = 0; fault < kOutside; ++fault) {
    const Beyond beyond = beyond_of(fault);
    if (argument.dtype != Dtype::i64 && beyond >= Beyond::largest) continue;  // they were far ones
    // Among increasing indices a large one makes every later one look out of order.
    if (domain.increasing && is_above(beyond) && spot_of(fault) != Spot::last) continue;
    list.push_back(fault);
  }
  if (domain.kind == Domain::id) list.push_back(kTwoIds);
  if (domain.increasing) list.insert(list.end(), {kRowTwice, kRowBack});
  return list;
}

int64_t place_of(int fault, int64_t count) {
  return spot_of(fault) == Spot::first ? 0 : spot_of(fault) == Spot::last ? count - 1 : count / 2;
}

// Numbers of active rows from the middle on, then from the start. A row has one of them or, as top-k ids, several.
std::vector<int64_t> active_rows(const ConcreteCall& call, int64_t count) {
  const Argument* const mask = find_domain(call, Domain::mask);
  const int64_t per_row = mask != nullptr && mask->count() > 0 ? count / mask->count() : 1;
  std::vector<int64_t> rows;
  for (int64_t k = 0; k < count; ++k) {
    const int64_t n = (count / 2 + k) % count;
    const bool is_masked_row = per_row > 1 && get_int(*mask, n / per_row) == 0;
    if (!is_masked_row && !is_ignored(call, n)) rows.push_back(n);
  }
  return rows;
}

// The row of the spot comes first.
std::vector<int64_t> active_rows(const ConcreteCall& call, int64_t count, Spot spot) {
  std::vector<int64_t> rows = active_rows(call, count);
  if (spot == Spot::first) std::sort(rows.begin(), rows.end());
  if (spot == Spot::last) std::sort(rows.begin(), rows.end(), std::greater<>());
  return rows;
}

void plant_id(int fault, const DomainDecl& domain, ConcreteCall& call, Argument& ids) {
  const bool two = fault == kTwoIds;
  const std::vector<int64_t> rows = active_rows(call, ids.count(), two ? Spot::middle : spot_of(fault));
  if (rows.empty()) return;
  const int64_t low = domain.low.eval(call.values()), high = domain.high.eval(call.values());
  const auto plant = [&](int64_t row, int64_t id) {
    const bool marks = domain.ignore_param >= 0 && id == call.i64(domain.ignore_param);
    if (marks) id += id == kLowest || (id >= high && id != kHighest) ? 1 : -1;  // the next that means no such thing
    set_int(ids, row, id);
    call.faults.push_back({RLK_DATA_ID_OUT_OF_RANGE, row, get_int(ids, row)});
  };
  plant(rows[0], two ? high : outside(beyond_of(fault), low, high - 1, get_int(ids, rows[0])));
  if (two && rows.size() > 1) plant(rows[1], high + 2);
}

// The active row before n, or -1.
int64_t active_before(const ConcreteCall& call, int64_t n) {
  for (--n; n >= 0; --n) {
    if (!is_ignored(call, n)) return n;
  }
  return -1;
}

void plant_order(int fault, ConcreteCall& call, Argument& indices) {
  for (int64_t n = indices.count() - 1; n > 0; --n) {
    const int64_t before = active_before(call, n);
    if (is_ignored(call, n) || before < 0) continue;
    int64_t row = get_int(indices, before);
    if (fault == kRowBack) {
      // If there is one, a row that no index has named.
      const auto named = [&](int64_t r) {
        for (int64_t k = 0; k < indices.count(); ++k) {
          if (get_int(indices, k) == r) return true;
        }
        return false;
      };
      const int64_t last = row;
      do --row;
      while (row >= 0 && named(row));
      if (row < 0) row = last - 1;
      if (row < 0) continue;
    }
    set_int(indices, n, row);
    call.faults.push_back({RLK_DATA_ROW_OUT_OF_RANGE, n, row});
    return;
  }
}

void plant_row(int fault, const DomainDecl& domain, ConcreteCall& call, Argument& indices) {
  if (fault >= kOutside) return plant_order(fault, call, indices);
  const std::vector<int64_t> rows = active_rows(call, indices.count(), spot_of(fault));
  if (rows.empty()) return;
  const int64_t high = domain.high.eval(call.values()) - 1;
  set_int(indices, rows[0], outside(beyond_of(fault), 0, high, get_int(indices, rows[0])));
  call.faults.push_back({RLK_DATA_ROW_OUT_OF_RANGE, rows[0], get_int(indices, rows[0])});
}

// The first place that does not follow from the one before is reported, which is the next one where this is too large.
void plant_seqlens(int fault, Argument& cu_seqlens) {
  const int64_t last = cu_seqlens.count() - 1;
  const int64_t at = place_of(fault, cu_seqlens.count());
  const int64_t low = at == 0 ? 0 : at == last ? get_int(cu_seqlens, last) : get_int(cu_seqlens, at - 1);
  const int64_t high = at == 0 || at == last ? low : get_int(cu_seqlens, at + 1);
  set_int(cu_seqlens, at, outside(beyond_of(fault), low, high, get_int(cu_seqlens, at)));
}

void plant_length(int fault, const DomainDecl& domain, ConcreteCall& call, Argument& lengths) {
  const int64_t n = place_of(fault, lengths.count());
  set_int(lengths, n, outside(beyond_of(fault), 0, domain.high.eval(call.values()), get_int(lengths, n)));
  call.faults.push_back({RLK_DATA_BAD_SEQLENS, n, get_int(lengths, n)});
}

// In the first row that is read the first entry, in the last one the last that is read, between them one between them.
void plant_block(int fault, size_t input, ConcreteCall& call) {
  Argument& table = call.inputs[input];
  const BlockTable blocks(call, input);
  const Spot spot = spot_of(fault);
  const int64_t begin = spot == Spot::middle ? blocks.rows() / 2 : 0;
  for (int64_t k = 0; k < blocks.rows(); ++k) {
    const int64_t row = spot == Spot::last ? blocks.rows() - 1 - k : (begin + k) % blocks.rows();
    const int64_t used = blocks.used(row);
    if (used == 0) continue;
    const int64_t column = spot == Spot::first ? 0 : spot == Spot::last ? used - 1 : used / 2;
    const int64_t at = row * blocks.columns() + column;
    const int64_t high = call.decl->inputs[input].domain.high.eval(call.values()) - 1;
    set_int(table, at, outside(beyond_of(fault), 0, high, get_int(table, at)));
    call.faults.push_back({RLK_DATA_ID_OUT_OF_RANGE, row, get_int(table, at)});
    return;
  }
}

}  // namespace

std::vector<int> faults_of(const ConcreteCall& call, bool every) {
  std::vector<int> faults;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].present) continue;
    for (const int fault : faults_of_input(call.decl->inputs[i].domain, call.inputs[i])) {
      faults.push_back(static_cast<int>(i) * kFaultsPerInput + fault);
      if (!every) break;
    }
  }
  return faults;
}

bool is_in_the_middle(int fault) {
  const int which = fault % kFaultsPerInput;
  return which >= kOutside || spot_of(which) == Spot::middle;
}

void plant_fault(int fault, ConcreteCall& call) {
  const auto index = static_cast<size_t>(fault / kFaultsPerInput);
  const DomainDecl& domain = call.decl->inputs[index].domain;
  Argument& argument = call.inputs[index];
  if (!argument.present || argument.count() < 3) return;  // a variation of the case has left no room for it
  const int which = fault % kFaultsPerInput;
  if (domain.kind == Domain::id) plant_id(which, domain, call, argument);
  if (domain.kind == Domain::row_index) plant_row(which, domain, call, argument);
  if (domain.kind == Domain::cu_seqlens) plant_seqlens(which, argument);
  if (domain.kind == Domain::length) plant_length(which, domain, call, argument);
  if (domain.kind == Domain::block_table) plant_block(which, index, call);
}

}  // namespace rlk::core::conformance
