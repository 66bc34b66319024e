// Groups of channels less their mean, divided by their standard deviation, and the gradients: a block has a group, in
// fp64, and reads it three times; the gradients of weight and bias are a block's of each channel.
#include "../skeleton/move.cuh"

namespace rlk::simt {

struct NormRules {
  int64_t samples, channels, places, groups;
  double eps;
};

}  // namespace rlk::simt

#if defined(RLK_SIMT_MOVES_ON_DEVICE)
namespace rlk::simt {

using formula::Add;
using formula::Mul;
using formula::Sub;

// The tensors: y or grad_x, x, weight, bias or grad_y, grad_weight, grad_bias.
struct NormPlaces {
  enum { kOut, kX, kWeight, kBias, kGrad = kBias, kGradWeight, kGradBias };
};

// The mean, and what it is off by: a sum over a group loses digits. Of numbers that are all equal, differences to the
// mean are 0.
struct NormMoments {
  double mean, off, rstd;

  __device__ __forceinline__ double normal(double x) const { return Mul(Sub(Sub(x, mean), off), rstd); }
};

// The numbers of a group, of sample n and the channels from `channel` on.
template <class T>
struct NormGroup {
  const MoveArgs& args;
  int64_t n, channel, places, count;

  __device__ __forceinline__ NormGroup(const MoveArgs& given, int64_t row) : args(given) {
    const auto& rules = move_rules<NormRules>(given);
    const int64_t channels = rules.channels / rules.groups;
    n = row / rules.groups;
    channel = (row - n * rules.groups) * channels;
    places = rules.places;
    count = channels * places;
  }
  __device__ __forceinline__ int64_t at(int t, int64_t c, int64_t s) const {
    const int64_t* const stride = args.tensor[t].stride;
    return n * stride[0] + c * stride[1] + s * stride[2];
  }
  __device__ __forceinline__ double number(int t, int64_t c, int64_t s) const {
    return widen(static_cast<const T*>(args.tensor[t].data)[at(t, c, s)]);
  }
  __device__ __forceinline__ void put(int t, int64_t c, int64_t s, double x) const {
    static_cast<T*>(args.tensor[t].data)[at(t, c, s)] = Narrow<T>::of(x);
  }
  // function(channel, place) of each number, by the block.
  template <class Function>
  __device__ __forceinline__ void each(const Function& function) const {
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < count; i += kMoveThreads) {
      const int64_t c = move_divide(args.divisor[0], i);
      function(channel + c, i - c * places);
    }
  }
  __device__ __forceinline__ double weight(int64_t c) const {
    const MoveTensor& tensor = args.tensor[NormPlaces::kWeight];
    return tensor.data == nullptr ? 1 : move_number(tensor, c * tensor.stride[0]);
  }
  __device__ __forceinline__ double bias(int64_t c) const {
    const MoveTensor& tensor = args.tensor[NormPlaces::kBias];
    return tensor.data == nullptr ? 0 : move_number(tensor, c * tensor.stride[0]);
  }
  __device__ __forceinline__ NormMoments moments() const {
    const auto size = static_cast<double>(count);
    const double first = number(NormPlaces::kX, channel, 0);
    double sum = 0, off = 0, squares = 0;
    each([&](int64_t c, int64_t s) { sum = Add(sum, Sub(number(NormPlaces::kX, c, s), first)); });
    const double mean = Add(first, move_block_sum(sum) / size);
    each([&](int64_t c, int64_t s) {
      const double difference = Sub(number(NormPlaces::kX, c, s), mean);
      off = Add(off, difference);
      squares = Add(squares, Mul(difference, difference));
    });
    off = move_block_sum(off) / size;
    return {mean, off, 1 / ::sqrt(move_block_sum(squares) / size + move_rules<NormRules>(args).eps)};
  }
};

template <class T>
__device__ __forceinline__ void norm_groups(const MoveArgs& args) {
  using At = NormPlaces;
  for (int64_t row = blockIdx.x; row < args.units; row += gridDim.x) {
    const NormGroup<T> group(args, row);
    if (group.count == 0) continue;
    const NormMoments m = group.moments();
    group.each([&](int64_t c, int64_t s) {
      group.put(At::kOut, c, s, formula::MulAdd(m.normal(group.number(At::kX, c, s)), group.weight(c), group.bias(c)));
    });
  }
}

