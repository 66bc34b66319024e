// A valid call of some operator, made odd step by step.
#include "fuzz/calls.hpp"

#include <rlk/rlk.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "framework/op_call.hpp"
#include "fuzz/mutate.hpp"

namespace rlk::fuzz {
namespace {

class Decisions {
public:
  explicit Decisions(const std::string& bytes) : bytes_(bytes) {}
  bool any_left() const { return at_ < bytes_.size(); }
  uint8_t byte() { return any_left() ? static_cast<uint8_t>(bytes_[at_++]) : uint8_t{0}; }
  size_t below(size_t n) { return n == 0 ? 0 : (byte() | size_t{byte()} << 8) % n; }
  // An extreme, one beside it, or any number.
  uint64_t number() {
    static constexpr uint64_t kExtremes[] = {0,
                                             1,
                                             2,
                                             8,
                                             64,
                                             1024,
                                             0x7fffffff,
                                             0x80000000,
                                             0xffffffff,
                                             1ull << 58,
                                             INT64_MAX,
                                             1ull << 63,
                                             UINT64_MAX,
                                             0x7ff0ull << 48,
                                             0x7ff8ull << 48,
                                             0x3ff0ull << 48};
    const uint8_t how = byte();
    if (how >= 192) {
      uint64_t any = 0;
      for (int i = 0; i < 8; ++i) any = any << 8 | byte();
      return any;
    }
    return kExtremes[how % std::size(kExtremes)] + (how >> 4) % 3 - 1;
  }

private:
  const std::string& bytes_;
  size_t at_ = 0;
};

// What both functions are given.
struct OddCall {
  explicit OddCall(const core::OpDecl& decl) : valid(decl) {
    std::memcpy(params.data(), valid.params.data(), decl.params_size);
    inputs = valid.input_pointers;
    outputs = valid.output_pointers;
    n_inputs = static_cast<uint32_t>(inputs.size());
    n_outputs = static_cast<uint32_t>(outputs.size());
    inputs.resize(kMost, nullptr);
    outputs.resize(kMost, nullptr);
  }
  static constexpr size_t kMost = 48;  // longer than any operator's list

