// Numbers of every type, the plugin opened as a host would, red zones, and the report.
#include "harness.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

namespace selfcheck {

int64_t bytes_of(Type type) {
  switch (type) {
    case Type::f64:
    case Type::i64:
      return 8;
    case Type::f32:
    case Type::i32:
      return 4;
    case Type::u8:
      return 1;
    default:
      return 2;
  }
}

const char* name_of(Type type) {
  static const char* names[] = {"f32", "bf16", "f16", "f64", "i32", "i64", "u8"};
  return names[static_cast<int>(type)];
}

rlk_dtype abi_type(Type type) {
  const uint8_t bits = static_cast<uint8_t>(8 * bytes_of(type));
  switch (type) {
    case Type::bf16:
      return {RLK_DTYPE_BFLOAT, bits, 1};
    case Type::i32:
    case Type::i64:
      return {RLK_DTYPE_INT, bits, 1};
    case Type::u8:
      return {RLK_DTYPE_UINT, bits, 1};
    default:
      return {RLK_DTYPE_FLOAT, bits, 1};
  }
}

namespace {

uint16_t to_bf16(double x) {
  // Through fp32 rounded to odd, so that there is one rounding only.
  float f = static_cast<float>(x);
  if (std::isfinite(f) && static_cast<double>(f) != x) {
    if (std::fabs(static_cast<double>(f)) > std::fabs(x)) f = std::nextafterf(f, 0.0f);
    uint32_t odd;
    std::memcpy(&odd, &f, 4);
    odd |= 1;
    std::memcpy(&f, &odd, 4);
  }
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (std::isnan(x)) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
double from_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return static_cast<double>(f);
}

// f16 has 5 bits of exponent with a bias of 15, and 10 bits of fraction. Not every compiler has a type for it.
uint16_t to_f16(double x) {
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const double size = std::fabs(x);
  if (std::isnan(x)) return 0x7e00;
  if (size == 0) return sign;
  if (size >= 65520) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent, -13);  // that of the smallest normal number
  // The leading 1 of a normal number, and the carry when it rounds up to a power of two, belong to the exponent.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(size, 11 - exponent)));
  return static_cast<uint16_t>(sign | (((exponent + 13) << 10) + units));
}
double from_f16(uint16_t x) {
  const int exponent = x >> 10 & 31, fraction = x & 1023;
  double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  return (x & 0x8000) != 0 ? -size : size;
}

}  // namespace

void encode(Type type, const double* values, int64_t count, void* bytes) {
  for (int64_t i = 0; i < count; ++i) {
    const double x = values[i];
    switch (type) {
      case Type::f32:
        static_cast<float*>(bytes)[i] = static_cast<float>(x);
        break;
      case Type::f64:
        static_cast<double*>(bytes)[i] = x;
        break;
      case Type::bf16:
        static_cast<uint16_t*>(bytes)[i] = to_bf16(x);
        break;
      case Type::f16:
        static_cast<uint16_t*>(bytes)[i] = to_f16(x);
        break;
      case Type::i32:
        static_cast<int32_t*>(bytes)[i] = static_cast<int32_t>(x);
        break;
      case Type::i64:
        static_cast<int64_t*>(bytes)[i] = static_cast<int64_t>(x);
        break;
      case Type::u8:
        static_cast<uint8_t*>(bytes)[i] = static_cast<uint8_t>(x);
        break;
    }
  }
}

void decode(Type type, const void* bytes, int64_t count, double* values) {
  for (int64_t i = 0; i < count; ++i) {
    switch (type) {
      case Type::f32:
        values[i] = static_cast<double>(static_cast<const float*>(bytes)[i]);
        break;
      case Type::f64:
        values[i] = static_cast<const double*>(bytes)[i];
        break;
      case Type::bf16:
        values[i] = from_bf16(static_cast<const uint16_t*>(bytes)[i]);
        break;
      case Type::f16:
        values[i] = from_f16(static_cast<const uint16_t*>(bytes)[i]);
        break;
      case Type::i32:
        values[i] = static_cast<double>(static_cast<const int32_t*>(bytes)[i]);
        break;
      case Type::i64:
        values[i] = static_cast<double>(static_cast<const int64_t*>(bytes)[i]);
        break;
      case Type::u8:
        values[i] = static_cast<double>(static_cast<const uint8_t*>(bytes)[i]);
        break;
    }
  }
}

