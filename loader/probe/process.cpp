// posix_spawn into a session of its own, one socket, a clock for every phase, and SIGKILL for the whole group.
#include "loader/probe/process.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "core/declaration/processor_wait.hpp"
#include "core/declaration/text.hpp"
#include "loader/probe/guard.hpp"
#include "loader/probe/protocol.hpp"
#include "loader/probe/tree.hpp"
#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr size_t kOutputKept = 4096;
constexpr uint64_t kMaxProtocolBytes = uint64_t{512} << 20;
constexpr size_t kLongestName = 256;  // of a phase or an activity, in bytes
constexpr size_t kMostLeft = 16;      // processes that are named
constexpr Clock::duration kLeast = std::chrono::milliseconds(1);
constexpr int kReadsWhenLate = 64;                         // of 64 KiB each
constexpr auto kPollTime = std::chrono::milliseconds(20);  // how soon an end without an end-of-file is seen
constexpr auto kExitAllowance = std::chrono::seconds(5);   // between the result and the process being gone
constexpr auto kKillAllowance = std::chrono::seconds(5);   // between SIGKILL and the process being gone

// A descriptor out of the way of 0 to 4, which the child's own are copied to.
UniqueFd move_up(int fd) {
  const UniqueFd low(fd);
  return UniqueFd(fcntl(low.get(), F_DUPFD_CLOEXEC, 10));
}

class Child {
public:
  Child(const ChildCommand& command, const std::function<void(std::string_view)>& on_message)
      : command_(command), on_message_(on_message), started_(Clock::now()) {
    outcome_.phase = "start";
  }

  ChildOutcome run() {
    if (start()) {
      enter_phase("start");
      try {
        watch();
      } catch (...) {  // of on_message, or memory ran out: the child goes all the same
        finish();
        throw;
      }
      finish();
    }
    outcome_.seconds = Seconds(Clock::now() - started_).count();
    return std::move(outcome_);
  }

private:
  bool start() {
    int sockets[2] = {-1, -1};
    int pipes[2] = {-1, -1};
    int names[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return not_started("socketpair", errno);
    socket_ = move_up(sockets[0]);
    UniqueFd child_socket = move_up(sockets[1]);
    if (pipe2(pipes, O_CLOEXEC) != 0) return not_started("pipe2", errno);
    output_ = move_up(pipes[0]);
    UniqueFd child_output = move_up(pipes[1]);
    if (pipe2(names, O_CLOEXEC) != 0) return not_started("pipe2", errno);
    names_ = move_up(names[0]);
    UniqueFd child_names = move_up(names[1]);
    if (!socket_ || !child_socket || !output_ || !child_output || !names_ || !child_names)
      return not_started("fcntl", errno);
    for (const int fd : {socket_.get(), output_.get(), names_.get()})
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);

    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, child_output.get(), 1);
    posix_spawn_file_actions_adddup2(&actions, child_output.get(), 2);
    posix_spawn_file_actions_adddup2(&actions, child_socket.get(), kProtocolFd);
    posix_spawn_file_actions_adddup2(&actions, child_names.get(), kGuardFd);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

