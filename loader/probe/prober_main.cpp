// rlk-prober: examines one plugin in a process of its own, on behalf of the loader. It may crash, hang or be killed at
// any time without harm to anyone. What to do comes over the socket at descriptor 3, and so go the answers.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "core/dispatch/host.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/guard.hpp"
#include "loader/probe/protocol.hpp"

namespace {

using rlk::loader::ChildChannel;
using rlk::loader::FrameKind;

bool has_socket() {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(rlk::loader::kProtocolFd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

int take_socket() {
  const int moved = rlk::loader::move_protocol_socket();
  for (int fd = 3; fd < 1024; ++fd)  // also what the application left open without close-on-exec
    if (fd != moved) close(fd);
  return moved;
}

void leave_no_traces() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the image of a process that maps a device's memory can be huge
}

int examine_requested(ChildChannel* channel) {
  const auto request = channel->receive_request();
  if (!request) return 3;
  rlk::loader::PluginRecord record;
  rlk::loader::ExamineOptions options;
  std::string error;
  if (!rlk::loader::decode_request(*request, &record, &options, &error)) {
    std::fprintf(stderr, "rlk-prober: %s\n", error.c_str());
    return 3;
  }
  options.host = rlk::core::host_services();
  options.on_phase = [channel](const std::string& phase) { channel->send(FrameKind::phase, phase); };
  options.on_activity = [channel](const std::string& activity) { channel->send(FrameKind::beat, activity); };
  options.on_progress = [channel](const rlk::loader::PluginRecord& now) {
    channel->send(FrameKind::message, record_to_text(now));
  };
  // An exception that a plugin lets out ends this process, as it would end any host whose C++ runtime is another one.
  rlk::loader::examine(&record, options);
  return channel->send(FrameKind::result, record_to_text(record)) ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  if (!has_socket()) {
    std::fprintf(stderr, "rlk-prober is started by rlk itself; use `rlk-plugins probe` to examine a plugin.\n");
    return 2;
  }
  if (!rlk::loader::enter_guarded(argc, argv)) _exit(rlk::loader::kExitWithoutParent);
  const int socket = take_socket();
  if (socket < 0) return 3;
  leave_no_traces();
  ChildChannel channel(socket);
  const int code = examine_requested(&channel);
  std::fflush(nullptr);
  // No exit handlers: what a vendor's runtime does at exit has crashed and hung many a process after its work was done.
  _exit(code);
}
