// Misbehaviour on demand, and a correct `add` to go with it. RLK_FAULT is "where:what", for example "create:crash", or
// several of them with commas between (README.md).
#pragma once

#include <rlk/sdk.hpp>
#include <rlk/sdk/ops/add.hpp>

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <unistd.h>

#include <algorithm>
#include <cfenv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "plugins/fault/words.hpp"

namespace rlk::fault {

// A file that is faulty whatever the environment says: to make a copy faulty, write faults over the dots.
inline volatile char slot[] = "RLK_FAULT_SLOT=................................................";

inline std::string find_fault(const std::string& faults, const char* where) {
  const std::string wanted = std::string(where) + ":";
  for (size_t at = 0; at < faults.size();) {
    const size_t end = std::min(faults.find(',', at), faults.size());
    if (faults.compare(at, wanted.size(), wanted) == 0)
      return faults.substr(at + wanted.size(), end - at - wanted.size());
    at = end + 1;
  }
  return "";
}

inline bool is_prober() {
  static const bool is = [] {
    char program[4096] = {};
    const bool known = readlink("/proc/self/exe", program, sizeof(program) - 1) > 0;
    return known && std::string(program).find("rlk-prober") != std::string::npos;
  }();
  return is;
}

// RLK_FAULT_IN is "prober" or "host" where only one of them is to meet the faults of RLK_FAULT.
inline bool is_meant() {
  const char* const only = std::getenv("RLK_FAULT_IN");
  return only == nullptr || *only == '\0' || std::string(only) == (is_prober() ? "prober" : "host");
}

// Those of the slot.
inline std::string own_faults() {
  std::string own;
  for (size_t i = std::strlen("RLK_FAULT_SLOT="); slot[i] != '\0'; ++i) own += slot[i];
  return own.substr(0, own.find_last_not_of('.') + 1);
}

// What this plugin does not understand of all that says where to fail, "" when nothing.
inline std::string problem_of_words() {
  for (const char* const name : {"RLK_FAULT", "RLK_FAULT_UNDECLARED"}) {
    const char* const faults = std::getenv(name);
    const std::string problem = faults != nullptr ? problem_of_faults(faults, false) : "";
    if (!problem.empty()) return std::string(name) + ": " + problem;
  }
  const char* const only = std::getenv("RLK_FAULT_IN");
  const std::string in = only != nullptr ? only : "";
  if (!in.empty() && in != "host" && in != "prober")
    return "RLK_FAULT_IN is '" + clipped(in) + "'; expected host or prober";
  const std::string problem = problem_of_faults(own_faults(), true);
  return problem.empty() ? "" : "RLK_FAULT_SLOT of the file: " + problem;
}

inline std::string fault_at(const char* where) {
  const char* const told[] = {is_meant() ? std::getenv("RLK_FAULT") : nullptr, std::getenv("RLK_FAULT_UNDECLARED")};
  std::string found;
  for (const char* faults : told) {
    found = faults != nullptr ? find_fault(faults, where) : "";
    if (!found.empty()) return found;
  }
  const std::string own = own_faults();
  found = find_fault(own, where);
  return found.empty() && !is_prober() ? find_fault(own, (std::string("host.") + where).c_str()) : found;
}

inline void write_pid() {
  if (FILE* file = std::fopen(std::getenv("RLK_FAULT_PID_FILE"), "w")) {
    std::fprintf(file, "%d\n", getpid());
    std::fclose(file);
  }
}

// Of this process's own parent, the process that it is a child of.
inline pid_t grandparent() {
  const std::string path = "/proc/" + std::to_string(getppid()) + "/stat";
  int parent = 0;
  if (FILE* file = std::fopen(path.c_str(), "r")) {
    if (std::fscanf(file, "%*d (%*[^)]) %*c %d", &parent) != 1) parent = 0;
    std::fclose(file);
  }
  return parent;
}

// A process in a session of its own that the host is not told of.
inline void start_daemon() {
  if (fork() != 0) return;
  setsid();
  if (fork() != 0) _exit(0);
  prctl(PR_SET_PDEATHSIG, 0);
  prctl(PR_SET_NAME, "acme-daemon");
  for (int signal = 1; signal < 32; ++signal) std::signal(signal, SIG_IGN);
  write_pid();
  while (true) pause();
}

struct CrashesAtEndOfThread {
  volatile bool used = false;
  ~CrashesAtEndOfThread() { std::raise(SIGSEGV); }
};

// The faults that can happen anywhere. Returns the fault for the place itself to act on.
inline std::string act(const char* where) {
  std::string what = fault_at(where);
  if (what == "crash") std::raise(SIGSEGV);
  if (what == "abort") std::abort();
  if (what == "killed") std::raise(SIGKILL);
  if (what == "exit") std::exit(5);
  if (what == "hang") {
    for (int signal = 1; signal < 32; ++signal) std::signal(signal, SIG_IGN);
    while (true) pause();
  }
  while (what == "stall") pause();
  if (what == "slow") usleep(100'000);
  if (what == "hold") {  // comes back when the file is there
    const char* const file = std::getenv("RLK_FAULT_RELEASE_FILE");
    for (const std::string path = file != nullptr ? file : ""; access(path.c_str(), F_OK) != 0;) usleep(1000);
  }
  if (what == "daemon" || what == "daemon_stall") start_daemon();
  if (what == "undo_death") {
    prctl(PR_SET_PDEATHSIG, 0);
    write_pid();
  }
  if (what == "stop_parent") kill(getppid(), SIGSTOP);
  if (what == "trace_parent") ptrace(PTRACE_ATTACH, getppid(), nullptr, nullptr);
  if (what == "trace_grandparent") ptrace(PTRACE_ATTACH, grandparent(), nullptr, nullptr);
  while (what == "daemon_stall" || what == "undo_death" || what == "stop_parent" || what == "trace_parent" ||
         what == "trace_grandparent")
    pause();
  if (what == "many_files") {
    for (int i = 0; i < 250; ++i)
      if (dup(2) < 0) std::exit(5);
  }
  if (what == "print") {
    for (int i = 0; i < 100; ++i) std::printf("a vendor's banner at %s\n", where);
    std::fprintf(stderr, "a vendor's warning\n");
    std::fflush(stdout);
  }
  // Descriptors that are not its own: everything small, where a socket might be.
  if (what == "scribble")
    for (int fd = 3; fd < 64; ++fd) (void)!write(fd, "scribble", 8);
  if (what == "throw") throw sdk::Error(RLK_BACKEND_ERROR, "the vendor said no", 100, "acme");
  if (what == "throw_int") throw 7;
  if (what == "end_thread") pthread_exit(nullptr);
  if (what == "cancel") pthread_cancel(pthread_self());
  if (what == "crash_later") {
    static thread_local CrashesAtEndOfThread crashes;
    crashes.used = true;
  }
  if (what == "close_all")
    for (int fd = 3; fd < 1024; ++fd) close(fd);
  if (what == "round_up") std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
  if (what == "flush") __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);  // denormals are zero, on both sides
#endif
  if (what == "chdir" && chdir("/") != 0) std::abort();
  if (what == "absent") throw sdk::Error(RLK_ABSENT, "no acme driver on this machine");
  return what;
}

// out = a + alpha * b for f32 and f64, any shape and stride.
class AddPlan final : public sdk::Plan {
public:
  explicit AddPlan(const rlk_add_params& params) : params_(params) {}
  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    const std::string what = act("enqueue");
    const auto call = sdk::arguments_of<sdk::ops::Add>(run, params_);
    const rlk_tensor& out = *call.out;
    const bool is_double = sdk::dtype_of(out) == sdk::Dtype::f64;
    if (is_double ? what == "wrong_f64" : what == "wrong_f32") return;  // leaves the output unwritten
    is_double ? add<double>(call) : add<float>(call);
    if (what.empty() || sdk::element_count(out) == 0) return;
    is_double ? spoil(what, sdk::data_of<double>(&out), out) : spoil(what, sdk::data_of<float>(&out), out);
  }

private:
  template <class T>
  static void spoil(const std::string& what, T* data, const rlk_tensor& out) {
    if (what == "one_element") data[0] += T{1};
    if (what == "nan") data[0] = std::numeric_limits<T>::quiet_NaN();
    int64_t last = 0;
    for (int32_t i = 0; i < out.ndim; ++i) last += (out.shape[i] - 1) * out.strides[i];
    if (what == "beyond") data[last + 1] = T{1};
  }
  // The element of an operand at an index of the output: shapes are aligned at their last dimension.
  template <class T>
  static T at(const rlk_tensor& tensor, const int64_t* index, int32_t ndim) {
    int64_t offset = 0;
    for (int32_t i = 0; i < tensor.ndim; ++i)
      offset += tensor.shape[i] == 1 ? 0 : index[i + ndim - tensor.ndim] * tensor.strides[i];
    return sdk::data_of<T>(&tensor)[offset];
  }
  template <class T>
  static void add(const sdk::Arguments<sdk::ops::Add>& call) {
    const rlk_tensor &a = *call.a, &b = *call.b, &out = *call.out;
    const int64_t count = sdk::element_count(out);
    int64_t index[RLK_MAX_NDIM] = {};
    for (int64_t n = 0; n < count; ++n) {
      int64_t offset = 0;
      for (int32_t i = 0; i < out.ndim; ++i) offset += index[i] * out.strides[i];
      sdk::data_of<T>(&out)[offset] =
          static_cast<T>(double{at<T>(a, index, out.ndim)} + call.params.alpha * double{at<T>(b, index, out.ndim)});
      for (int32_t i = out.ndim - 1; i >= 0 && ++index[i] == out.shape[i]; --i) index[i] = 0;
    }
  }
  const rlk_add_params params_;
};

template <class DeviceType>
struct AddOperator {
  using Op = sdk::ops::Add;
  static constexpr const char* kName = "simple";
  static sdk::Support query(DeviceType&, const sdk::Call<Op>& call) {
    const sdk::Dtype dtype = sdk::dtype_of(*sdk::arguments_of(call).a);
    if (dtype != sdk::Dtype::f32 && dtype != sdk::Dtype::f64)
      return sdk::Support::no("DTYPE", std::string(sdk::name_of(dtype)) + "; f32 and f64 are supported");
    return sdk::Support::yes("simple", RLK_NUMERICS_DETERMINISTIC);
  }
  static std::unique_ptr<sdk::Plan> plan(DeviceType&, const sdk::Call<Op>& call) {
    return std::make_unique<AddPlan>(call.params());
  }
};

}  // namespace rlk::fault