template <class T>
__device__ __forceinline__ void norm_gradients(const MoveArgs& args) {
  using At = NormPlaces;
  for (int64_t row = blockIdx.x; row < args.units; row += gridDim.x) {
    const NormGroup<T> group(args, row);
    if (group.count == 0) continue;
    const NormMoments m = group.moments();
    if (threadIdx.x == 0) static_cast<NormMoments*>(args.work[0])[row] = m;
    double sum = 0, along = 0;
    group.each([&](int64_t c, int64_t s) {
      const double g = Mul(group.number(At::kGrad, c, s), group.weight(c));
      sum = Add(sum, g);
      along = Add(along, Mul(g, m.normal(group.number(At::kX, c, s))));
    });
    const auto size = static_cast<double>(group.count);
    sum = move_block_sum(sum) / size;
    along = move_block_sum(along) / size;
    group.each([&](int64_t c, int64_t s) {
      const double g = Mul(group.number(At::kGrad, c, s), group.weight(c));
      const double v = m.normal(group.number(At::kX, c, s));
      group.put(At::kOut, c, s, Mul(m.rstd, Sub(Sub(g, sum), Mul(v, along))));
    });
  }
}

// What a thread adds up of a channel: of few places one term of each sample, and of fp64 with what the sum loses.
template <class T>
struct NormSum {
  double sum = 0, lost = 0;

  __device__ __forceinline__ void add(double term) {
    const double next = Add(sum, term);
    if constexpr (sizeof(T) == 8) {
      const double added = next - sum;
      lost = Add(lost, Add(sum - (next - added), term - added));
    }
    sum = next;
  }
  __device__ __forceinline__ double value() const { return sum - sum == 0 ? sum + lost : sum; }
};

template <class T>
__device__ __forceinline__ void norm_channels(const MoveArgs& args) {
  using At = NormPlaces;
  const auto& rules = move_rules<NormRules>(args);
  for (int64_t c = blockIdx.x; c < args.units; c += gridDim.x) {
    const int64_t channels = rules.channels / rules.groups, g = c / channels;
    NormSum<T> of_weight, of_bias;
    for (int64_t n = 0; n < rules.samples; ++n) {
      const NormGroup<T> group(args, n * rules.groups + g);
      const NormMoments m = static_cast<const NormMoments*>(args.work[0])[n * rules.groups + g];
#pragma unroll 4
      for (int64_t s = threadIdx.x; s < rules.places; s += kMoveThreads) {
        const double grad = group.number(At::kGrad, c, s);
        of_weight.add(Mul(grad, m.normal(group.number(At::kX, c, s))));
        of_bias.add(grad);
      }
    }
    const double grad_weight = move_block_sum(of_weight.value()), grad_bias = move_block_sum(of_bias.value());
    if (threadIdx.x != 0) continue;
    move_put(args.tensor[At::kGradWeight], c * args.tensor[At::kGradWeight].stride[0], grad_weight);
    move_put(args.tensor[At::kGradBias], c * args.tensor[At::kGradBias].stride[0], grad_bias);
  }
}

}  // namespace rlk::simt
#else

namespace rlk::simt::host::moves {

// Blocks of groups, and of channels where their gradients are wanted.
template <class Call>
MoveCall normed_groups(const Call& call, std::initializer_list<const rlk_tensor*> tensors, bool of_channels) {
  const int64_t samples = call.x->shape[0], channels = call.x->shape[1], places = call.x->shape[2];
  MoveCall out = with_rules(by_units(0, tensors, {}),
                            simt::NormRules{samples, channels, places, call.params.groups, call.params.eps});
  out.count = 0;
  out.args.divisor[0] = divisor_of(places);
  out.add({0, samples * call.params.groups, 1});
  if (of_channels) out.add({1, channels, 1});
  return out;
}
template <class Call>
MoveCall group_norm_gradients(const Call& call) {
  MoveCall out =
      of_batch(normed_groups(call, {call.grad_x, call.x, call.weight, call.grad_y, call.grad_weight, call.grad_bias},
                             call.grad_weight != nullptr || call.grad_bias != nullptr));
  out.may_work = true;
  out.work_bytes[0] = static_cast<uint64_t>(call.x->shape[0] * call.params.groups) * 3 * sizeof(double);
  return out;
}

}  // namespace rlk::simt::host::moves
#endif

RLK_SIMT_MOVES_KERNEL(groups,
                      with_move_type(args.tensor[1].dtype, [&](auto type) { norm_groups<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL(gradients,
                      with_move_type(args.tensor[1].dtype, [&](auto type) { norm_gradients<decltype(type)>(args); });)
RLK_SIMT_MOVES_KERNEL(channels,
                      with_move_type(args.tensor[1].dtype, [&](auto type) { norm_channels<decltype(type)>(args); });)
RLK_SIMT_MOVES(GroupNorm, ("groups"), normed_groups(call, {call.y, call.x, call.weight, call.bias}, false))
RLK_SIMT_MOVES(GroupNormBackward, ("gradients", "channels"), group_norm_gradients(call))
