// A plugin as a C++ class, and the line that exports it:
//
//   class Acme : public rlk::sdk::Plugin {
//    public:
//     using Device = AcmeDevice;  using Stream = AcmeStream;  using Event = AcmeEvent;
//     using Implementations = std::tuple<FusedLogp, Add>;
//     explicit Acme(const rlk::sdk::Host&);               // the first place that may touch the vendor runtime
//     rlk::sdk::Verdict probe(rlk::sdk::Evidence&) override;
//     uint32_t device_count() override;
//     void describe_device(uint32_t ordinal, rlk_device_properties&) override;   // opens nothing
//     std::unique_ptr<rlk::sdk::Device> open_device(uint32_t ordinal) override;
//   };
//   RLK_PLUGIN(Acme, "acme", "acme", "1.0.0", "Acme X100 operators")
//
// A plugin that brings operators for another plugin's device derives from OperatorPlugin instead.
#pragma once

#include <rlk/abi.h>
#include <rlk/sdk/implementation.hpp>

#include <atomic>
#include <exception>
#include <string>
#include <tuple>

namespace rlk::sdk {

// The host's services, checked once. Copyable; lives as long as the process.
class Host {
public:
  explicit Host(const rlk_host& host, const char* plugin_id) : host_(&host), plugin_id_(plugin_id) {
    log_ = service<rlk_log_service>(RLK_SERVICE_LOG);
    parallel_ = service<rlk_parallel_service>(RLK_SERVICE_PARALLEL);
    kernel_cache_ = service<rlk_kernel_cache_service>(RLK_SERVICE_KERNEL_CACHE);
  }
  void log(int32_t level, const std::string& text) const noexcept {
    if (log_ != nullptr) log_->write(host_->context, level, plugin_id_, text.c_str());
  }
  // Calls body(begin, end) over disjoint ranges covering [0, n); serial when the host has no pool. The first exception
  // that body throws is thrown here once no range is at work any more; ranges not begun by then are left out.
  template <class Body>
  void parallel_for(int64_t n, int64_t grain, const Body& body) const {
    if (parallel_ == nullptr) {
      if (n > 0) body(int64_t{0}, n);
      return;
    }
    Loop<Body> loop(body);
    parallel_->parallel_for(host_->context, n, grain, &Loop<Body>::run, &loop);
    if (loop.failure) std::rethrow_exception(loop.failure);
  }
  uint32_t thread_count() const noexcept { return parallel_ != nullptr ? parallel_->thread_count(host_->context) : 1; }
  // Compiled kernels kept between processes; nullptr when the host has no such service.
  const rlk_kernel_cache_service* kernel_cache() const noexcept { return kernel_cache_; }
  const rlk_host& abi() const noexcept { return *host_; }
  const char* plugin_id() const noexcept { return plugin_id_; }

private:
  // No exception may pass through the host, whose C++ runtime may be another one: it waits here for the caller.
  template <class Body>
  struct Loop {
    explicit Loop(const Body& given) : body(given) {}
    static void run(void* user, int64_t begin, int64_t end) noexcept {
      Loop& loop = *static_cast<Loop*>(user);
      if (loop.has_failed.load(std::memory_order_relaxed)) return;
      try {
        loop.body(begin, end);
      } catch (...) {
        if (!loop.has_failed.exchange(true)) loop.failure = std::current_exception();
      }
    }
    const Body& body;
    std::atomic<bool> has_failed{false};
    std::exception_ptr failure;
  };

  template <class S>
  const S* service(const char* id) const noexcept {
    const auto* found = static_cast<const S*>(host_->get_service(host_->context, id));
    return found != nullptr && found->struct_size >= sizeof(S) ? found : nullptr;
  }
  const rlk_host* host_;
  const char* plugin_id_;
  const rlk_log_service* log_;
  const rlk_parallel_service* parallel_;
  const rlk_kernel_cache_service* kernel_cache_;
};

// What probe saw, reported as it is seen: it survives a crash of the next step.
class Evidence {
public:
  explicit Evidence(const rlk_evidence_sink& sink) : sink_(&sink) {}
  void supports(const char* kind, const std::string& value) { add(kind, value, 1); }
  void contradicts(const char* kind, const std::string& value) { add(kind, value, 0); }
  void neutral(const char* kind, const std::string& value) { add(kind, value, -1); }

private:
  void add(const char* kind, const std::string& value, int32_t supports) {
    const rlk_evidence item = {sizeof(rlk_evidence), supports, kind, value.c_str()};
    sink_->add(sink_->context, &item);
  }
  const rlk_evidence_sink* sink_;
};

struct Verdict {
  int32_t verdict = RLK_PROBE_ABSENT;
  std::string reason_code;
  std::string reason;
  std::string hint;
  std::string runtime_fingerprint;

