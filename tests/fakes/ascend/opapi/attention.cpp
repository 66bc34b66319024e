// The simulated fused attention, for layouts TND and BSND without quantisation, rope or shared prefix; keys and values
// in blocks for single queries in BSND. It computes in fp32 and rounds the output once. A query that sees no key
// follows innerPrecise as documented: 0 and 1 give a meaningless row (here the mean of all values), 2 and 3 correct it
// to zeros; lse is +inf in both cases.
#include <algorithm>
#include <limits>

#include "aclnn_api.h"
#include "element.h"

using namespace fake_ascend;

namespace {

constexpr Dtypes kHalves = {ACL_FLOAT16, ACL_BF16};
constexpr Dtypes kFloat = {ACL_FLOAT};
constexpr Dtypes kMask = {ACL_BOOL, ACL_INT8, ACL_UINT8};
constexpr int64_t kCompressedMask = 2048;  // rows and columns of the mask that sparseMode 2, 3 and 4 want

// Query rows q_first.. of one sequence, in rows of [tokens, heads, D], and its keys likewise.
struct Sequence {
  int64_t q_first, q_length, k_first, k_length;
};

struct Settings {
  std::vector<Sequence> sequences;
  bool tnd = false;
  int64_t heads = 0, kv_heads = 0, head_size = 0;
  float scale = 0;
  int64_t pre = 0, next = 0, sparse_mode = 0, inner_precise = 0;
  bool want_lse = false;
  int64_t block_size = 0;  // 0: not paged
};

// Query i (of Lq) may look at key j (of Lk) as sparseMode says.
bool visible(const Settings& s, const Sequence& sequence, int64_t i, int64_t j) {
  const int64_t corner = i + sequence.k_length - sequence.q_length;
  switch (s.sparse_mode) {
    case 2:  // causal from the upper left corner
      return j <= i;
    case 3:  // causal to the lower right corner
      return j <= corner;
    case 4:  // a band around the diagonal that ends in the lower right corner
      return j >= corner - s.pre && j <= corner + s.next;
    default:
      return true;
  }
}

void attend(const Settings& s, const Sequence& sequence, int64_t i, int64_t head, const std::vector<float>& q,
            const std::vector<float>& k, const std::vector<float>& v, const std::vector<int64_t>& mask,
            std::vector<float>& out, float* lse) {
  const int64_t d_count = s.head_size;
  const int64_t kv_head = head / (s.heads / s.kv_heads);
  const float* query = q.data() + ((sequence.q_first + i) * s.heads + head) * d_count;
  float* result = out.data() + ((sequence.q_first + i) * s.heads + head) * d_count;
  std::vector<float> score(static_cast<size_t>(sequence.k_length), -std::numeric_limits<float>::infinity());
  float max = -std::numeric_limits<float>::infinity();
  bool any = false;
  for (int64_t j = 0; j < sequence.k_length; ++j) {
    const bool hidden = !mask.empty() && mask[static_cast<size_t>(i * sequence.k_length + j)] != 0;
    if (hidden || !visible(s, sequence, i, j)) continue;
    const float* key = k.data() + ((sequence.k_first + j) * s.kv_heads + kv_head) * d_count;
    float sum = 0;
    for (int64_t d = 0; d < d_count; ++d) sum += query[d] * key[d];
    score[static_cast<size_t>(j)] = sum * s.scale;
    max = any ? std::max(max, sum * s.scale) : sum * s.scale;
    any = true;
  }
  float total = 0;
  if (any) {
    for (float& value : score) total += value = std::exp(value - max);
  } else if (s.inner_precise < 2 && sequence.k_length > 0) {
    for (float& value : score) total += value = 1;
  }
  if (lse != nullptr) *lse = any ? max + std::log(total) : std::numeric_limits<float>::infinity();
  for (int64_t d = 0; d < d_count; ++d) {
    float sum = 0;
    for (int64_t j = 0; j < sequence.k_length && total > 0; ++j) {
      const float value = v[static_cast<size_t>(((sequence.k_first + j) * s.kv_heads + kv_head) * d_count + d)];
      if (score[static_cast<size_t>(j)] != 0) sum += score[static_cast<size_t>(j)] / total * value;
    }
    // A NaN score makes total NaN and the row with it.
    result[d] = std::isnan(total) ? total : sum;
  }
}

// The compressed mask must hide exactly what lies above its diagonal.
int check_compressed_mask(const View& mask) {
  const auto* row = reinterpret_cast<const uint8_t*>(mask.data);
  for (int64_t i = 0; i < kCompressedMask; ++i, row += kCompressedMask) {
    const uint8_t* const diagonal = row + i + 1;
    const uint8_t* const end = row + kCompressedMask;
    const auto hides = [](uint8_t value) { return value != 0; };
    if (std::none_of(row, diagonal, hides) && std::all_of(diagonal, end, hides)) continue;
    violation("MASK_CONTENT",
              "aclnnFusedInferAttentionScoreV3: attenMask of sparseMode 2, 3, 4 is 1 above the diagonal "
              "and 0 elsewhere; wrong in row " +
                  std::to_string(i));
    return ACL_ERROR_RT_AICORE_EXCEPTION;
  }
  return 0;
}

// The keys or values of all sequences one after the other, from a cache of [blocks, block size, heads D]. The vendor
// does not check what a block table names.
std::vector<float> gather(const Settings& s, const std::vector<float>& cache, const View& table) {
  const auto blocks = load<int64_t>(table);
  const auto row = static_cast<size_t>(s.kv_heads * s.head_size);
  const auto known = static_cast<int64_t>(cache.size() / row) / s.block_size;
  std::vector<float> rows;
  for (size_t b = 0; b < s.sequences.size(); ++b) {
    for (int64_t j = 0; j < s.sequences[b].k_length; ++j) {
      const int64_t block = blocks[b * static_cast<size_t>(table.dims[1]) + static_cast<size_t>(j / s.block_size)];
      if (block < 0 || block >= known) {
        violation("INDEX_OUT_OF_RANGE", "aclnnFusedInferAttentionScoreV3: block " + std::to_string(block));
        return {};
      }
      const float* const first = cache.data() + static_cast<size_t>(block * s.block_size + j % s.block_size) * row;
      rows.insert(rows.end(), first, first + row);
    }
  }
  return rows;
}

int run(const Settings& s, const Operands& operands) {
  const View& mask_view = operands.in[4];
  std::vector<int64_t> mask;
  if (mask_view.present && s.sparse_mode >= 2) {
    if (const int code = check_compressed_mask(mask_view)) return code;
  } else if (mask_view.present) {
    mask = load<int64_t>(mask_view);
  }
  const auto q = load<float>(operands.in[0]);
  auto k = load<float>(operands.in[1]);
  auto v = load<float>(operands.in[2]);
  if (s.block_size > 0) {
    k = gather(s, k, operands.in[5]);
    v = gather(s, v, operands.in[5]);
  }
  std::vector<float> out(q.size());
  std::vector<float> lse(q.size() / static_cast<size_t>(s.head_size));
  for (size_t b = 0; b < s.sequences.size(); ++b) {
    const Sequence& sequence = s.sequences[b];
    for (int64_t i = 0; i < sequence.q_length; ++i) {
      for (int64_t head = 0; head < s.heads; ++head) {
        // TND gives [T, N, 1], the others [B, N, S, 1].
        const int64_t at = s.tnd ? (sequence.q_first + i) * s.heads + head
                                 : (static_cast<int64_t>(b) * s.heads + head) * sequence.q_length + i;
        attend(s, sequence, i, head, q, k, v, mask, out, s.want_lse ? &lse[static_cast<size_t>(at)] : nullptr);
      }
    }
  }
  store(operands.out[0], out);
  if (s.want_lse) store(operands.out[1], lse);
  return 0;
}

// The sequences of TND from cumulative lengths, of paged keys from lengths, of BSND from the shape.
std::vector<Sequence> sequences_of(Phase1& phase, const Tensor& q, const Tensor& k, bool tnd, int64_t block_size,
                                   const std::vector<int64_t>& q_ends, const std::vector<int64_t>& k_ends) {
  std::vector<Sequence> result;
  if (block_size > 0) {
    phase.require(!tnd && q.dims[1] == 1, "paged keys for BSND with a Q_S of 1 (this simulator)");
    if (!phase.failed())
      phase.require(k_ends.size() == static_cast<size_t>(q.dims[0]), "actualSeqLengthsKv of each batch");
    int64_t k_first = 0;
    for (size_t b = 0; !phase.failed() && b < k_ends.size(); ++b) {
      phase.require(k_ends[b] >= 0, "actualSeqLengthsKv that are not negative");
      result.push_back({static_cast<int64_t>(b), 1, k_first, k_ends[b]});
      k_first += k_ends[b];
    }
    return result;
  }
  if (!tnd) {
    phase.require(q_ends.empty() && k_ends.empty(), "no actualSeqLengths with BSND (this simulator)");
    for (int64_t b = 0; !phase.failed() && b < q.dims[0]; ++b) {
      result.push_back({b * q.dims[1], q.dims[1], b * k.dims[1], k.dims[1]});
    }
    return result;
  }
  phase.require(!q_ends.empty() && q_ends.size() == k_ends.size(),
                "actualSeqLengths and actualSeqLengthsKv of the same number of sequences");
  int64_t q_first = 0;
  int64_t k_first = 0;
  for (size_t b = 0; !phase.failed() && b < q_ends.size(); ++b) {
    phase.require(q_ends[b] >= q_first && k_ends[b] >= k_first, "cumulative actualSeqLengths that never decrease");
    result.push_back({q_first, q_ends[b] - q_first, k_first, k_ends[b] - k_first});
    q_first = q_ends[b];
    k_first = k_ends[b];
  }
  phase.require(q_first == q.dims[0] && k_first == k.dims[0],
                "actualSeqLengths that end at T (cumulative, without a leading 0)");
  return result;
}

void require_blocks(Phase1& phase, const Settings& s, const Tensor& k, const Tensor& table) {
  int64_t total = 0, most = 0;
  for (const Sequence& sequence : s.sequences) {
    const int64_t blocks = (sequence.k_length + s.block_size - 1) / s.block_size;
    total += blocks;
    most = std::max(most, blocks);
  }
  phase.require(table.dims.size() == 2 && table.dims[0] == static_cast<int64_t>(s.sequences.size()) &&
                    table.dims[1] >= most && is_contiguous(table),
                "a contiguous blockTable of [B, blocks of the longest sequence]");
  phase.require(k.dims[0] >= total, "at least as many blocks as all sequences together have");
}

}  // namespace