    std::vector<char*> argv = {const_cast<char*>(command_.program.c_str())};
    for (const std::string& argument : command_.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    std::vector<char*> envp;
    for (const std::string& entry : command_.environment) envp.push_back(const_cast<char*>(entry.c_str()));
    envp.push_back(nullptr);
    const int code = posix_spawn(&pid_, command_.program.c_str(), &actions, &attributes, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (code != 0) return not_started(command_.program, code);
    unsent_ = encode_frame(FrameKind::request, command_.request);
    return true;
  }

  bool not_started(const std::string& what, int code) {
    outcome_.text = what + ": " + errno_text(code);
    if (code == EMFILE || code == EINVAL) outcome_.text += "; too few files may be open, raise `ulimit -n`";
    return false;
  }

  // Until the child has given its result, is gone, or must go.
  void watch() {
    while (true) {
      if (command_.cancel != nullptr && command_.cancel->load(std::memory_order_relaxed))
        return end(ChildEnd::cancelled, "stopped " + where());
      if (command_.enough && command_.enough()) return end(ChildEnd::cancelled, "stopped " + where());
      pollfd polled[2] = {{socket_.get(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0},
                          {output_open_ ? output_.get() : -1, POLLIN, 0}};
      poll(polled, 2, static_cast<int>(kPollTime.count()));
      send_request();
      read_output();
      const bool open = read_frames();
      if (decided_) return;
      if (is_late()) {
        // On a busy machine this process may be the late one: read what the child has sent, within limits, before
        // judging.
        for (int i = 0; i < kReadsWhenLate && received_more_ && !decided_; ++i) read_frames();
        if (!decided_ && is_late()) end_timed_out();
        if (decided_) return;
      }
      const auto gone = peek_end();
      if (!gone && open) continue;
      if (!gone)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // it closed the socket; is it about to end?
      if (gone) {
        while (read_frames() && !decided_ && received_more_) {
        }
        if (!decided_) describe_end(*gone);
        return;
      }
    }
  }

  void send_request() {
    while (!unsent_.empty()) {
      // MSG_NOSIGNAL: writing to a dead child must not kill the host.
      const ssize_t sent = send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno != EAGAIN) unsent_.clear();  // it is gone; its end will be described
      if (sent <= 0) return;
      unsent_.erase(0, static_cast<size_t>(sent));
    }
  }

  void read_output() {
    char piece[16384];
    const ssize_t got = read(output_.get(), piece, sizeof(piece));
    output_open_ = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    if (got <= 0) return;
    outcome_.output.append(piece, static_cast<size_t>(got));
    if (outcome_.output.size() > kOutputKept) outcome_.output.erase(0, outcome_.output.size() - kOutputKept);
    more_output_ = true;
  }

  // False when the child closed its end.
  bool read_frames() {
    char piece[65536];
    const ssize_t got = recv(socket_.get(), piece, sizeof(piece), 0);
    received_more_ = got > 0;
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    decoder_.feed({piece, static_cast<size_t>(got)});
    protocol_bytes_ += static_cast<uint64_t>(got);
    while (auto frame = decoder_.next()) {
      take(std::move(*frame));
      if (decided_) return true;
    }
    if (decoder_.broken()) end(ChildEnd::garbled, decoder_.error() + " " + where());
    if (protocol_bytes_ > kMaxProtocolBytes) end(ChildEnd::garbled, "the child sent more than 512 MiB " + where());
    return true;
  }

  void take(Frame frame) {
    limit_silence();
    switch (frame.kind) {
      case FrameKind::phase:
        enter_phase(frame.payload);
        break;
      case FrameKind::beat:
        outcome_.activity = core::printable(frame.payload.substr(0, kLongestName));
        break;
      case FrameKind::message:
        if (on_message_) on_message_(frame.payload);
        break;
      case FrameKind::result:
        outcome_.result = std::move(frame.payload);
        end(ChildEnd::finished, "finished");
        break;
      case FrameKind::request:
        end(ChildEnd::garbled, "the child sent a request " + where());
        break;
    }
  }

  // Each phase has its time once, however often it is entered, and all without a budget share one: a plugin that speaks
  // the protocol itself wins no time.
  void enter_phase(const std::string& phase) {
    const auto now = Clock::now();
    if (time_ != nullptr && time_->left < Clock::duration::max()) {
      time_->left -= std::min(now - entered_, time_->left - std::min(time_->left, kLeast));
    }
    entered_ = now;
    outcome_.phase = core::printable(phase.substr(0, kLongestName));
    outcome_.activity.clear();
    std::string name;
    phase_seconds_ = command_.other_seconds;
    silence_seconds_ = command_.silence_seconds;
    for (const PhaseBudget& budget : command_.budgets) {
      if (budget.phase != outcome_.phase) continue;
      name = budget.phase;
      phase_seconds_ = budget.seconds;
      if (budget.silence_seconds > 0) silence_seconds_ = budget.silence_seconds;
    }
    const Clock::duration whole = duration_of(phase_seconds_);
    time_ = &time_left_.try_emplace(name, PhaseTime{whole, beyond(whole)}).first->second;
    deadline_ = time_->left == Clock::duration::max() ? Clock::time_point::max() : now + time_->left;
    limit_silence();
  }

  void limit_silence() {
    silence_deadline_ = limit(silence_seconds_);
    silence_beyond_ = beyond(duration_of(silence_seconds_));
  }

  bool is_late() {
    const auto has_passed = [&] { return Clock::now() >= std::min(deadline_, silence_deadline_); };
    return has_passed() && !(excuse() && !has_passed());
  }

  // Where the child has waited for a processor since it was excused last, its limits end by so much later.
  bool excuse() {
    std::chrono::nanoseconds waited = core::waited_for_processor(pid_);
    for (const ProcessSeen& process : descendants_of(pid_))
      waited = std::max(waited, core::waited_for_processor(process.pid));
    const Clock::duration more = waited - std::exchange(excused_, std::max(excused_, waited));
    if (more < kLeast) return false;
    if (deadline_ != Clock::time_point::max()) {
      const Clock::duration granted = std::min(more, time_->beyond);
      deadline_ += granted;
      time_->left += granted;
      time_->beyond -= granted;
    }
    if (silence_deadline_ != Clock::time_point::max()) {
      const Clock::duration granted = std::min(more, silence_beyond_);
      silence_deadline_ += granted;
      silence_beyond_ -= granted;
    }
    return true;
  }

  static Clock::duration duration_of(double seconds) {
    if (seconds <= 0.0) return Clock::duration::max();
    return std::chrono::duration_cast<Clock::duration>(Seconds(std::min(seconds, 1e6)));
  }
  // What waiting for a processor may add to a limit.
  static Clock::duration beyond(Clock::duration limit) {
    return limit == Clock::duration::max() ? Clock::duration::zero() : limit * (core::kWidestByTheClock - 1);
  }
  static Clock::time_point limit(double seconds) {
    return seconds <= 0.0 ? Clock::time_point::max() : Clock::now() + duration_of(seconds);
  }

  std::string where() const {
    return fmt::format("in phase {}{}", outcome_.phase, outcome_.activity.empty() ? "" : ", at " + outcome_.activity);
  }

  void end(ChildEnd how, std::string text) {
    decided_ = true;
    outcome_.end = how;
    outcome_.text = std::move(text);
  }

  void end_timed_out() {
    const bool silent = silence_deadline_ < deadline_;
    char seconds[32];
    std::snprintf(seconds, sizeof(seconds), "%.1f s", silent ? silence_seconds_ : phase_seconds_);
    end(ChildEnd::timed_out,
        fmt::format("{} {} {}", silent ? "no sign of life for" : "not done after", seconds, where()));
  }

  // The child's end without reaping it: its process id, and so its group's, stays reserved until we are done with both.
  std::optional<siginfo_t> peek_end() {
    siginfo_t info = {};
    while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
      if (errno == EINTR) continue;
      // The application reaps all children or ignores SIGCHLD: the exit status is lost, but the child is gone.
      reaped_elsewhere_ = true;
      return info;
    }
    return info.si_pid == 0 ? std::nullopt : std::optional(info);
  }