  static Verdict mine(std::string fingerprint) { return {RLK_PROBE_MINE, {}, {}, {}, std::move(fingerprint)}; }
  static Verdict not_mine(std::string code, std::string reason, std::string hint = {}) {
    return {RLK_PROBE_NOT_MINE, std::move(code), std::move(reason), std::move(hint), {}};
  }
  static Verdict absent(std::string code, std::string reason, std::string hint = {}) {
    return {RLK_PROBE_ABSENT, std::move(code), std::move(reason), std::move(hint), {}};
  }
  static Verdict broken(std::string code, std::string reason, std::string hint = {}) {
    return {RLK_PROBE_BROKEN, std::move(code), std::move(reason), std::move(hint), {}};
  }
};

class Plugin {
public:
  static constexpr uint32_t kFlags = 0;
  virtual ~Plugin() = default;
  virtual Verdict probe(Evidence&) = 0;
  virtual uint32_t device_count() = 0;
  virtual void describe_device(uint32_t ordinal, rlk_device_properties& out) = 0;
  virtual std::unique_ptr<Device> open_device(uint32_t ordinal) = 0;
  virtual std::unique_ptr<Device> attach_device(const rlk_attach_info&) {
    throw Error(RLK_UNSUPPORTED, "this plugin has devices of its own");
  }
  virtual const void* extension(const char*) { return nullptr; }
};

class OperatorPlugin : public Plugin {
public:
  static constexpr uint32_t kFlags = RLK_PLUGIN_OPERATORS_ONLY;
  uint32_t device_count() override { return 0; }
  void describe_device(uint32_t, rlk_device_properties&) override {
    throw Error(RLK_UNSUPPORTED, "this plugin has no devices of its own");
  }
  std::unique_ptr<Device> open_device(uint32_t) override {
    throw Error(RLK_UNSUPPORTED, "this plugin brings operators for another plugin's device");
  }
  std::unique_ptr<Device> attach_device(const rlk_attach_info&) override = 0;
};

namespace detail {

template <class P>
const char*& plugin_id() noexcept {
  static const char* id = "";
  return id;
}

template <class P>
struct PluginThunks {
  using D = typename P::Device;
  static Plugin* plugin_of(rlk_plugin_instance* instance) noexcept { return reinterpret_cast<Plugin*>(instance); }

  static rlk_status create(const rlk_host* host, rlk_plugin_instance** out, rlk_error* error) noexcept {
    return guard(error, [&] {
      std::unique_ptr<Plugin> plugin = std::make_unique<P>(Host(*host, plugin_id<P>()));
      *out = reinterpret_cast<rlk_plugin_instance*>(plugin.release());
      return RLK_OK;
    });
  }
  static rlk_status destroy(rlk_plugin_instance* instance, rlk_error* error) noexcept {
    return guard(error, [&] { return delete plugin_of(instance), RLK_OK; });
  }
  static rlk_status probe(rlk_plugin_instance* instance, const rlk_evidence_sink* sink, rlk_probe_result* out,
                          rlk_error* error) noexcept {
    return guard(error, [&] {
      Evidence evidence(*sink);
      const Verdict verdict = plugin_of(instance)->probe(evidence);
      rlk_probe_result mine = rlk_probe_result();
      mine.struct_size = out->struct_size;
      mine.verdict = verdict.verdict;
      copy_text(mine.reason_code, verdict.reason_code.c_str());
      copy_text(mine.reason, verdict.reason.c_str());
      copy_text(mine.hint, verdict.hint.c_str());
      copy_text(mine.runtime_fingerprint, verdict.runtime_fingerprint.c_str());
      std::memcpy(out, &mine, out->struct_size < sizeof(mine) ? out->struct_size : sizeof(mine));
      return RLK_OK;
    });
  }
  static rlk_status device_count(rlk_plugin_instance* instance, uint32_t* out, rlk_error* error) noexcept {
    return guard(error, [&] { return *out = plugin_of(instance)->device_count(), RLK_OK; });
  }
  static rlk_status device_describe(rlk_plugin_instance* instance, uint32_t ordinal, rlk_device_properties* out,
                                    rlk_error* error) noexcept {
    return guard(error, [&] {
      rlk_device_properties mine = rlk_device_properties();
      mine.numa_node = -1;
      plugin_of(instance)->describe_device(ordinal, mine);
      answer(mine, out);
      return RLK_OK;
    });
  }
  static rlk_status device_open(rlk_plugin_instance* instance, uint32_t ordinal, rlk_plugin_device** out,
                                rlk_error* error) noexcept {
    return guard(error, [&] {
      *out = reinterpret_cast<rlk_plugin_device*>(plugin_of(instance)->open_device(ordinal).release());
      return RLK_OK;
    });
  }
  static rlk_status device_attach(rlk_plugin_instance* instance, const rlk_attach_info* info, rlk_plugin_device** out,
                                  rlk_error* error) noexcept {
    return guard(error, [&] {
      *out = reinterpret_cast<rlk_plugin_device*>(plugin_of(instance)->attach_device(*info).release());
      return RLK_OK;
    });
  }
  static rlk_status device_close(rlk_plugin_device* device, rlk_error* error) noexcept {
    return guard(error, [&] { return delete device_of(device), RLK_OK; });
  }
  static const void* get_extension(rlk_plugin_instance* instance, const char* id) noexcept {
    const void* found = nullptr;
    guard(nullptr, [&] { return found = plugin_of(instance)->extension(id), RLK_OK; });
    return found;
  }

