// rlk-prober: examines one plugin in a process of its own, on behalf of the loader. It may crash, hang or be killed at
// any time without harm to other processes. What to do comes over the socket at descriptor 3, and so go the answers.
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <system_error>
#include <thread>

#include "core/declaration/no_cancel.hpp"
#include "loader/host/services.hpp"
#include "loader/probe/child_probe.hpp"
#include "loader/probe/descriptors.hpp"
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
  rlk::loader::close_descriptors(3, moved);  // also what the application left open without close-on-exec
  return moved;
}

void leave_no_traces() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);  // the image of a process that maps a device's memory can be huge
}

// As a host does it: on a thread that ends afterwards, so that what the plugin left for the end of its threads
// (destructors of thread-local objects) fails here and not there.
void examine_on_a_thread(rlk::loader::PluginRecord* record, const rlk::loader::ExamineOptions& options) {
  bool returned = false;
  const auto work = [&] {
    const rlk::core::NoCancel whole;
    // An exception that a plugin lets out ends this process, as it would end any host whose C++ runtime is another one.
    rlk::loader::examine(record, options);
    options.on_activity("the end of its thread");
    returned = true;
  };
  std::thread thread;
  try {
    thread = std::thread(work);
  } catch (const std::system_error&) {  // no thread can be started
    return work();
  }
  thread.join();
  if (!returned) _exit(rlk::loader::kExitWithoutReturn);
}

int examine_requested(ChildChannel* channel) {
  const auto request = channel->receive_request();
  if (!request) return rlk::loader::kExitWithoutSocket;
  rlk::loader::PluginRecord record;
  rlk::loader::ExamineOptions options;
  std::string error;
  if (!rlk::loader::decode_request(*request, &record, &options, &error)) {
    std::fprintf(stderr, "rlk-prober: %s\n", error.c_str());
    return rlk::loader::kExitWithoutSocket;
  }
  options.host = rlk::loader::host_services();
  // A prober that cannot tell its parent what it does need not go on.
  const auto send = [channel](FrameKind kind, const std::string& text) {
    if (!channel->send(kind, text)) _exit(rlk::loader::kExitWithoutSocket);
  };
  options.on_phase = [send](const std::string& phase) { send(FrameKind::phase, phase); };
  options.on_activity = [send](const std::string& activity) { send(FrameKind::beat, activity); };
  options.on_progress = [send](const rlk::loader::PluginRecord& now) { send(FrameKind::message, record_to_text(now)); };
  examine_on_a_thread(&record, options);
  return channel->send(FrameKind::result, record_to_text(record)) ? 0 : rlk::loader::kExitWithoutSocket;
}

}  // namespace

int main(int argc, char** argv) {
  if (!has_socket()) {
    std::fprintf(stderr, "rlk-prober is started by rlk itself; use `rlk-plugins probe` to examine a plugin.\n");
    return 2;
  }
  if (!rlk::loader::enter_guarded(argc, argv)) _exit(rlk::loader::kExitWithoutParent);
  const int socket = take_socket();
  if (socket < 0) return rlk::loader::kExitWithoutSocket;
  leave_no_traces();
  ChildChannel channel(socket);
  const int code = examine_requested(&channel);
  std::fflush(nullptr);
  // No exit handlers: what a vendor's runtime does at exit has crashed and hung many a process after its work was done.
  _exit(code);
}
