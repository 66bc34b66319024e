// Does the device do what its tables promise? Checked before its operators. Memory, copies, the order of
// streams, events, host functions, wrapped streams, extensions. Optional slots may be NULL or answer RLK_UNSUPPORTED.
#pragma once

#include <optional>

#include "core/conformance/device_session.hpp"

namespace rlk::core::conformance {

// The first promise that the device of the target breaks. For a plugin without devices, what it does to the streams of
// their owner. Never throws.
std::optional<Failure> device_checks(const Target& target, bool smoke);

// Its parts; they throw Broken.
void check_memory(Session& session);              // device_memory_checks.cpp
void check_transfer(Session& session);            // device_memory_checks.cpp
void check_extension(const Target& target);       // device_extension_checks.cpp
void check_host_function(Session& session);       // device_stream_checks.cpp
void check_inline(Session& session);              // device_stream_checks.cpp
void check_order(Session& session, int rounds);   // device_stream_checks.cpp
void check_waiting(Session& session);             // device_stream_checks.cpp
void check_thread(Session& session, int rounds);  // device_stream_checks.cpp
void check_event(Session& session);               // device_event_checks.cpp
void check_wrap(Session& session);                // device_event_checks.cpp
void check_capture(Session& session);             // device_event_checks.cpp
void check_guest(Session& session);               // device_event_checks.cpp

// Whether [memory, memory + bytes) can be read in this process, without reading it; true where unknown.
bool is_readable(const void* memory, uint64_t bytes);

}  // namespace rlk::core::conformance