  template <class Tuple>
  struct Rows;
  template <class... T>
  struct Rows<std::tuple<T...>> {
    static constexpr uint32_t kCount = sizeof...(T);
    static constexpr const rlk_implementation* kTable[sizeof...(T) + 1] = {&ImplementationThunks<T, D>::kRow...,
                                                                           nullptr};
  };

  // The window is checked on both sides: here on behalf of the plugin, and again by the host.
  static const rlk_plugin* entry(const rlk_host* host, rlk_error* error, const char* id, const char* backend,
                                 const char* version, const char* description) noexcept {
    if (host == nullptr || host->abi_major != RLK_ABI_MAJOR || host->abi_draft != RLK_ABI_DRAFT) {
      fail(error, RLK_ABI_MISMATCH, "the host's plugin ABI is not the one this plugin was built for");
      return nullptr;
    }
    plugin_id<P>() = id;
    static const rlk_plugin table = {
        sizeof(rlk_plugin),
        RLK_ABI_MAJOR,
        RLK_ABI_MINOR,
        RLK_ABI_DRAFT,
        0,
        P::kFlags,
        Rows<typename P::Implementations>::kCount,
        0,
        id,
        backend,
        version,
        description,
        Rows<typename P::Implementations>::kTable,
        (P::kFlags & RLK_PLUGIN_OPERATORS_ONLY) != 0 ? nullptr : &DeviceThunks<D>::kTable,
        &StreamThunks<typename P::Stream>::kTable,
        (P::kFlags & RLK_PLUGIN_OPERATORS_ONLY) != 0 ? nullptr : &EventThunks<typename P::Event, D>::kTable,
        &create,
        &destroy,
        &probe,
        &device_count,
        &device_describe,
        &device_open,
        &device_attach,
        &device_close,
        &get_extension,
    };
    return &table;
  }
};

// The ELF note by which a plugin is known before any of its code runs.
template <size_t Size>
struct Note {
  uint32_t name_size, description_size, type;
  char name[4];
  char description[(Size + 3) / 4 * 4];
};

}  // namespace detail
}  // namespace rlk::sdk

#define RLK_SDK_TEXT_(x) #x
#define RLK_SDK_TEXT(x) RLK_SDK_TEXT_(x)
#define RLK_SDK_NOTE_TEXT(id, backend, version)                                              \
  "abi=" RLK_SDK_TEXT(RLK_ABI_MAJOR) "." RLK_SDK_TEXT(RLK_ABI_MINOR) ";draft=" RLK_SDK_TEXT( \
      RLK_ABI_DRAFT) ";id=" id ";backend=" backend ";version=" version

// Defines the exported symbol under another name, for a plugin that is linked into its host.
#define RLK_PLUGIN_ENTRY(symbol, Class, id, backend, version, description)                                             \
  extern "C" __attribute__((visibility("default"))) const rlk_plugin* symbol(const rlk_host* host, rlk_error* error) { \
    return ::rlk::sdk::detail::PluginThunks<Class>::entry(host, error, id, backend, version, description);             \
  }

// What loaders read in the file before they load it.
#define RLK_SDK_NOTE(text)                                                                                            \
  __attribute__((used, retain, section(".note.rlk"), aligned(4))) static const ::rlk::sdk::detail::Note<sizeof(text)> \
      rlk_plugin_note = {4, sizeof(text), 1, "rlk", text};

// Exports the plugin. Every text is a string literal.
#define RLK_PLUGIN(Class, id, backend, version, description)                      \
  RLK_PLUGIN_ENTRY(rlk_plugin_entry_v1, Class, id, backend, version, description) \
  RLK_SDK_NOTE(RLK_SDK_NOTE_TEXT(id, backend, version))

// The same for a plugin whose verdict depends on environment variables ("A,B"): a cached one holds for their values.
#define RLK_PLUGIN_WITH_ENVIRONMENT(Class, id, backend, version, description, variables) \
  RLK_PLUGIN_ENTRY(rlk_plugin_entry_v1, Class, id, backend, version, description)        \
  RLK_SDK_NOTE(RLK_SDK_NOTE_TEXT(id, backend, version) ";env=" variables)