double round_to(Type type, double x) {
  char bytes[8] = {};
  double out = 0;
  encode(type, &x, 1, bytes);
  decode(type, bytes, 1, &out);
  return out;
}

double ulp(Type type, double x) {
  const int digits = type == Type::f64 ? 53 : type == Type::f32 ? 24 : type == Type::f16 ? 11 : 8;
  const int lowest = type == Type::f64 ? -1021 : type == Type::f16 ? -13 : -125;
  if (!std::isfinite(x)) return 0;
  int exponent = lowest;
  if (x != 0) std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent, lowest) - digits);
}

double uniform(uint64_t seed, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + (index + 1) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

double normal(uint64_t seed, uint64_t index) {
  const double u = uniform(seed, 2 * index) + 0x1p-54, v = uniform(seed, 2 * index + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

void parallel(int64_t count, const std::function<void(int64_t)>& body) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> threads;
  const unsigned n = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned t = 0; t < n; ++t) {
    threads.emplace_back([&] {
      for (int64_t i = next++; i < count; i = next++) body(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void die(const std::string& text) {
  std::printf("FATAL %s\n", text.c_str());
  std::exit(2);
}

Plugin::Plugin(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) die(dlerror());
  const auto entry = reinterpret_cast<rlk_plugin_entry_v1_fn>(dlsym(library, RLK_PLUGIN_ENTRY_SYMBOL));
  if (entry == nullptr) die("the plugin does not export " RLK_PLUGIN_ENTRY_SYMBOL);
  static rlk_host host{};
  host.struct_size = sizeof(host);
  host.abi_major = RLK_ABI_MAJOR;
  host.abi_minor = RLK_ABI_MINOR;
  host.abi_draft = RLK_ABI_DRAFT;
  host.name = "cuda selfcheck";
  host.version = "0";
  host.get_service = [](void*, const char*) -> const void* { return nullptr; };
  error.struct_size = sizeof(error);
  table = entry(&host, &error);
  if (table == nullptr) die(error.text);
  require(table->create(&host, &instance, &error), "create");

  rlk_evidence_sink sink{};
  sink.struct_size = sizeof(sink);
  sink.add = [](void*, const rlk_evidence* e) { std::printf("  %-16s %2d  %s\n", e->kind, e->supports, e->value); };
  rlk_probe_result probe{};
  probe.struct_size = sizeof(probe);
  require(table->probe(instance, &sink, &probe, &error), "probe");
  std::printf("  verdict %d %s %s %s\n", probe.verdict, probe.reason_code, probe.reason, probe.runtime_fingerprint);
  if (probe.verdict != RLK_PROBE_MINE) die("no device of this plugin here");
  rlk_device_properties p{};
  p.struct_size = sizeof(p);
  require(table->device_describe(instance, 0, &p, &error), "device_describe");
  require(table->device_open(instance, 0, &device, &error), "device_open");
  if ((p.flags & RLK_DEVICE_MAPPED_PINNED) != 0) {
    void* memory = nullptr;
    require(table->device->allocate(device, RLK_MEMORY_PINNED, sizeof(*record), &memory, &error), "allocate");
    record = new (memory) rlk_data_error_record();
  }
  std::printf("  %s %s, %u units, %.1f GiB, L2 %.1f MiB, pci %s, driver %s, CUDA %s\n", p.name, p.arch, p.compute_units,
              static_cast<double>(p.memory_bytes) / (1 << 30), static_cast<double>(p.l2_bytes) / (1 << 20),
              p.pci_bus_id, p.driver_version, p.runtime_version);
  require(table->stream->create(device, 0, &stream, &error), "stream create");
  graphs = static_cast<const rlk_graph_api*>(table->get_extension(instance, RLK_EXT_GRAPH));
  if (graphs == nullptr) die("no " RLK_EXT_GRAPH);
}

const rlk_implementation* Plugin::find(const char* op, const char* implementation) const {
  for (uint32_t i = 0; i < table->n_implementations; ++i) {
    const rlk_implementation* row = table->implementations[i];
    if (std::strcmp(row->op, op) == 0 && std::strcmp(row->name, implementation) == 0) return row;
  }
  die(std::string("no implementation ") + op + ":" + implementation);
}

void Plugin::require(rlk_status status, const char* what) {
  if (status != RLK_OK) die(std::string(what) + ": " + error.text);
}

rlk_status Plugin::synchronize(rlk_data_error& data_error) {
  data_error = rlk_data_error{};
  data_error.struct_size = sizeof(data_error);
  const rlk_status status = table->stream->synchronize(stream, UINT64_MAX, &data_error, &error);
  if (status != RLK_OK) die(std::string("synchronize: ") + error.text);
  if (record == nullptr || record->state == 0) return RLK_OK;
  data_error = {sizeof(data_error), record->kind, record->tag, 0, record->row, record->value};
  *record = rlk_data_error_record();
  return RLK_DATA_ERROR;
}

void Plugin::synchronize() {
  rlk_data_error data_error;
  if (synchronize(data_error) != RLK_OK) {
    die("unexpected data error, kind " + std::to_string(data_error.kind) + " row " + std::to_string(data_error.row));
  }
}

void Plugin::copy(void* to, const void* from, uint64_t bytes, int32_t kind) {
  require(table->stream->copy(stream, to, from, bytes, kind, &error), "copy");
  rlk_data_error ignored;
  table->stream->synchronize(stream, UINT64_MAX, &ignored, nullptr);
}

void* Plugin::allocate(uint64_t bytes) {
  void* memory = nullptr;
  require(table->device->allocate(device, RLK_MEMORY_DEVICE, std::max<uint64_t>(bytes, 1), &memory, &error),
          "allocate");
  return memory;
}
void Plugin::free(void* memory) {
  require(table->device->deallocate(device, RLK_MEMORY_DEVICE, memory, &error), "deallocate");
}

namespace {
constexpr int64_t kRedZone = 256;  // bytes before and behind
constexpr uint8_t kPoison = 0xff;  // NaN in every floating type, -1 in the others
}  // namespace

Tensor::Tensor(Plugin& plugin, Type t, std::vector<int64_t> s, int64_t row_padding, int64_t offset)
    : type(t), shape(std::move(s)), strides(shape.size()), plugin_(plugin), offset_(offset) {
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= shape[d];
    if (d + 1 == shape.size() && shape.size() > 1) stride += row_padding;
    count_ *= shape[d];
  }
  span_ = (count_ == 0 ? 0 : stride) + offset;
  memory_ = static_cast<char*>(plugin.allocate(static_cast<uint64_t>(span_ * bytes_of(type) + 2 * kRedZone)));
  tensor.struct_size = sizeof(tensor);
  tensor.data = memory_ + kRedZone + offset * bytes_of(type);
  const uint64_t address = reinterpret_cast<uint64_t>(tensor.data);
  tensor.alignment = static_cast<uint32_t>(std::min<uint64_t>(256, address & (~address + 1)));
  tensor.shape = shape.data();
  tensor.strides = strides.data();
  tensor.ndim = static_cast<int32_t>(shape.size());
  tensor.dtype = abi_type(type);
  poison();
}

Tensor::~Tensor() {
  plugin_.free(memory_);
}

void Tensor::poison() {
  plugin_.require(
      plugin_.table->stream->fill(plugin_.stream, memory_, kPoison,
                                  static_cast<uint64_t>(span_ * bytes_of(type) + 2 * kRedZone), &plugin_.error),
      "fill");
}

std::vector<uint8_t> Tensor::bytes() {
  std::vector<uint8_t> all(static_cast<size_t>(span_ * bytes_of(type) + 2 * kRedZone));
  plugin_.copy(all.data(), memory_, all.size(), RLK_COPY_DEVICE_TO_HOST);
  return all;
}

void Tensor::upload(const std::vector<double>& values) {
  std::vector<uint8_t> all = bytes();
  const int64_t row = shape.empty() ? 1 : shape.back(), size = bytes_of(type);
  const int64_t pitch = shape.size() > 1 ? strides[shape.size() - 2] : row;
  for (int64_t r = 0; r * row < count_; ++r) {
    encode(type, values.data() + r * row, row, all.data() + kRedZone + (offset_ + r * pitch) * size);
  }
  plugin_.copy(memory_, all.data(), all.size(), RLK_COPY_HOST_TO_DEVICE);
}

std::vector<double> Tensor::download() {
  const std::vector<uint8_t> all = bytes();
  std::vector<double> values(static_cast<size_t>(count_));
  const int64_t row = shape.empty() ? 1 : shape.back(), size = bytes_of(type);
  const int64_t pitch = shape.size() > 1 ? strides[shape.size() - 2] : row;
  for (int64_t r = 0; r * row < count_; ++r) {
    decode(type, all.data() + kRedZone + (offset_ + r * pitch) * size, row, values.data() + r * row);
  }
  return values;
}

bool Tensor::red_zones_intact() {
  const std::vector<uint8_t> all = bytes();
  const auto poisoned = [](uint8_t b) { return b == kPoison; };
  const auto front = all.begin() + kRedZone + offset_ * bytes_of(type);
  return std::all_of(all.begin(), front, poisoned) && std::all_of(all.end() - kRedZone, all.end(), poisoned);
}

Call::Call(Plugin& plugin, const rlk_implementation* implementation, const void* params,
           const std::vector<Tensor*>& inputs, const std::vector<Tensor*>& outputs, std::vector<int64_t> symbols,
           std::vector<int32_t> alias)
    : plugin_(plugin), implementation_(implementation), symbols_(std::move(symbols)) {
  std::vector<rlk_tensor> bare;
  bare.reserve(inputs.size() + outputs.size());
  std::vector<const rlk_tensor*> bare_inputs, bare_outputs;
  const auto add = [&](Tensor* t, std::vector<const rlk_tensor*>& real, std::vector<const rlk_tensor*>& described) {
    real.push_back(t != nullptr ? &t->tensor : nullptr);
    if (t == nullptr) {
      described.push_back(nullptr);
      return;
    }
    bare.push_back(t->tensor);
    bare.back().data = nullptr;
    described.push_back(&bare.back());
  };
  for (Tensor* t : inputs) add(t, inputs_, bare_inputs);
  for (Tensor* t : outputs) add(t, outputs_, bare_outputs);
  alias.resize(outputs.size(), -1);
  rlk_call_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.op_revision = implementation->op_revision;
  desc.op = implementation->op;
  desc.params = params;
  desc.n_inputs = static_cast<uint32_t>(inputs.size());
  desc.n_outputs = static_cast<uint32_t>(outputs.size());
  desc.inputs = bare_inputs.data();
  desc.outputs = bare_outputs.data();
  desc.output_alias = alias.data();
  desc.symbols = symbols_.data();
  desc.n_symbols = static_cast<uint32_t>(symbols_.size());
  support_.struct_size = sizeof(support_);
  plugin.require(implementation->query(implementation, plugin.device, &desc, &support_, &plugin.error), "query");
  if (!supported()) return;
  rlk_plan_info info{};
  info.struct_size = sizeof(info);
  plugin.require(implementation->plan_create(implementation, plugin.device, &desc, &plan_, &info, &plugin.error),
                 "plan_create");
  rlk_run run{};
  run.struct_size = sizeof(run);
  run.n_inputs = desc.n_inputs;
  run.n_outputs = desc.n_outputs;
  run.inputs = inputs_.data();
  run.outputs = outputs_.data();
  run.symbols = symbols_.data();
  run.n_symbols = desc.n_symbols;
  plugin.require(implementation->plan_prepare(plan_, &run, &workspace_bytes_, &plugin.error), "plan_prepare");
  if (workspace_bytes_ > support_.workspace_bound)
    die(std::string(implementation->op) + ": workspace beyond its bound");
  workspace_ = plugin.allocate(workspace_bytes_ + kRedZone);
  plugin.require(
      plugin.table->stream->fill(plugin.stream, workspace_, kPoison, workspace_bytes_ + kRedZone, &plugin.error),
      "fill");
}

Call::~Call() {
  rlk_data_error ignored;
  plugin_.table->stream->synchronize(plugin_.stream, UINT64_MAX, &ignored, nullptr);
  if (workspace_ != nullptr) {
    std::vector<uint8_t> zone(kRedZone);
    plugin_.copy(zone.data(), static_cast<char*>(workspace_) + workspace_bytes_, kRedZone, RLK_COPY_DEVICE_TO_HOST);
    for (const uint8_t b : zone) {
      if (b != kPoison) die(std::string(implementation_->op) + " wrote beyond its workspace");
    }
    plugin_.free(workspace_);
  }
  if (plan_ != nullptr) plugin_.require(implementation_->plan_destroy(plan_, &plugin_.error), "plan_destroy");
}

void Call::enqueue() {
  if (!supported())
    die(std::string(implementation_->op) + ":" + implementation_->name + " declined: " + support_.reason);
  std::vector<const void*> host_inputs(inputs_.size(), nullptr);
  rlk_run run{};
  run.struct_size = sizeof(run);
  run.tag = 7;
  run.n_inputs = static_cast<uint32_t>(inputs_.size());
  run.n_outputs = static_cast<uint32_t>(outputs_.size());
  run.inputs = inputs_.data();
  run.outputs = outputs_.data();
  run.host_inputs = host_inputs.data();
  run.symbols = symbols_.data();
  run.n_symbols = static_cast<uint32_t>(symbols_.size());
  run.workspace = workspace_;
  run.workspace_bytes = workspace_bytes_;
  run.data_error_record = plugin_.record;
  plugin_.require(implementation_->plan_enqueue(plan_, plugin_.stream, &run, &plugin_.error), "plan_enqueue");
}

double time_us(Plugin& plugin, int repeat, const std::function<void(int)>& run) {
  for (int i = 0; i < repeat; ++i) run(i);  // loads kernels, warms up
  plugin.synchronize();
  rlk_plugin_graph* graph = nullptr;
  plugin.require(plugin.graphs->begin_capture(plugin.stream, &plugin.error), "begin_capture");
  for (int i = 0; i < repeat; ++i) run(i);
  plugin.require(plugin.graphs->end_capture(plugin.stream, &graph, &plugin.error), "end_capture");
  const rlk_event_api& events = *plugin.table->event;
  rlk_plugin_event* start = nullptr;
  rlk_plugin_event* end = nullptr;
  plugin.require(events.create(plugin.device, RLK_EVENT_TIMING, &start, &plugin.error), "event");
  plugin.require(events.create(plugin.device, RLK_EVENT_TIMING, &end, &plugin.error), "event");
  std::vector<double> times;
  for (int i = 0; i < 11; ++i) {
    plugin.require(events.record(start, plugin.stream, &plugin.error), "record");
    plugin.require(plugin.graphs->launch(graph, plugin.stream, &plugin.error), "launch");
    plugin.require(events.record(end, plugin.stream, &plugin.error), "record");
    plugin.synchronize();
    double ms = 0;
    plugin.require(events.elapsed_ms(start, end, &ms, &plugin.error), "elapsed");
    times.push_back(ms * 1e3 / repeat);
  }
  events.destroy(start, nullptr);
  events.destroy(end, nullptr);
  plugin.graphs->destroy(graph, nullptr);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void Report::check(bool ok, const std::string& what) {
  ++checks_;
  if (ok) return;
  ++failures_;
  if (failures_ <= 60) std::printf("FAIL %s\n", what.c_str());
}

void Report::ratio(double worst, const std::string& what) {
  char text[64];
  std::snprintf(text, sizeof(text), ": error is %.3g times the allowance", worst);
  check(worst <= 1, what + text);
}

}  // namespace selfcheck
