// A child of the loader that misbehaves as its first argument says. Speaks the prober's protocol.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "loader/probe/protocol.hpp"

namespace {

using rlk::loader::ChildChannel;
using rlk::loader::FrameKind;

[[noreturn]] void hang() {
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "exit_at_once") return 7;
  ChildChannel channel(rlk::loader::kProtocolFd);
  const auto request = channel.receive_request();
  if (!request) return 99;
  channel.send(FrameKind::phase, "create");
  channel.send(FrameKind::beat, "step 1");

  if (what == "hang") hang();
  if (what == "hang_ignoring_signals") {
    for (int signal = 1; signal < 32; ++signal) ::signal(signal, SIG_IGN);
    hang();
  }
  if (what == "burn_half_a_second") {
    while (clock() < CLOCKS_PER_SEC / 2) {
    }
    channel.send(FrameKind::result, "done");
    return 0;
  }
  if (what == "spin") {
    while (true) clock();
  }
  if (what == "leave_a_grandchild") {
    // It ignores everything and holds the socket and the output pipe open.
    const pid_t pid = fork();
    if (pid == 0) {
      for (int signal = 1; signal < 32; ++signal) ::signal(signal, SIG_IGN);
      hang();
    }
    channel.send(FrameKind::result, std::to_string(pid));
    return 0;
  }
  if (what == "crash") raise(std::atoi(argv[2]));
  if (what == "segfault") {
    void* guarded = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile char*>(guarded) = 1;
  }
  if (what == "abort") std::abort();
  if (what == "exit") std::exit(3);
  if (what == "close_and_hang") {
    close(rlk::loader::kProtocolFd);
    hang();
  }
  if (what == "print_garbage") {
    for (int i = 0; i < 2000; ++i) std::printf("RLK1 noise on the standard output, line %d\n", i);
    std::fprintf(stderr, "last words on stderr\n");
    std::fflush(stdout);
  }
  if (what == "flood_output") {
    const std::string block(65536, 'x');
    while (write(1, block.data(), block.size()) > 0) {
    }
  }
  if (what == "garble_protocol") {
    if (write(rlk::loader::kProtocolFd, "this is no frame", 16) != 16) return 98;
    hang();
  }
  if (what == "huge_frame") {
    const uint32_t head[3] = {0x314b4c52, 4, 0xffffffffu};
    if (write(rlk::loader::kProtocolFd, head, sizeof(head)) != sizeof(head)) return 98;
    hang();
  }
  if (what == "messages_then_crash") {
    channel.send(FrameKind::message, "one");
    channel.send(FrameKind::message, "two");
    channel.send(FrameKind::beat, "step 2");
    raise(SIGSEGV);
  }
  if (what == "slow_but_alive") {
    for (int i = 0; i < 20; ++i) {
      usleep(50'000);
      channel.send(FrameKind::beat, "step " + std::to_string(i));
    }
  }
  if (what == "many_phases") {
    for (int i = 0; i < 5; ++i) {
      channel.send(FrameKind::phase, "phase " + std::to_string(i));
      usleep(200'000);
    }
  }
  if (what == "phases_then_hang") {
    for (int i = 0; i < 4; ++i) channel.send(FrameKind::phase, "phase " + std::to_string(i));
    hang();
  }
  if (what == "forge_one_phase" || what == "forge_many_phases") {
    for (int i = 0; i < 3000; ++i) {
      channel.send(FrameKind::phase, what == "forge_one_phase" ? "create" : "phase " + std::to_string(i));
      usleep(20'000);
    }
    return 0;
  }
  if (what == "forge_a_name") {
    channel.send(FrameKind::phase, "\x1b[31m" + std::string(5 << 20, 'x'));
    return 5;
  }
  if (what == "message_then_more") {
    channel.send(FrameKind::message, "one");
    usleep(100'000);
    channel.send(FrameKind::phase, "next");
    usleep(1'500'000);
  }
  if (what == "result_then_hang") {
    channel.send(FrameKind::result, "done");
    hang();
  }
  if (what == "report") {
    std::string report = "request=" + *request;
    report += " pid_is_session=" + std::to_string(getsid(0) == getpid());
    char byte = 0;
    report += " stdin=" + std::to_string(read(0, &byte, 1));
    sigset_t mask;
    sigprocmask(SIG_SETMASK, nullptr, &mask);
    report += " blocked=" + std::to_string(sigismember(&mask, SIGUSR1));
    struct sigaction action = {};
    sigaction(SIGUSR2, nullptr, &action);
    report += " ignored=" + std::to_string(action.sa_handler == SIG_IGN);
    const char* variable = std::getenv("RLK_TEST_VARIABLE");
    report += std::string(" variable=") + (variable == nullptr ? "unset" : variable);
    report += std::string(" home=") + (std::getenv("HOME") == nullptr ? "unset" : "set");
    channel.send(FrameKind::result, report);
    return 0;
  }
  channel.send(FrameKind::result, "fine");
  return 0;
}
