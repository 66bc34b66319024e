// Advantages of tokens over a baseline per position of their group, in fp64. A token's place among those that its group
// compares is its slot, and sequences have their slots one behind the other.
//
//   check     cu_seqlens, by a block
//   along     a block has a sequence: the running sums of its tokens, G and W, into slots
//   groups    a thread has a sequence: where its group begins and goes on, and where its own tail does
//   across    a thread has a token: the baseline from the slots of the group's sequences, in their order
#include "../skeleton/move.cuh"

namespace rlk::simt {

struct BaselineRules {
  int64_t sequences, length;  // length: of each dense sequence, or of all packed ones
  int64_t group;              // sequences of each, where there are no ids
  double eps;
  int32_t is_active, zeroes_tail;
};
constexpr int kBaselineItems = 4;  // tokens of a thread and step

// What is known of a sequence.
struct BaselineSequence {
  int64_t active;
  int64_t first, next;  // of its group; -1: none
  int64_t members;      // of its group; 0: it is in none
  int64_t tail;         // from this slot on it has no baseline
};

}  // namespace rlk::simt

#if defined(RLK_SIMT_MOVES_ON_DEVICE)

#include "../skeleton/seqlens.cuh"

namespace rlk::simt {

struct BaselinePlaces {
  enum { kAdvantages, kReturns, kRewards, kLogp, kSumP2, kMask, kWeight, kGroupIds, kCuSeqlens };
};

struct BaselineCall {
  using At = BaselinePlaces;
  const MoveArgs& args;
  const BaselineRules& rules;
  double *returns, *weights;  // of slots
  int32_t* slots;             // of tokens, -1: none
  BaselineSequence* known;
  int64_t* bad;

  __device__ __forceinline__ explicit BaselineCall(const MoveArgs& given)
      : args(given), rules(move_rules<BaselineRules>(given)) {
    const int64_t total = tokens();
    returns = static_cast<double*>(given.work[0]);
    weights = returns + total;
    slots = static_cast<int32_t*>(given.work[1]);
    known = static_cast<BaselineSequence*>(given.work[2]);
    bad = reinterpret_cast<int64_t*>(known + rules.sequences);
  }
  __device__ __forceinline__ bool is_packed() const { return args.tensor[At::kCuSeqlens].data != nullptr; }
  __device__ __forceinline__ int64_t tokens() const {
    return is_packed() ? rules.length : rules.sequences * rules.length;
  }
  __device__ __forceinline__ bool is_bad() const { return is_packed() && *bad >= 0; }
  __device__ __forceinline__ int64_t first_slot(int64_t b) const {
    const MoveTensor& cu = args.tensor[At::kCuSeqlens];
    return is_packed() ? move_id(cu, b * cu.stride[0]) : b * rules.length;
  }
  __device__ __forceinline__ int64_t length(int64_t b) const {
    return is_packed() ? first_slot(b + 1) - first_slot(b) : rules.length;
  }
  // Of the token with that number among all.
  __device__ __forceinline__ int64_t place(int t, int64_t number) const {
    const int64_t* const stride = args.tensor[t].stride;
    if (is_packed()) return number * stride[0];
    const int64_t b = move_divide(args.divisor[0], number);
    return b * stride[0] + (number - b * rules.length) * stride[1];
  }
  __device__ __forceinline__ bool is_kept(int64_t number) const {
    const MoveTensor& mask = args.tensor[At::kMask];
    return mask.data == nullptr || static_cast<const uint8_t*>(mask.data)[place(At::kMask, number)] != 0;
  }
  __device__ __forceinline__ double read(int t, int64_t number) const {
    return move_number(args.tensor[t], place(t, number));
  }
  __device__ __forceinline__ void put(int t, int64_t number, double x) const {
    if (args.tensor[t].data != nullptr) move_put(args.tensor[t], place(t, number), x);
  }
  __device__ __forceinline__ int64_t slots_of(int64_t b) const {
    return rules.is_active != 0 ? known[b].active : length(b);
  }
  __device__ __forceinline__ bool counts(int64_t b) const { return rules.is_active == 0 || known[b].active > 0; }
  __device__ __forceinline__ int64_t id(int64_t b) const {
    const MoveTensor& ids = args.tensor[At::kGroupIds];
    return ids.data == nullptr ? b / rules.group : move_id(ids, b * ids.stride[0]);
  }
  __device__ __forceinline__ bool has_ids() const { return args.tensor[At::kGroupIds].data != nullptr; }
};

__device__ __forceinline__ void baseline_check(const MoveArgs& args) {
  const BaselineCall call(args);
  const MoveTensor& cu = args.tensor[BaselinePlaces::kCuSeqlens];
  const Seqlens of = {cu.data, cu.stride[0], call.rules.sequences, call.rules.length, cu.dtype == kMapI64 ? 1 : 0,
                      0,       args.errors};
  const int64_t bad = check_seqlens<kMoveThreads>(of, true);
  if (threadIdx.x == 0) *call.bad = bad;
}

// The sums of what the threads before this one have, and of all.
struct BaselineSum {
  double sum;
  int count;
};
__device__ inline BaselineSum baseline_before(BaselineSum own, BaselineSum& total) {
  __shared__ double sums[kMoveThreads / 32];
  __shared__ int counts[kMoveThreads / 32];
  const int me = static_cast<int>(threadIdx.x), lane = me % kWave;
  BaselineSum sum = own;
#pragma unroll
  for (int lanes = 1; lanes < kWave; lanes *= 2) {
    const int from = lane >= lanes ? lane - lanes : lane;
    const double before = wave_read(sum.sum, from);
    const int more = wave_read(sum.count, from);
    if (lane < lanes) continue;
    sum.sum = formula::Add(before, sum.sum);
    sum.count += more;
  }
  // Not less the own one: what is lost in the sum would be there.
  const int left = lane > 0 ? lane - 1 : 0;
  BaselineSum before = {wave_read(sum.sum, left), wave_read(sum.count, left)};
  if (lane == 0) before = {0, 0};
  if (lane == kWave - 1) {
    sums[me / kWave] = sum.sum;
    counts[me / kWave] = sum.count;
  }
  __syncthreads();
  total = {0, 0};
  for (int w = 0; w < kMoveThreads / kWave; ++w) {
    if (w == me / kWave) before = {formula::Add(total.sum, before.sum), total.count + before.count};
    total = {formula::Add(total.sum, sums[w]), total.count + counts[w]};
  }
  __syncthreads();
  return before;
}

// From the first token to the last, or back. function(number) of a kept token is what it adds; put(number, its number
// among the kept ones, the sum with it) of every token. The number of all kept ones.
template <class Function, class Put>
__device__ __forceinline__ int64_t baseline_scan(const BaselineCall& call, int64_t first, int64_t length, bool back,
                                                 const Function& function, const Put& put) {
  double carried = 0;
  int64_t kept_before = 0;
  for (int64_t begin = 0; begin < length; begin += kMoveThreads * kBaselineItems) {
    double x[kBaselineItems];
    bool kept[kBaselineItems];
    int64_t number[kBaselineItems];
    BaselineSum own = {0, 0}, total;
#pragma unroll
    for (int i = 0; i < kBaselineItems; ++i) {
      const int64_t t = begin + threadIdx.x * kBaselineItems + i;
      number[i] = first + (back ? length - 1 - t : t);
      kept[i] = t < length && call.is_kept(number[i]);
      x[i] = kept[i] ? function(number[i]) : 0;
      own = {formula::Add(own.sum, x[i]), own.count + (kept[i] ? 1 : 0)};
    }
    BaselineSum before = baseline_before(own, total);
    int64_t kept_here = kept_before + before.count;
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kBaselineItems; ++i) {
      sum = formula::Add(sum, x[i]);
      if (begin + threadIdx.x * kBaselineItems + i >= length) continue;
      put(number[i], kept[i], kept_here, formula::Add(carried, formula::Add(before.sum, sum)));
      if (kept[i]) ++kept_here;
    }
    carried = formula::Add(carried, total.sum);
    kept_before += total.count;
  }
  return kept_before;
}

