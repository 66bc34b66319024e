// The plugin under test through its C ABI, tensors in its device memory between red zones, and calls of its operators.
#pragma once

#include <rlk/abi.h>
#include <rlk/abi/ext/draft/graph.h>
#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <rlk/ops/logp.h>
#include <rlk/ops/logp_backward.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace selfcheck {

enum class Type { f32, bf16, f16, f64, i32, i64, u8 };
int64_t bytes_of(Type type);
const char* name_of(Type type);
rlk_dtype abi_type(Type type);
inline Type accumulator_of(Type type) {
  return type == Type::f64 ? Type::f64 : Type::f32;
}
double round_to(Type type, double x);  // the nearest value that the type holds
double ulp(Type type, double x);       // the gap between values of the type around x
void encode(Type type, const double* values, int64_t count, void* bytes);
void decode(Type type, const void* bytes, int64_t count, double* values);

// Uniform numbers; a function of seed and index alone.
double uniform(uint64_t seed, uint64_t index);
double normal(uint64_t seed, uint64_t index);
void parallel(int64_t count, const std::function<void(int64_t)>& body);

[[noreturn]] void die(const std::string& text);

class Plugin {
public:
  explicit Plugin(const std::string& path);
  const rlk_implementation* find(const char* op, const char* implementation) const;
  void require(rlk_status status, const char* what);  // ends the program unless OK
  void synchronize();                                 // ends the program unless all is well
  rlk_status synchronize(rlk_data_error& error);
  void copy(void* to, const void* from, uint64_t bytes, int32_t kind);
  void* allocate(uint64_t bytes);
  void free(void* memory);

  const rlk_plugin* table = nullptr;
  rlk_plugin_instance* instance = nullptr;
  rlk_plugin_device* device = nullptr;
  rlk_plugin_stream* stream = nullptr;
  rlk_data_error_record* record = nullptr;  // in pinned memory, as a host gives it to runs
  const rlk_graph_api* graphs = nullptr;
  rlk_error error{};
};

// A tensor in device memory. Rows may be padded, the first element may be off its alignment.
class Tensor {
public:
  Tensor(Plugin& plugin, Type type, std::vector<int64_t> shape, int64_t row_padding = 0, int64_t offset = 0);
  ~Tensor();
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  void upload(const std::vector<double>& values);
  std::vector<double> download();
  std::vector<uint8_t> bytes();  // of everything, padding and red zones included
  void poison();
  bool red_zones_intact();
  int64_t count() const { return count_; }
  void* data() const { return tensor.data; }

  Type type;
  std::vector<int64_t> shape, strides;
  rlk_tensor tensor{};

private:
  Plugin& plugin_;
  int64_t count_ = 1, span_ = 0, offset_ = 0;
  char* memory_ = nullptr;
};

// One call: planned once, run as often as wanted.
class Call {
public:
  Call(Plugin& plugin, const rlk_implementation* implementation, const void* params, const std::vector<Tensor*>& inputs,
       const std::vector<Tensor*>& outputs, std::vector<int64_t> symbols, std::vector<int32_t> alias = {});
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  void enqueue();
  const rlk_support& support() const { return support_; }
  bool supported() const { return support_.level != RLK_SUPPORT_NO; }

private:
  Plugin& plugin_;
  const rlk_implementation* implementation_;
  std::vector<const rlk_tensor*> inputs_, outputs_;
  std::vector<int64_t> symbols_;
  rlk_support support_{};
  rlk_plugin_plan* plan_ = nullptr;
  void* workspace_ = nullptr;
  uint64_t workspace_bytes_ = 0;
};

// Median time of a run in microseconds: `repeat` runs in one graph, the graph several times.
double time_us(Plugin& plugin, int repeat, const std::function<void(int)>& run);

// Counts what was checked and prints what failed.
class Report {
public:
  void check(bool ok, const std::string& what);
  // The largest ratio of error to allowance must not exceed 1.
  void ratio(double worst, const std::string& what);
  int failures() const { return failures_; }
  int checks() const { return checks_; }

private:
  int failures_ = 0, checks_ = 0;
};

void check_logp(Plugin& plugin, Report& report);
void check_logp_backward(Plugin& plugin, Report& report);
void check_attention(Plugin& plugin, Report& report);
void check_attention_few(Plugin& plugin, Report& report);
void check_add(Plugin& plugin, Report& report);
void measure(Plugin& plugin, Report& report);

}  // namespace selfcheck
