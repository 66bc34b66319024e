// Does the device do what its tables promise, before anybody looks at its operators? Memory, copies, the order of
// streams, events, host functions, wrapped streams, extensions. Optional slots may be NULL or answer RLK_UNSUPPORTED.
#pragma once

#include <optional>

#include "core/conformance/device_session.hpp"

namespace rlk::core::conformance {

// The first promise that the device of the target breaks. For a plugin without devices, what it does to the streams of
// their owner. Never throws.
std::optional<Failure> device_conduct(const Target& target, bool smoke);

// Its parts; they throw Broken.
void memory_conduct(Session& session);              // device_memory_conduct.cpp
void transfer_conduct(Session& session);            // device_memory_conduct.cpp
void extension_conduct(const Target& target);       // device_extensions.cpp
void host_function_conduct(Session& session);       // device_stream_conduct.cpp
void inline_conduct(Session& session);              // device_stream_conduct.cpp
void order_conduct(Session& session, int rounds);   // device_stream_conduct.cpp
void waiting_conduct(Session& session);             // device_stream_conduct.cpp
void thread_conduct(Session& session, int rounds);  // device_stream_conduct.cpp
void event_conduct(Session& session);               // device_event_conduct.cpp
void wrap_conduct(Session& session);                // device_event_conduct.cpp
void capture_conduct(Session& session);             // device_event_conduct.cpp
void guest_conduct(Session& session);               // device_event_conduct.cpp

// Whether [memory, memory + bytes) can be read in this process, without reading it; true when nobody can tell.
bool is_readable(const void* memory, uint64_t bytes);

}  // namespace rlk::core::conformance
