// A block of keys of an attention task and what its two kernels agree on, for every Highway target.
#if defined(RLK_CPU_ATTENTION_KEYS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ATTENTION_KEYS_INL
#undef RLK_CPU_ATTENTION_KEYS_INL
#else
#define RLK_CPU_ATTENTION_KEYS_INL
#endif

#include <algorithm>
#include <cmath>

#include "core/cpu/attention/attention_task.hpp"
#include "core/cpu/attention/attention_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr int64_t kKeys = 64;          // per block; blocks are aligned in the sequence, for batch invariance
constexpr int64_t kKeysPerSum = 1024;  // then a sum is closed and joins the others, at such positions in the sequence

// Where work begins: sums are cut at multiples of kChain in the sequence, whatever the company in the tile.
HWY_INLINE int64_t first_chain(const AttentionTask& task, int64_t query) {
  return task.first_key(query) / kChain * kChain;
}

template <typename T>
struct KeyBlock {
  const AttentionTask* task;
  const int64_t padded;  // the length of a row
  T* k = nullptr;        // [key][d], with room as the kernel wants it
  T* v = nullptr;
  bool masked[kKeys] = {};  // set when n_masked > 0
  int64_t n_masked = 0;

  // Which of the keys [from, to) are masked? False when all are.
  bool find_masked(int64_t from, int64_t to) {
    n_masked = 0;
    for (int64_t j = from; j < to && task->key_mask.present(); ++j) {
      masked[j - from] = !task->key_mask.keeps(j);
      n_masked += masked[j - from] ? 1 : 0;
    }
    return n_masked < to - from;
  }

  // Keys and values [from, to) into k and v. Of masked ones nothing is read, they are 0 here.
  void load(int64_t from, int64_t to) {
    const bool* hidden = n_masked > 0 ? masked : nullptr;
    load(task->k, from, to, hidden, k);
    load(task->v, from, to, hidden, v);
  }

private:
  void load(const AttentionKeys& keys, int64_t from, int64_t to, const bool* hidden, T* room) {
    const auto row = [&keys](int64_t j) { return keys.row(j); };
    const Pieces pieces = {keys.piece, keys.piece_stride};
    for (int64_t at = from; at < to; at = keys.part_end(at)) {
      const AttentionRows& rows = keys.part_of(at);
      const int64_t end = std::min(to, keys.part_end(at)), done = at - from;
      load_rows(row, rows.dtype, rows.d_stride, task->head_size, padded, at, end,
                hidden == nullptr ? nullptr : hidden + done, room + done * padded, pieces);
    }
  }
};

// One row's sums as output and lse; values is the sum of values, and room for as many.
template <typename T>
void store_row(const AttentionTask& task, int64_t row, T* values, T shift, T sum) {
  const int64_t query = task.query_of(row), head = row % task.q.group;
  const bool sees_nothing = sum == 0;
  const T inverse = sees_nothing ? T{0} : T{1} / sum;
  for (int64_t i = 0; i < task.head_size; ++i) values[i] *= inverse;
  narrow(values, task.head_size, task.out.row(query, head), task.out.dtype, task.out.d_stride);
  if (!task.lse.present()) return;
  const double lse = sees_nothing
                         ? -std::numeric_limits<double>::infinity()
                         : (static_cast<double>(shift) + std::log2(static_cast<double>(sum))) * 0.6931471805599453;
  store_element(task.lse.row(query, head), task.lse.dtype, 0, lse);
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
