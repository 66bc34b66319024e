// Rows of each expert times its own weight matrix, and the gradients. The host knows where the rows of each expert
// begin. Experts of equally many rows that follow each other are one batch of products, and products that need more
// than the workspace come in parts.
#include "../heads.hpp"
#include "../products.hpp"

#include <array>

namespace rlk::composed {

// y = a b of each group: [groups, rows, columns] of [groups, rows, depth] and [groups, depth, columns].
class GroupProducts {
public:
  GroupProducts(View a, View b, View y)
      : a_(std::move(a)), b_(std::move(b)), y_(std::move(y)), all_{y_.dims[0], y_.dims[1], y_.dims[2], a_.dims[2]} {}

  void compose(Parts& parts) const {
    if (parts.is_whole()) return parts.add([&](Recorder& recorder) { record(recorder, {}, all_); });
    if (element_count(y_.dims) == 0) return;
    const Sizes size = size_of_part(parts);
    Sizes at{};
    for (at[kGroups] = 0; at[kGroups] < all_[kGroups]; at[kGroups] += size[kGroups]) {
      for (at[kRows] = 0; at[kRows] < all_[kRows]; at[kRows] += size[kRows]) {
        for (at[kColumns] = 0; at[kColumns] < all_[kColumns]; at[kColumns] += size[kColumns]) {
          at[kDepth] = 0;
          do {
            Sizes own = size;
            for (size_t i = 0; i < own.size(); ++i) own[i] = std::min(own[i], all_[i] - at[i]);
            parts.add([&](Recorder& recorder) { record(recorder, at, own); });
            at[kDepth] += size[kDepth];
          } while (at[kDepth] < all_[kDepth]);
        }
      }
    }
  }

private:
  enum Axis : uint8_t { kGroups, kRows, kColumns, kDepth };
  using Sizes = std::array<int64_t, 4>;

  // Groups are divided first, then what there is most of. A sum over parts is in the output, which needs the dtype of
  // sums.
  Sizes size_of_part(const Parts& parts) const {
    Sizes size = all_;
    const auto divided = size.begin() + (sdk::bits_of(y_.dtype) > 16 ? kDepth : kColumns) + 1;
    const auto fits = [&] {
      Sizes last{};
      for (size_t i = 0; i < size.size(); ++i) last[i] = all_[i] - size[i];
      return parts.fits([&](Recorder& recorder) { record(recorder, last, size); }, parts.kept_bytes());
    };
    while (!fits()) {
      int64_t& most = size[kGroups] > 1 ? size[kGroups] : *std::max_element(size.begin() + kRows, divided);
      if (most <= 1) break;
      constexpr int64_t kFew = 32;  // multiples of it, where there are as many, keep every matrix aligned
      const int64_t half = (most + 1) / 2;
      most = half > kFew && &most != &size[kGroups] ? (half + kFew - 1) / kFew * kFew : half;
    }
    return size;
  }

  void record(Recorder& recorder, const Sizes& first, const Sizes& size) const {
    const auto part = [&](const View& whole, Axis outer, Axis inner) {
      View view = narrowed(whole, 0, first[kGroups], size[kGroups]);
      view = narrowed(narrowed(view, 1, first[outer], size[outer]), 2, first[inner], size[inner]);
      if (size[kGroups] != 1) return view;
      view.dims.erase(view.dims.begin()), view.strides.erase(view.strides.begin());
      return view;
    };
    const View a = part(a_, kRows, kDepth), b = part(b_, kDepth, kColumns), y = part(y_, kRows, kColumns);
    record_rows(recorder, y.dtype == sdk::Dtype::f64, [&](auto d) {
      const FactorReader<decltype(d)> factor{recorder};
      // As it lies in memory, so that a cast copies nothing before.
      const auto read = [&](View view) {
        const size_t axis = view.dims.size() - 2;
        const bool is_transposed = view.strides[axis] < view.strides[axis + 1];
        if (is_transposed) std::swap(view.dims[axis], view.dims[axis + 1]);
        if (is_transposed) std::swap(view.strides[axis], view.strides[axis + 1]);
        const Value x = factor(view, view.dtype == y.dtype);
        return is_transposed ? transposed(x) : x;
      };
      Value own = product(read(a), read(b));
      if (first[kDepth] > 0) own = Add({&recorder, recorder.table(y)}, own);
      put(recorder, y, own);
    });
  }

  const View a_, b_, y_;
  const Sizes all_;
};

// Visits the experts that have equally many rows and follow each other. What a query asks for is all of them at once,
// with the rows of their mean.
template <class Op, class Visit>
void each_group(Parts& parts, const Arguments<Op>& call, const Visit& visit) {
  parts.may_fail();
  if (parts.is_whole()) {
    const int64_t rows = call.R / std::max<int64_t>(1, call.E) + 1;
    return visit(EqualSequences{0, call.E, 0, rows, 0, rows});
  }
  const std::vector<int64_t> starts = host_values(call.cu_seqlens);
  if (const auto error = bad_seqlens(starts, call.R, RLK_DATA_BAD_SEQLENS)) {
    parts.fail(*error);
    return answer_nan<Op>(parts, call);
  }
  for (const EqualSequences& batch : equal_sequences(starts, starts)) visit(batch);
}
inline View rows_of_experts(const EqualSequences& batch, const View& tensor) {
  return as_sequences(tensor, batch.q_first, batch.count, batch.q_length);
}
inline View matrices_of_experts(const EqualSequences& batch, const View& tensor) {
  return narrowed(tensor, 0, batch.first, batch.count);
}
inline View exchanged(const View& matrices) {
  return permuted(matrices, {0, 2, 1});
}

inline void compose_grouped_gemm(Parts& parts, const Arguments<sdk::ops::GroupedGemm>& call) {
  each_group<sdk::ops::GroupedGemm>(parts, call, [&](const EqualSequences& batch) {
    GroupProducts(rows_of_experts(batch, call.x), exchanged(matrices_of_experts(batch, call.weight)),
                  rows_of_experts(batch, call.y))
        .compose(parts);
  });
}

inline void compose_grouped_gemm_backward(Parts& parts, const Arguments<sdk::ops::GroupedGemmBackward>& call) {
  each_group<sdk::ops::GroupedGemmBackward>(parts, call, [&](const EqualSequences& batch) {
    const View grad_y = rows_of_experts(batch, call.grad_y);
    GroupProducts(grad_y, matrices_of_experts(batch, call.weight), rows_of_experts(batch, call.grad_x)).compose(parts);
    if (!call.grad_weight.is_present()) return;
    GroupProducts(exchanged(grad_y), rows_of_experts(batch, call.x), matrices_of_experts(batch, call.grad_weight))
        .compose(parts);
  });
}

}  // namespace rlk::composed

RLK_COMPOSED_PARTS(GroupedGemm, std::nullopt, sdk::bits_of(&sdk::Arguments<Op>::cu_seqlens), compose_grouped_gemm)
RLK_COMPOSED_PARTS(GroupedGemmBackward, std::nullopt, sdk::bits_of(&sdk::Arguments<Op>::cu_seqlens),
                   compose_grouped_gemm_backward)