  test::OpCall valid;
  alignas(8) std::array<std::byte, 4096> params{};  // zeros beyond the struct, as of a newer caller
  bool has_params = true;
  std::vector<const rlk_tensor*> inputs, outputs;
  uint32_t n_inputs = 0, n_outputs = 0;
  bool has_inputs = true, has_outputs = true, has_stream = true, has_op = true, has_options = true;
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  std::string pin;
  std::array<const void*, kMost> host_inputs{};
  std::array<rlk_private_params, 6> privates{};
  std::array<std::byte, 8192> private_data{};
  // Addresses or places of elements are odd, or there is no memory: rlk_call alone may refuse that.
  bool odd_memory = false;
};

test::Argument* any_argument(OddCall& call, Decisions& decide) {
  auto& list = decide.byte() % 2 == 0 ? call.valid.inputs : call.valid.outputs;
  return list.empty() ? nullptr : &list[decide.below(list.size())];
}

void make_tensor_odd(OddCall& call, Decisions& decide) {
  test::Argument* argument = any_argument(call, decide);
  if (argument == nullptr || !argument->given) return;
  rlk_tensor& tensor = argument->tensor;
  const size_t rank = argument->shape.size();
  switch (decide.below(12)) {
    case 0:
      tensor.struct_size = static_cast<uint32_t>(decide.number());
      break;
    case 1:
      tensor.ndim = static_cast<int32_t>(decide.number());
      // The caller's arrays are as long as it says, up to what a tensor may have.
      argument->shape.resize(RLK_MAX_NDIM, 1);
      argument->strides.resize(RLK_MAX_NDIM, 1);
      tensor.shape = argument->shape.data();
      tensor.strides = argument->strides.data();
      break;
    case 2:
      tensor.shape = nullptr;
      break;
    case 3:
      tensor.strides = nullptr;
      break;
    case 4:
    case 5:
      if (rank > 0) argument->shape[decide.below(rank)] = static_cast<int64_t>(decide.number());
      call.odd_memory = true;
      break;
    case 6:
    case 7:
      if (rank > 0) argument->strides[decide.below(rank)] = static_cast<int64_t>(decide.number());
      call.odd_memory = true;
      break;
    case 8:
      tensor.dtype = {decide.byte(), decide.byte(), static_cast<uint16_t>(decide.byte() % 4)};
      break;
    case 9:
      tensor.alignment = static_cast<uint32_t>(decide.number());
      call.odd_memory = true;
      break;
    case 10:
      tensor.byte_offset = decide.number();
      call.odd_memory = true;
      break;
    default:
      tensor.data = reinterpret_cast<void*>(decide.number());
      call.odd_memory = true;
  }
}

void make_options_odd(OddCall& call, Decisions& decide) {
  rlk_call_options& options = call.options;
  switch (decide.below(6)) {
    case 0:
      options.struct_size = decide.byte() % 2 == 0 ? decide.byte() % 64u : static_cast<uint32_t>(decide.number());
      break;
    case 1:
      options.numerics = static_cast<uint32_t>(decide.number());
      break;
    case 2:
    case 3: {
      static constexpr const char* kPins[] = {"",  "cpu",      "cpu:",       "cpu/", ":",
                                              "/", "cpu:simd", "acme/fused", "c:/",  "cpu:\xff"};
      call.pin = kPins[decide.below(std::size(kPins))];
      call.pin += std::string(decide.below(400), static_cast<char>('a' + decide.byte() % 26));
      options.pin = call.pin.c_str();
      break;
    }
    case 4:
      options.host_inputs = call.host_inputs.data();
      break;
    default: {
      static constexpr const char* kPlugins[] = {"cpu", "acme", "", nullptr, "another"};
      static constexpr uint32_t kTypes[] = {RLK_EXT_PRIVATE_PARAMS, RLK_EXT_PRIVATE_PARAMS | RLK_EXT_REQUIRED, 77,
                                            77 | RLK_EXT_REQUIRED};
      const size_t length = decide.below(call.privates.size() + 1);
      for (size_t i = 0; i < length; ++i) {
        rlk_private_params& item = call.privates[i];
        item.struct_size = decide.byte() % 4 == 0 ? static_cast<uint32_t>(decide.number()) : sizeof(item);
        item.type = kTypes[decide.below(std::size(kTypes))];
        item.next = i + 1 < length ? reinterpret_cast<const rlk_ext*>(&call.privates[i + 1]) : nullptr;
        item.plugin = kPlugins[decide.below(std::size(kPlugins))];
        item.bytes = decide.byte() % 4 == 0 ? decide.number() : decide.below(call.private_data.size());
        item.data = decide.byte() % 4 == 0 ? nullptr : call.private_data.data();
        // What the caller says is there is there, where it is not more than any call may have.
        if (item.bytes > call.private_data.size())
          item.bytes = std::max<uint64_t>(item.bytes, RLK_MAX_PRIVATE_BYTES + 1);
      }
      if (length > 0 && decide.byte() % 8 == 0) {
        call.privates[length - 1].next = reinterpret_cast<const rlk_ext*>(&call.privates[0]);
      }
      options.next = length > 0 ? reinterpret_cast<const rlk_ext*>(&call.privates[0]) : nullptr;
    }
  }
}

void make_odd(OddCall& call, Decisions& decide) {
  switch (decide.below(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
      return make_tensor_odd(call, decide);
    case 5:
    case 6:
    case 7:
      return make_options_odd(call, decide);
    case 8:
    case 9: {
      const core::OpDecl& decl = *call.valid.decl;
      if (decl.params.empty()) return;
      const uint64_t value = decide.number();
      std::memcpy(call.params.data() + decl.params[decide.below(decl.params.size())].offset, &value, sizeof(value));
      return;
    }
    case 10: {
      const auto size = static_cast<uint32_t>(decide.number());
      std::memcpy(call.params.data() + (decide.byte() % 8 == 0 ? 4 : 0), &size, sizeof(size));
      return;
    }
    case 11:
      call.has_params = false;
      return;
    case 12: {  // an argument is missing, twice there, or another's
      auto& list = decide.byte() % 2 == 0 ? call.inputs : call.outputs;
      const auto& from = decide.byte() % 2 == 0 ? call.valid.input_pointers : call.valid.output_pointers;
      if (from.empty()) return;
      list[decide.below(list.size())] = decide.byte() % 2 == 0 ? nullptr : from[decide.below(from.size())];
      call.odd_memory = true;
      return;
    }
    case 13:
      (decide.byte() % 2 == 0 ? call.n_inputs : call.n_outputs) = static_cast<uint32_t>(decide.below(OddCall::kMost));
      return;
    case 14:
      (decide.byte() % 2 == 0 ? call.has_inputs : call.has_outputs) = false;
      return;
    default: {
      const size_t what = decide.below(3);
      (what == 0 ? call.has_stream : what == 1 ? call.has_op : call.has_options) = false;
    }
  }
}

// Every tensor that an accepted call may touch lies in memory of this process, or says that it has none.
void back_with_memory(OddCall& call) {
  constexpr double kMost = 1 << 20;
  for (auto* list : {&call.valid.inputs, &call.valid.outputs}) {
    for (test::Argument& argument : *list) {
      rlk_tensor& tensor = argument.tensor;
      if (!argument.given || tensor.data == nullptr) continue;
      const bool is_moved = tensor.data != argument.data || tensor.byte_offset != argument.byte_offset;
      double low = 0, high = 0;  // elements; products of any two sizes fit
      const size_t rank = std::min(argument.shape.size(), argument.strides.size());
      for (size_t d = 0; d < rank && static_cast<int32_t>(d) < tensor.ndim; ++d) {
        const double reach =
            static_cast<double>(std::max<int64_t>(argument.shape[d], 1) - 1) * static_cast<double>(argument.strides[d]);
        (reach < 0 ? low : high) += reach;
      }
      const bool is_usual = low == 0 && high < 512;  // OpCall gives every tensor 4096 bytes more than it needs
      if (!is_moved && is_usual) continue;
      call.odd_memory = true;
      tensor.byte_offset = 0;
      tensor.data = nullptr;
      if (is_moved || low < -kMost || high > kMost) continue;
      const auto before = static_cast<uint64_t>(-low) * 8, behind = static_cast<uint64_t>(high + 1) * 8;
      tensor.data = static_cast<char*>(call.valid.allocate(before + behind + 64)) + (before + 63) / 64 * 64;
    }
  }
}

struct World {
  explicit World(const testing::TempFolder& folder) {
    setenv("RLK_PLUGIN_PATH", folder.folder("no_plugins", 0700).c_str(), 1);
    setenv("RLK_CACHE_DIR", folder.folder("runtime_cache", 0700).c_str(), 1);
    if (rlk_runtime_create(nullptr, &runtime, nullptr) != RLK_OK) std::abort();
    if (rlk_stream_create(runtime, "cpu", 0, 0, &stream, nullptr) != RLK_OK) std::abort();
  }
  rlk_runtime* runtime = nullptr;
  rlk_stream* stream = nullptr;
};

rlk_error fresh() {
  rlk_error error{};
  error.struct_size = sizeof(error);
  return error;
}

}  // namespace

std::vector<std::string> call_seeds() {
  std::vector<std::string> seeds;
  for (uint64_t i = 0; i < 64; ++i) {
    Random random(i);
    std::string& seed = seeds.emplace_back(4 + random.below(24), '\0');
    for (char& byte : seed) byte = static_cast<char>(random.next());
  }
  return seeds;
}

std::string odd_call(const std::string& bytes, const testing::TempFolder& folder) {
  static const World world(folder);
  Decisions decide(bytes);
  const auto decls = core::declarations();
  const core::OpDecl& decl = decls[decide.below(decls.size())];
  OddCall odd(decl);
  for (int steps = 1 + decide.byte() % 4; steps > 0 && decide.any_left(); --steps) make_odd(odd, decide);
  back_with_memory(odd);

  rlk_stream* stream = odd.has_stream ? world.stream : nullptr;
  const rlk_op* op = nullptr;
  if (odd.has_op && rlk_op_find(decl.name, &op, nullptr) != RLK_OK) return "an operator is not found";
  const void* params = odd.has_params ? odd.params.data() : nullptr;
  const rlk_tensor* const* inputs = odd.has_inputs ? odd.inputs.data() : nullptr;
  const rlk_tensor* const* outputs = odd.has_outputs ? odd.outputs.data() : nullptr;
  const rlk_call_options* options = odd.has_options ? &odd.options : nullptr;

  // Explained first: what a call leaves behind must not be what saves the explanation.
  rlk_error why_explained = fresh(), why_called = fresh();
  char* document = nullptr;
  const rlk_status explained = rlk_explain_json(stream, op, params, inputs, odd.n_inputs, outputs, odd.n_outputs,
                                                options, &document, &why_explained);
  const bool says_refused = document != nullptr && std::strstr(document, "\"refused\":") != nullptr;
  rlk_string_free(document);
  const rlk_status called =
      rlk_call(stream, op, params, inputs, odd.n_inputs, outputs, odd.n_outputs, options, &why_called);

  const auto both = [&](const char* what) {
    return std::string(decl.name) + ": " + what + ". explain: " + std::to_string(explained) + " " + why_explained.text +
           " | call: " + std::to_string(called) + " " + why_called.text;
  };
  if (explained != RLK_OK && why_explained.text[0] == '\0') return both("explain refuses without a word");
  if (called != RLK_OK && why_called.text[0] == '\0') return both("call refuses without a word");
  if (explained == RLK_INTERNAL || called == RLK_INTERNAL) return both("a defect of rlk");
  // Each names itself where a pointer of its own is NULL.
  const bool misses_a_pointer = !odd.has_stream || !odd.has_op || (!odd.has_inputs && odd.n_inputs > 0) ||
                                (!odd.has_outputs && odd.n_outputs > 0);
  if (misses_a_pointer) return explained == RLK_INVALID_ARGUMENT && called == explained ? "" : both("NULL is accepted");
  if (explained != RLK_OK) {
    const bool same = odd.odd_memory ? called != RLK_OK
                                     : called == explained && std::strcmp(why_called.text, why_explained.text) == 0;
    return same ? "" : both("explain refuses what call does not, or in other words");
  }
  if (odd.odd_memory) return "";
  if (called == RLK_INVALID_ARGUMENT) return both("call refuses an argument that explain accepts");
  if (says_refused != (called == RLK_UNSUPPORTED)) return both("explain does not say what call does");
  return "";
}

}  // namespace rlk::fuzz
