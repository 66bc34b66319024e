// Has the end of this process begun? While exit() runs, statics of plugins, of their libraries and of the embedder die
// one after the other, and threads go on: what they compute from then on proves nothing against a plugin.
#pragma once

#include <functional>

namespace rlk::core {

// exit() calls its handlers and the destructors of statics in one order, the latest registered first. So the end is
// seen before anything dies that was there at the last call of this: it is called again whenever code has run for the
// first time in this process, since it may have left statics of its own. [thread-safe]
void watch_for_the_end() noexcept;

// True from then on. A check asks when its judgement is made and before it stores it: what it has read may have
// died meanwhile. [thread-safe]
bool end_has_begun() noexcept;

// Is called as soon as the end has begun, on the thread that ends the process. Whatever it uses is never destroyed. A
// forked process calls it too. std::bad_alloc. [thread-safe]
void when_the_end_begins(std::function<void()> tell);

// For threads that the host makes to run a plugin's code: if exit() is called on one, the plugin called it.
void this_thread_is_the_hosts() noexcept;
bool is_hosts_thread() noexcept;

}  // namespace rlk::core
