// prefix_shared_attention without matrix units. A block serves one key head of one group of samples; its rows are
// (sample, query, head of the group), so that the queries of several samples, a decoded token's above all, share one
// read of the prefix. Then each sample's own keys are taken in by its own rows. Tiles of keys start at multiples of the
// tile from the first key of the prefix, and of the own keys: a row's bits depend on its own keys alone.
#pragma once

#include "attention_rows.cuh"
#include "attention_samples.cuh"

namespace rlk::simt {

template <class T>
__device__ __forceinline__ void prefix_attention(const SampleAttentionArgs& args) {
  using A = Accumulator<T>;
  const int64_t rows_of_sample = args.queries * args.group, rows = args.samples * rows_of_sample;
  const int64_t blocks = (rows + kSimtBlockRows - 1) / kSimtBlockRows;
  const int64_t item = args.first_block + blockIdx.x, unit = item / blocks;
  const int64_t batch = unit / args.kv_heads, kv_head = unit - batch * args.kv_heads;
  const int64_t first_row = (item - unit * blocks) * kSimtBlockRows;
  const int64_t last_row = (first_row + kSimtBlockRows < rows ? first_row + kSimtBlockRows : rows) - 1;

  struct Row {
    int64_t sample, query, head;
  };
  const auto find = [&](int64_t row) {
    Row found{};
    found.sample = row / rows_of_sample;
    const int64_t in_sample = row - found.sample * rows_of_sample;
    found.query = in_sample / args.group;
    found.head = kv_head * args.group + (in_sample - found.query * args.group);
    return found;
  };
  const auto row_of = [&](const SampleTensor& tensor, int at) -> T* {
    if (first_row + at > last_row) return nullptr;
    const Row row = find(first_row + at);
    return sample_row<T>(tensor, batch, row.sample, row.query, row.head);
  };

  SimtRows<T> block(dynamic_shared(), args.head_size, args.key_columns);
  block.load_queries([&](int at) -> const T* { return row_of(args.q, at); });

  const int64_t keys = args.prefix_keys + args.keys, diagonal = args.top_left != 0 ? 0 : keys - args.queries;
  const auto visible = [&](int64_t query) {
    return keys_in_window(args.window_left, args.window_right, keys, query + diagonal);
  };
  const Row first = find(first_row), last = find(last_row);
  // First the prefix, then the own keys of each sample. The keys that any row sees: bounds grow with the query, and
  // rows of several samples may be any query.
  for (int64_t part = first.sample - 1; part <= last.sample; ++part) {
    const bool is_prefix = part < first.sample;
    const bool has_first = is_prefix ? first.sample < last.sample : part > first.sample;
    const bool has_last = is_prefix ? first.sample < last.sample : part < last.sample;
    const int64_t first_seen = visible(has_first ? 0 : first.query).first;
    const int64_t last_seen = visible(has_last ? args.queries - 1 : last.query).last;
    const int64_t before = is_prefix ? 0 : args.prefix_keys;  // keys before those of the span
    const SampleTensor &k = is_prefix ? args.prefix_k : args.k, &v = is_prefix ? args.prefix_v : args.v;
    const KeySpan<T> span{sample_row<const T>(k, batch, part, 0, kv_head),
                          sample_row<const T>(v, batch, part, 0, kv_head),
                          k.token_stride,
                          v.token_stride,
                          is_prefix ? args.prefix_keys : args.keys,
                          key_mask_of(is_prefix ? args.prefix_mask : args.key_mask, batch, part)};
    KeyRange range[kSimtRows];
#pragma unroll
    for (int r = 0; r < kSimtRows; ++r) {
      const int64_t at = first_row + block.wave * kSimtRows + r;
      const Row row = find(at <= last_row ? at : last_row);
      const bool takes_part = at <= last_row && (is_prefix || row.sample == part);
      range[r] = takes_part ? span_of(visible(row.query), before, span.count) : KeyRange{0, -1};
    }
    const KeyRange all = span_of({first_seen, last_seen}, before, span.count);
    block.add_keys(args, span, all.first, all.last, range);
  }

  block.store([&](int at) { return row_of(args.out, at); },
              [&](int at) -> A* {
                if (args.lse.data == nullptr) return nullptr;
                const Row row = find(first_row + at);
                return sample_row<A>(args.lse, batch, row.sample, row.query, row.head);
              });
}

}  // namespace rlk::simt