__device__ __forceinline__ void baseline_along(const MoveArgs& args) {
  using At = BaselinePlaces;
  const BaselineCall call(args);
  if (call.is_bad()) return;
  const bool is_active = call.rules.is_active != 0;
  for (int64_t b = blockIdx.x; b < args.units; b += gridDim.x) {
    const int64_t first = call.first_slot(b), length = call.length(b);
    const int64_t active = baseline_scan(
        call, first, length, false,
        [&](int64_t number) {
          const double weight = args.tensor[At::kWeight].data == nullptr ? 1 : call.read(At::kWeight, number);
          const double share = 1 - 2 * ::exp(call.read(At::kLogp, number)) + call.read(At::kSumP2, number);
          return formula::Mul(share, formula::Mul(weight, weight));
        },
        [&](int64_t number, bool kept, int64_t before, double sum) {
          if (is_active && !kept) {
            call.slots[number] = -1;
            return;
          }
          const int64_t slot = is_active ? before : number - first;
          call.slots[number] = static_cast<int32_t>(slot);
          call.weights[first + slot] = kept ? sum : 0;
        });
    baseline_scan(
        call, first, length, true, [&](int64_t number) { return call.read(At::kRewards, number); },
        [&](int64_t number, bool kept, int64_t before, double sum) {
          if (is_active && !kept) return;
          call.returns[first + (is_active ? active - 1 - before : number - first)] = kept ? sum : 0;
        });
    if (threadIdx.x == 0) call.known[b].active = active;
  }
}

