// What the host passes to the kernels: plain structs, the same bytes on both sides of a launch.
// Sizes and strides are in elements, everything that indexes memory is 64-bit.
#pragma once

#include <cstdint>

namespace rlk::simt {

// The layout of rlk_data_error_record (checked where the plugin includes both).
struct DataErrorRecord {
  int32_t state;
  int32_t kind;
  uint32_t tag;
  uint32_t reserved;
  int64_t row;
  int64_t value;
};

// The values of RLK_DATA_*.
constexpr int32_t kDataIdOutOfRange = 1;
constexpr int32_t kDataNoFiniteLogit = 2;
constexpr int32_t kDataRowOutOfRange = 3;
constexpr int32_t kDataBadSeqlens = 4;
constexpr int32_t kDataBadSecondSeqlens = 5;

struct DataErrorSink {
  DataErrorRecord* record;  // nullptr: errors leave their NaN only
  uint32_t tag;
  uint32_t reserved;
};

// Which rows take part and what they ask for: the same in logp and logp_backward.
struct TokenRows {
  const void* ids;
  const uint8_t* mask;         // nullptr: every row
  const int64_t* row_indices;  // nullptr: row n reads logits row n
  int64_t rows;                // N
  int64_t logits_rows;         // R
  int64_t ignore_index;
  int64_t id_limit;     // global vocabulary
  int64_t vocab_start;  // global id of column 0
  int64_t vocab;        // V, columns here
  int32_t ids_are_i64;
  int32_t sharded;  // the vocabulary here is not all of it
};

// z = cap(x + bias) / temperature, prepared for the kernels.
struct LogitTransform {
  const void* bias;    // nullptr: none
  double temperature;  // divides
  double softcap;      // 0: none
  float exp2_scale;    // log2(e) / temperature, rounded
  int32_t reserved;
};

struct LogpPartial {
  double max;       // of cap(x + bias), -inf for a segment without finite logits
  double sum;       // of exp((y - max) / temperature)
  double weighted;  // of exp(d) d with d = (y - max) / temperature * log2(e)
};

struct LogpArgs {
  const void* logits;
  int64_t row_stride;
  TokenRows tokens;
  LogitTransform transform;
  void* logp;
  void* lse;                    // nullptr: not wanted
  void* entropy;                // nullptr: not wanted
  LogpPartial* part;            // [N, segments]
  int64_t segments;             // of a row
  int64_t block_segments;       // that a block takes, at most kLogpBlockSegments
  int32_t logp_is_accumulator;  // logp has the accumulator's dtype, else that of the logits
  int32_t aligned;              // every row starts on a 16-byte boundary
  DataErrorSink errors;
  const uint8_t* keep_mask;  // [R, V], 0 drops the logit; nullptr: none
  void* sum_p2;              // nullptr: not wanted
  double* squares;           // with sum_p2, [N, segments]: of each segment, sum of exp((y - max) / temperature)^2
};

// One token of logp_backward, as its rows kernel leaves it for the gradient kernel.
// grad[v] = p[v] (gain - entropy_gain log2 p[v]) (1 - (cap(x) / softcap)^2), but for the target.
struct LogpBackwardRow {
  double base, base_low;  // lse * temperature: what is subtracted from cap(x + bias), and what rounding it lost
  double gain;
  double entropy_gain;
  double target_gradient;
  int64_t target;  // column here, or -1
  int32_t state;   // kRow*
  int32_t reserved;
};
constexpr int32_t kRowZero = 0;
constexpr int32_t kRowActive = 1;
constexpr int32_t kRowNan = 2;

struct LogpBackwardArgs {
  const void* logits;
  int64_t row_stride;
  TokenRows tokens;
  LogitTransform transform;
  const void* lse;
  const void* grad_logp;
  const void* grad_lse;      // nullptr: 0
  const void* grad_entropy;  // nullptr: 0
  const void* entropy;
  void* grad_logits;
  int64_t grad_row_stride;
  void* grad_bias;         // nullptr: not wanted
  LogpBackwardRow* row;    // [N]
  int64_t* owner;          // [backward_owners(R)], -1 before the rows kernel; nullptr without row_indices
  void* bias_part;         // [chunks, V] accumulators, with grad_bias
  int64_t rows_per_chunk;  // logits rows that one block walks over
  int64_t chunks;          // of the logits rows
  int64_t first_block;     // of this launch, when one grid cannot hold all blocks
  int32_t grad_logp_is_accumulator;
  int32_t aligned;  // every row of logits and grad_logits starts on a 16-byte boundary
  DataErrorSink errors;
  const uint8_t* keep_mask;  // [R, V], 0 drops the logit; nullptr: none
};
constexpr int64_t kOwnerNan = INT64_MAX;  // of a logits row that a bad row index named

// Strides of one attention tensor; its head size dimension is contiguous.
struct AttentionTensor {
  void* data;
  int64_t batch_stride;  // 0 in the packed layout
  int64_t token_stride;
  int64_t head_stride;
};

struct AttentionArgs {
  AttentionTensor q, k, v, out;
  void* lse;         // [tokens, Hq], nullptr: not wanted
  const void* cu_q;  // packed: [sequences + 1]
  const void* cu_k;
  int64_t* plan;  // packed: [sequences + 2], first blocks of each sequence, then 1 if the layout is bad
  int64_t sequences;
  int64_t queries;  // of each dense sequence, or of all packed ones
  int64_t keys;
  int64_t window_left;  // -1: all
  int64_t window_right;
  const uint8_t* key_mask;  // dense: 0 hides the key; nullptr: none
  int64_t mask_batch_stride;
  int64_t mask_key_stride;
  int64_t first_block;  // of this launch, when one grid cannot hold all blocks
  int32_t q_heads;
  int32_t kv_heads;
  int32_t group;  // q_heads / kv_heads
  int32_t head_size;
  int32_t packed;
  int32_t cu_are_i64;
  int32_t block_rows;   // rows (query, head of the group) of one block
  int32_t top_left;     // query i stands at key i, else the last query at the last key
  int32_t key_columns;  // of the head size that attention_simt holds in shared memory at a time
  int32_t reserved;
  double scale;
  double softcap;  // 0: none
  DataErrorSink errors;
};

}  // namespace rlk::simt
