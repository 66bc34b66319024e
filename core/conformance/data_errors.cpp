// The catalogue of data errors by domain, and how each is planted.
#include "core/conformance/data_errors.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>

#include "core/conformance/blocks.hpp"

namespace rlk::core::conformance {
namespace {

constexpr int kFaultsPerInput = 8;  // a fault's number is input * kFaultsPerInput + its place below

enum IdFault { kIdHigh, kIdLow, kIdLargest, kIdSmallest, kTwoIds, kIdFar, kIdFaults };
enum RowFault {
  kRowHigh,
  kRowNegative,
  kRowLargest,
  kRowFar,
  kRowFaults,
  kRowTwice = kRowFaults,
  kRowBack,
  kIncreasingFaults
};
enum SeqlensFault { kFirstNotZero, kDecrease, kLastNotTotal, kSeqlensFaults };
enum LengthFault { kTooLong, kNegative, kLongest, kLengthFar, kLengthFaults };
enum BlockFault { kBlockMissing, kBlockHigh, kBlockLargest, kBlockFar, kBlockFaults };

// Far from every tensor, also times the size of a row; the largest number, times that, comes back to where it began.
constexpr int64_t kFar = int64_t{1} << 40;

int count_of(const DomainDecl& domain, const Argument& argument) {
  if (argument.count() < 3) return 0;  // no room for good rows beside the bad one
  if (domain.kind == Domain::id) return kIdFaults;
  if (domain.kind == Domain::row_index) return domain.increasing ? kIncreasingFaults : kRowFaults;
  if (domain.kind == Domain::cu_seqlens) return kSeqlensFaults;
  if (domain.kind == Domain::length) return kLengthFaults;
  if (domain.kind == Domain::block_table) return kBlockFaults;
  return 0;
}

// Where a bad number stands: loops that forget their first or last row are as common as those that forget to look.
enum class Spot { middle, first, last };
constexpr Spot kSpots[] = {Spot::middle, Spot::first, Spot::last};
Spot spot_of(int fault) {
  return kSpots[static_cast<size_t>(fault) % std::size(kSpots)];
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
  const std::vector<int64_t> rows = active_rows(call, ids.count(), spot_of(fault));
  if (rows.empty()) return;
  const int64_t low = domain.low.eval(call.values()), high = domain.high.eval(call.values());
  constexpr auto kLargest = std::numeric_limits<int64_t>::max(), kSmallest = std::numeric_limits<int64_t>::min();
  const int64_t bad[] = {high, low - 3, kLargest, kSmallest, -kFar, kFar};
  const auto plant = [&](int64_t row, int64_t id) {
    set_int(ids, row, id);
    call.faults.push_back({RLK_DATA_ID_OUT_OF_RANGE, row, get_int(ids, row)});
  };
  plant(rows[0], bad[fault]);
  if (fault == kTwoIds && rows.size() > 1) plant(rows[1], high + 2);
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
      // If there is one, a row that nobody has named.
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
  if (fault >= kRowFaults) return plant_order(fault, call, indices);
  // Among increasing indices a large one makes every later one look out of order: it goes to the last active row.
  const bool at_end = domain.increasing && fault != kRowNegative;
  const std::vector<int64_t> rows = active_rows(call, indices.count(), at_end ? Spot::last : spot_of(fault));
  if (rows.empty()) return;
  const int64_t bad[] = {domain.high.eval(call.values()), -1, std::numeric_limits<int64_t>::max(), kFar};
  set_int(indices, rows[0], bad[fault]);
  call.faults.push_back({RLK_DATA_ROW_OUT_OF_RANGE, rows[0], bad[fault]});
}

void plant_seqlens(int fault, Argument& cu_seqlens) {
  const int64_t last = cu_seqlens.count() - 1;
  const int64_t total = get_int(cu_seqlens, last);
  if (fault == kFirstNotZero) set_int(cu_seqlens, 0, 1);
  if (fault == kDecrease) set_int(cu_seqlens, 1, get_int(cu_seqlens, 2) + 1);
  if (fault == kLastNotTotal) {
    set_int(cu_seqlens, last, total > get_int(cu_seqlens, last - 1) ? total - 1 : total + 1);
  }
}

void plant_length(int fault, const DomainDecl& domain, ConcreteCall& call, Argument& lengths) {
  const int64_t bad[] = {domain.high.eval(call.values()) + 1, -1, std::numeric_limits<int64_t>::max(), kFar};
  const Spot spot = spot_of(fault);
  const int64_t n = spot == Spot::first ? 0 : spot == Spot::last ? lengths.count() - 1 : lengths.count() / 2;
  set_int(lengths, n, bad[fault]);
  call.faults.push_back({RLK_DATA_BAD_SEQLENS, n, get_int(lengths, n)});
}

// The last entry that is read of a row.
void plant_block(int fault, size_t input, ConcreteCall& call) {
  Argument& table = call.inputs[input];
  const BlockTable blocks(call, input);
  const int64_t bad[] = {-1, call.decl->inputs[input].domain.high.eval(call.values()),
                         std::numeric_limits<int64_t>::max(), kFar};
  const Spot spot = spot_of(fault);
  const int64_t begin = spot == Spot::middle ? blocks.rows() / 2 : 0;
  for (int64_t k = 0; k < blocks.rows(); ++k) {
    const int64_t row = spot == Spot::last ? blocks.rows() - 1 - k : (begin + k) % blocks.rows();
    if (blocks.used(row) == 0) continue;
    const int64_t at = row * blocks.columns() + (spot == Spot::first ? 0 : blocks.used(row) - 1);
    set_int(table, at, bad[fault]);
    call.faults.push_back({RLK_DATA_ID_OUT_OF_RANGE, row, get_int(table, at)});
    return;
  }
}

}  // namespace

std::vector<int> faults_of(const ConcreteCall& call, bool every) {
  std::vector<int> faults;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i].present) continue;
    const int count = count_of(call.decl->inputs[i].domain, call.inputs[i]);
    for (int k = 0; k < (every ? count : std::min(count, 1)); ++k) {
      faults.push_back(static_cast<int>(i) * kFaultsPerInput + k);
    }
  }
  return faults;
}

void plant_fault(int fault, ConcreteCall& call) {
  const auto index = static_cast<size_t>(fault / kFaultsPerInput);
  const DomainDecl& domain = call.decl->inputs[index].domain;
  Argument& argument = call.inputs[index];
  const int which = fault % kFaultsPerInput;
  if (domain.kind == Domain::id) plant_id(which, domain, call, argument);
  if (domain.kind == Domain::row_index) plant_row(which, domain, call, argument);
  if (domain.kind == Domain::cu_seqlens) plant_seqlens(which, argument);
  if (domain.kind == Domain::length) plant_length(which, domain, call, argument);
  if (domain.kind == Domain::block_table) plant_block(which, index, call);
}

}  // namespace rlk::core::conformance