__device__ __forceinline__ void baseline_groups(const MoveArgs& args, int64_t b) {
  const BaselineCall call(args);
  const BaselineRules& rules = call.rules;
  if (call.is_bad()) return;
  BaselineSequence own = {call.known[b].active, -1, -1, 0, INT64_MAX};
  const int64_t id = call.id(b);
  const bool is_sound = !call.has_ids() || (id >= 0 && id < rules.sequences);
  if (call.counts(b) && !is_sound) report_data_error(args.errors, kDataIdOutOfRange, b, id);
  if (call.counts(b) && is_sound) {
    const int64_t begin = call.has_ids() ? 0 : b / rules.group * rules.group;
    const int64_t end = call.has_ids() ? rules.sequences : begin + rules.group;
    int64_t longest = -1, second = -1, longest_b = -1;
    for (int64_t other = begin; other < end; ++other) {
      if (call.has_ids() && call.id(other) != id) continue;
      if (!call.counts(other)) continue;
      const int64_t active = call.known[other].active;
      ++own.members;
      if (own.first < 0) own.first = other;
      if (other > b && own.next < 0) own.next = other;
      if (active > longest) {
        second = longest;
        longest = active;
        longest_b = other;
      } else if (active > second) {
        second = active;
      }
    }
    if (rules.zeroes_tail != 0 && longest_b == b && longest > second) own.tail = second;
  }
  // Others read what they need of `active` alone, which stays.
  call.known[b].first = own.first;
  call.known[b].next = own.next;
  call.known[b].members = own.members;
  call.known[b].tail = own.tail;
}

__device__ __forceinline__ void baseline_across(const MoveArgs& args, int64_t number) {
  using At = BaselinePlaces;
  const BaselineCall call(args);
  const auto put = [&](double advantage, double of_return) {
    call.put(At::kAdvantages, number, advantage);
    call.put(At::kReturns, number, of_return);
  };
  if (call.is_bad()) return put(NAN, NAN);
  int64_t b = 0;
  if (!call.is_packed()) {
    b = move_divide(args.divisor[0], number);
  } else {  // the last sequence that does not begin behind the token
    int64_t low = 0, high = call.rules.sequences;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      if (call.first_slot(middle) <= number) {
        low = middle;
      } else {
        high = middle;
      }
    }
    b = low;
  }
  const BaselineSequence own = call.known[b];
  if (own.members == 0 && call.counts(b)) return put(NAN, NAN);
  if (!call.is_kept(number)) return put(0, 0);
  const int64_t slot = call.slots[number];
  double baseline = 0;
  if (own.members > 1 && slot < own.tail) {
    double numerator = 0, denominator = 0;
    for (int64_t other = own.first; other >= 0; other = call.known[other].next) {
      if (slot >= call.slots_of(other)) continue;
      const int64_t at = call.first_slot(other) + slot;
      const double weight = call.weights[at];
      numerator = formula::Add(numerator, formula::Mul(call.returns[at], weight));
      denominator = formula::Add(denominator, weight);
    }
    baseline = numerator / (denominator + call.rules.eps);
  }
  const double of_return = call.returns[call.first_slot(b) + slot];
  put(formula::Sub(of_return, baseline), of_return);
}

}  // namespace rlk::simt
#else

namespace rlk::simt::host::moves {

template <class Call>
MoveCall baselines_of_groups(const Call& call) {
  const bool is_packed = call.cu_seqlens != nullptr;
  const rlk_tensor& rewards = *call.rewards;
  const int64_t sequences = is_packed ? call.cu_seqlens->shape[0] - 1 : rewards.shape[0];
  const int64_t length = rewards.shape[is_packed ? 0 : 1], tokens = is_packed ? length : sequences * length;
  simt::BaselineRules rules{};
  rules.sequences = sequences;
  rules.length = length;
  rules.group = call.params.samples_per_prompt > 0 ? call.params.samples_per_prompt : std::max<int64_t>(sequences, 1);
  rules.eps = call.params.eps;
  rules.is_active = call.params.position == decltype(call.params.position)::active ? 1 : 0;
  rules.zeroes_tail = call.params.zero_tail == decltype(call.params.zero_tail)::on ? 1 : 0;
  MoveCall out = with_rules(of_batch(by_units(0,
                                              {call.advantages, call.returns, call.rewards, call.logp, call.sum_p2,
                                               call.mask, call.weight, call.group_ids, call.cu_seqlens},
                                              {})),
                            rules);
  out.may_work = true;
  out.args.divisor[0] = divisor_of(length);
  out.work_bytes[0] = static_cast<uint64_t>(tokens) * 2 * sizeof(double);
  out.work_bytes[1] = static_cast<uint64_t>(std::max<int64_t>(tokens, 1)) * sizeof(int32_t);
  out.work_bytes[2] = static_cast<uint64_t>(sequences) * sizeof(simt::BaselineSequence) + sizeof(int64_t);
  if (length >= int64_t{1} << 31) out.refusal = sdk::Support::no("SIZE", "a slot is a number of 31 bits");
  out.count = 0;
  if (is_packed) out.add({0, 1, 1});
  out.add({1, sequences, 1});
  out.add({2, sequences});
  out.add({3, tokens});
  return out;
}

}  // namespace rlk::simt::host::moves
#endif

RLK_SIMT_MOVES_KERNEL(check, baseline_check(args);)
RLK_SIMT_MOVES_KERNEL(along, baseline_along(args);)
RLK_SIMT_MOVES_UNITS(groups, baseline_groups(args, unit);)
RLK_SIMT_MOVES_UNITS(across, baseline_across(args, unit);)
RLK_SIMT_MOVES(OptimalTokenBaseline, ("check", "along", "groups", "across"), baselines_of_groups(call))