  void describe_end(const siginfo_t& info) {
    outcome_.code = info.si_status;
    if (reaped_elsewhere_) return end(ChildEnd::exited, "ended with a status that the application took " + where());
    if (info.si_code == CLD_EXITED && info.si_status == kExitWithoutSocket)
      return end(ChildEnd::exited, "its connection to rlk was closed " + where() +
                                       ": something in the plugin closes descriptors that are not its own");
    if (info.si_code == CLD_EXITED && info.si_status == kExitWithoutReturn)
      return end(ChildEnd::exited, "ended its thread instead of returning " + where());
    if (info.si_code == CLD_EXITED)
      return end(ChildEnd::exited, fmt::format("ended with exit code {} {}", info.si_status, where()));
    std::string text = fmt::format("killed by {} {}", signal_name(info.si_status), where());
    if (info.si_status == SIGKILL) text += " (not by rlk: by the kernel when memory ran out, or by another process)";
    end(ChildEnd::crashed, std::move(text));
  }

  // Kills everything that is left of the child, and reaps it.
  void finish() {
    if (outcome_.end == ChildEnd::finished) wait_for_end(kExitAllowance);
    if (!reaped_elsewhere_) {
      // While the child exists, its descendants can be found through it, in any session.
      if (!peek_end())
        for (const std::string& name : end_descendants(pid_)) note_left(name);
      kill(-pid_, SIGKILL);  // SIGTERM can be ignored
      kill(pid_, SIGKILL);   // should it have left its own group
    }
    const bool gone = wait_for_end(kKillAllowance);
    // Read the rest of the pipe, within limits: a process that inherited its other end could write for ever.
    for (int i = 0; i < 64 && std::exchange(more_output_, false); ++i) read_output();
    read_names();
    if (reaped_elsewhere_) return;
    if (!gone) {
      outcome_.text += fmt::format("; process {} does not end although it was killed (it waits in the kernel)", pid_);
      return;
    }
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // What the guard ended.
  void read_names() {
    char piece[4096];
    const ssize_t got = read(names_.get(), piece, sizeof(piece));
    const std::string all(piece, got > 0 ? static_cast<size_t>(got) : 0);
    for (size_t begin = 0, end = 0; (end = all.find('\n', begin)) != std::string::npos; begin = end + 1)
      note_left(all.substr(begin, end - begin));
  }

  void note_left(const std::string& name) {
    if (outcome_.left.size() < kMostLeft) outcome_.left.push_back(core::printable(name.substr(0, kLongestName)));
  }

  bool wait_for_end(Clock::duration allowance) {
    const auto until = Clock::now() + allowance;
    for (auto pause = std::chrono::microseconds(100);; pause = std::min(pause * 2, std::chrono::microseconds(20000))) {
      if (peek_end()) return true;
      if (Clock::now() >= until) return false;
      more_output_ = true;
      read_output();  // a child that waits for us to read cannot end
      std::this_thread::sleep_for(pause);
    }
  }

  const ChildCommand& command_;
  const std::function<void(std::string_view)>& on_message_;
  const Clock::time_point started_;
  ChildOutcome outcome_;
  UniqueFd socket_;
  UniqueFd output_;
  UniqueFd names_;
  pid_t pid_ = -1;
  std::string unsent_;
  FrameDecoder decoder_;
  uint64_t protocol_bytes_ = 0;
  double phase_seconds_ = 0.0, silence_seconds_ = 0.0;  // of the present phase
  struct PhaseTime {
    Clock::duration left, beyond;  // beyond: what waiting for a processor may still add
  };
  std::map<std::string, PhaseTime> time_left_;  // by phase; "" is all that have no budget
  PhaseTime* time_ = nullptr;                   // of the present phase, when it was entered
  Clock::duration silence_beyond_{};
  std::chrono::nanoseconds excused_{};  // of what the child has waited for a processor
  Clock::time_point entered_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point silence_deadline_ = Clock::time_point::max();
  bool decided_ = false;
  bool received_more_ = false;
  bool output_open_ = true;
  bool more_output_ = true;
  bool reaped_elsewhere_ = false;
};

}  // namespace

std::string signal_name(int signal) {
  switch (signal) {  // those a plugin dies of; sigabbrev_np needs glibc 2.32
    case SIGSEGV:
      return "SIGSEGV";
    case SIGABRT:
      return "SIGABRT";
    case SIGBUS:
      return "SIGBUS";
    case SIGFPE:
      return "SIGFPE";
    case SIGILL:
      return "SIGILL";
    case SIGTRAP:
      return "SIGTRAP";
    case SIGSYS:
      return "SIGSYS";
    case SIGPIPE:
      return "SIGPIPE";
    case SIGKILL:
      return "SIGKILL";
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGQUIT:
      return "SIGQUIT";
    case SIGHUP:
      return "SIGHUP";
    case SIGALRM:
      return "SIGALRM";
    case SIGXCPU:
      return "SIGXCPU";
    case SIGXFSZ:
      return "SIGXFSZ";
    default:
      return fmt::format("signal {}", signal);
  }
}

ChildOutcome run_child(const ChildCommand& command, const std::function<void(std::string_view)>& on_message) {
  return Child(command, on_message).run();
}

}  // namespace rlk::loader
