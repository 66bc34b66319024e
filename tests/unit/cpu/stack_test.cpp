// Work on the stack of its caller, or on another where that is small.
#include "core/cpu/plugin/stack.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <rlk/sdk/error.hpp>

#include <functional>
#include <thread>

namespace rlk::test {
namespace {

void on_a_stack_of(size_t bytes, const std::function<void()>& work) {
  const auto run = [](void* of) -> void* {
    (*static_cast<const std::function<void()>*>(of))();
    return nullptr;
  };
  pthread_attr_t attributes;
  pthread_t thread;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

// The thread on which work is done that is asked for here.
std::thread::id thread_of_work() {
  std::thread::id id;
  cpu::with_enough_stack([&id] { id = std::this_thread::get_id(); });
  return id;
}

TEST(CpuStack, WorkIsDoneOnAnotherThreadOnlyWhereTheCallerHasLittle) {
  on_a_stack_of(size_t{8} << 20, [] { EXPECT_EQ(thread_of_work(), std::this_thread::get_id()); });
  on_a_stack_of(size_t{256} << 10, [] {
    const std::thread::id id = thread_of_work();
    EXPECT_NE(id, std::thread::id()) << "it is not done when the call returns";
    EXPECT_NE(id, std::this_thread::get_id());
  });
}

TEST(CpuStack, WhatWorkThrowsIsThrownToItsCaller) {
  const auto call = [] {
    EXPECT_THROW(cpu::with_enough_stack([] { throw sdk::Error(RLK_OUT_OF_MEMORY, "none"); }), sdk::Error);
  };
  on_a_stack_of(size_t{8} << 20, call);
  on_a_stack_of(size_t{256} << 10, call);
}

}  // namespace
}  // namespace rlk::test