aclnnStatus aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
    const aclTensor* query, const aclTensorList* key, const aclTensorList* value, const aclTensor* pse,
    const aclTensor* mask, const aclIntArray* q_lengths, const aclIntArray* k_lengths, const aclTensor* a0,
    const aclTensor* a1, const aclTensor* a2, const aclTensor* a3, const aclTensor* a4, const aclTensor* a5,
    const aclTensor* a6, const aclTensor* block_table, const aclTensor* a8, const aclTensor* a9, const aclTensor* a10,
    const aclTensor* a11, const aclTensor* a12, const aclTensor* a13, const aclTensor* a14, const aclTensor* a15,
    const aclIntArray* prefix_lengths, const aclTensor* a16, const aclTensor* a17, const aclTensor* a18, int64_t heads,
    double scale, int64_t pre, int64_t next, char* layout, int64_t kv_heads, int64_t sparse_mode, int64_t inner_precise,
    int64_t block_size, int64_t antiquant_mode, bool want_lse, int64_t key_mode, int64_t value_mode,
    const aclTensor* attention_out, const aclTensor* softmax_lse, uint64_t* bytes, aclOpExecutor** executor) {
  Phase1 phase("aclnnFusedInferAttentionScoreV3", bytes, executor);
  const std::string soc = aclrtGetSocName();
  if (!is_atlas_a2_or_a3(soc)) {
    return fail(ACLNN_ERR_INNER_FIND_KERNEL_ERROR, "aclnnFusedInferAttentionScoreV3: no kernel for " + soc);
  }
  const std::string order = layout == nullptr ? "" : layout;
  Settings s;
  s.tnd = order == "TND";
  phase.require(s.tnd || order == "BSND", "inputLayout TND or BSND (this simulator), got " + order);
  const Tensor& q = phase.in("query", query, kHalves);
  const Tensor& k = phase.in_list("key", key, kHalves);
  const Tensor& v = phase.in_list("value", value, kHalves);
  phase.optional_in("pseShift", pse, kHalves);
  const Tensor* hidden = phase.optional_in("attenMask", mask, kMask);
  const Tensor* table = phase.optional_in("blockTable", block_table, {ACL_INT32});
  const Tensor& out = phase.out("attentionOut", attention_out, kHalves);
  for (const aclTensor* unused :
       {pse, a0, a1, a2, a3, a4, a5, a6, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18}) {
    phase.require(unused == nullptr, "null quantisation, prefix and rope tensors (this simulator)");
  }
  phase.require(prefix_lengths == nullptr && antiquant_mode == 0 && key_mode == 0 && value_mode == 0,
                "0 for options of quantisation (this simulator)");
  s.block_size = table != nullptr ? block_size : 0;
  phase.require(table != nullptr ? block_size % 16 == 0 && block_size > 0 && block_size <= 512 : block_size == 0,
                "with blockTable a blockSize that is a multiple of 16, at most 512");
  const size_t rank = s.tnd ? 3 : 4, k_rank = s.block_size > 0 ? 3 : rank;
  phase.require(q.dims.size() == rank && k.dims.size() == k_rank && v.dims == k.dims && out.dims == q.dims,
                "query, key, value and attentionOut of rank " + std::to_string(rank) + ", key like value");
  phase.require(q.dtype == k.dtype && q.dtype == v.dtype && q.dtype == out.dtype, "tensors of one dtype");
  phase.require(is_contiguous(q) && is_contiguous(k) && is_contiguous(v) && is_contiguous(out),
                "contiguous query, key, value and attentionOut");
  if (phase.failed()) return phase.finish(nullptr);
  s.heads = heads;
  s.kv_heads = kv_heads == 0 ? heads : kv_heads;
  s.head_size = q.dims[rank - 1];
  s.scale = static_cast<float>(scale);
  s.pre = pre;
  s.next = next;
  s.sparse_mode = sparse_mode;
  s.inner_precise = inner_precise;
  s.want_lse = want_lse;
  phase.require(element_count(q.dims) > 0 && element_count(k.dims) > 0, "query and key that are not empty");
  if (s.block_size > 0) {
    phase.require(
        q.dims[2] == s.heads && k.dims[1] == block_size && k.dims[2] == s.kv_heads * s.head_size && k.dims[2] <= 65535,
        "key and value of [blocks, blockSize, KV_N D], at most 65535 of those");
  } else {
    phase.require(q.dims[rank - 2] == s.heads && k.dims[rank - 2] == s.kv_heads && k.dims[rank - 1] == s.head_size &&
                      (s.tnd || k.dims[0] == q.dims[0]),
                  "heads, batch and D of the tensors as numHeads and numKeyValueHeads say");
  }
  phase.require(s.kv_heads > 0 && s.heads % s.kv_heads == 0 && s.heads / s.kv_heads <= 64 && s.heads <= 256,
                "numHeads a multiple of numKeyValueHeads, at most 64 of them, at most 256 heads");
  phase.require(s.head_size % 16 == 0 && s.head_size <= 512, "D a multiple of 16, at most 512");
  phase.require(sparse_mode == 0 || (sparse_mode >= 2 && sparse_mode <= 4), "sparseMode 0, 2, 3 or 4");
  phase.require(inner_precise >= 0 && inner_precise <= 3, "innerPrecise 0 to 3");
  if (sparse_mode >= 2) {
    phase.require(hidden != nullptr && hidden->dims == std::vector<int64_t>{kCompressedMask, kCompressedMask} &&
                      is_contiguous(*hidden),
                  "contiguous attenMask [2048, 2048] with sparseMode 2, 3, 4");
    phase.require(sparse_mode != 4 || (pre >= 0 && next >= 0), "preTokens and nextTokens that are not negative");
  } else if (hidden != nullptr) {
    phase.require(!s.tnd && hidden->dims == std::vector<int64_t>{q.dims[1], k.dims[1]},
                  "attenMask [Q_S, KV_S] with sparseMode 0 (this simulator: BSND only)");
  }
  s.sequences =
      sequences_of(phase, q, k, s.tnd, s.block_size, phase.optional_ints(q_lengths), phase.optional_ints(k_lengths));
  if (s.block_size > 0 && !phase.failed()) require_blocks(phase, s, k, *table);
  if (want_lse) {
    const Tensor& lse = phase.out("softmaxLse", softmax_lse, kFloat);
    const auto expected =
        s.tnd ? std::vector<int64_t>{q.dims[0], heads, 1} : std::vector<int64_t>{q.dims[0], heads, q.dims[1], 1};
    phase.require(lse.dims == expected && is_contiguous(lse), "contiguous softmaxLse of shape " + shape_text(expected));
  }
  return phase.finish([s](const Operands& operands) { return run(s, operands); });
}
FAKE_ASCEND_PHASE2(aclnnFusedInferAttentionScoreV3)
