// The scheduler: fibers that run until they wait, waves of them, blocks of waves.
#include "emulation.hpp"

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace rlk::emulation {
namespace {

constexpr size_t kStackBytes = 128 * 1024;

// Switching between stacks. On x86-64 by hand, because swapcontext enters the kernel twice; blocks switch a lot.
#if defined(__x86_64__)
using Context = void*;  // the stack pointer, everything else lies on the stack
extern "C" void rlk_emulation_switch(Context* from, Context to);
asm(R"(
.text
.globl rlk_emulation_switch
.hidden rlk_emulation_switch
.type rlk_emulation_switch, @function
rlk_emulation_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size rlk_emulation_switch, . - rlk_emulation_switch
)");
void switch_to(Context& from, Context& to) {
  rlk_emulation_switch(&from, to);
}
void start_at(Context& context, char* stack, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + kStackBytes);
  *--top = nullptr;  // as if entry had been called: keeps the alignment that functions expect
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  context = top;
}
#else
using Context = ucontext_t;
void switch_to(Context& from, Context& to) {
  swapcontext(&from, &to);
}
void start_at(Context& context, char* stack, void (*entry)()) {
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
}
#endif

enum class State { ready, in_wave, in_block, done };

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

struct Wave;

struct Fiber {
  Context context{};
  State state = State::ready;
  unsigned lane = 0;
  Wave* wave = nullptr;
  Thread where;
  bool vote = true;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> committed;
};

struct Wave {
  alignas(kSlotBytes) unsigned char slots[2][kWave][kSlotBytes];
  unsigned turn[kWave];
  Fiber *first, *end;
  unsigned arrived, gone;  // lanes that wait for the others, and that have returned
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Wave> waves;
  std::vector<unsigned char> shared;
  const std::function<void()>* body = nullptr;
  Context scheduler{};
  bool all = true;
};

thread_local Block* block = nullptr;
thread_local Fiber* running = nullptr;

// When every lane of the wave waits or has returned, those that wait may go on.
bool release(Wave& wave) {
  if (wave.arrived == 0 || wave.first + wave.arrived + wave.gone < wave.end) return false;
  for (Fiber* fiber = wave.first; fiber < wave.end; ++fiber) {
    if (fiber->state == State::in_wave) fiber->state = State::ready;
  }
  return wave.arrived = 0, true;
}

// To the next lane of the wave that is ready, and to the scheduler when there is none.
void yield(Fiber& fiber, State state) {
  Wave& wave = *fiber.wave;
  fiber.state = state;
  if (state == State::in_wave) ++wave.arrived;
  if (state == State::done) ++wave.gone;
  if (release(wave) && state == State::in_wave) return;  // the last to come goes on at once
  Fiber* next = &fiber;
  do {
    if (++next == wave.end) next = wave.first;
    if (next->state != State::ready) continue;
    running = next;
    return switch_to(fiber.context, next->context);
  } while (next != &fiber);
  switch_to(fiber.context, block->scheduler);
}

void fiber_main() {
  (*block->body)();
  yield(*running, State::done);
  std::abort();
}

// Of the calling thread, kept for its next launch: there are many small ones.
char* stack_of(size_t fiber) {
  thread_local std::vector<std::unique_ptr<char[]>> stacks;
  while (stacks.size() <= fiber) stacks.emplace_back(new char[kStackBytes]);
  return stacks[fiber].get();
}

// The kernel's threads wait for each other: some left out a barrier or a shuffle that others reached.
[[noreturn]] void abort_deadlock() {
  int counts[4] = {};
  for (const Fiber& fiber : block->fibers) ++counts[static_cast<int>(fiber.state)];
  std::fprintf(stderr, "emulated kernel: of %zu threads %d wait for their wave, %d for their block, %d have returned\n",
               block->fibers.size(), counts[1], counts[2], counts[3]);
  std::abort();
}

// Runs the fibers of a wave until none is ready. True when any ran.
bool run_wave(const Wave& wave) {
  bool any = false;
  for (Fiber* fiber = wave.first; fiber < wave.end; ++fiber) {
    if (fiber->state != State::ready) continue;
    running = fiber;
    switch_to(block->scheduler, fiber->context);  // the others' turns come there
    any = true;
  }
  return any;
}

void run_block() {
  const size_t count = block->fibers.size();
  for (;;) {
    bool any = false;
    for (size_t w = block->waves.size(); w-- > 0;) any = run_wave(block->waves[w]) || any;
    size_t done = 0, waiting = 0;
    for (const Fiber& fiber : block->fibers) {
      done += fiber.state == State::done ? 1 : 0;
      waiting += fiber.state == State::in_block ? 1 : 0;
    }
    if (done == count) return;
    if (waiting > 0 && done + waiting == count) {
      block->all = true;
      for (Fiber& fiber : block->fibers) {
        if (fiber.state == State::in_block) block->all = block->all && fiber.vote, fiber.state = State::ready;
      }
    } else if (!any) {
      abort_deadlock();
    }
  }
}

}  // namespace

const Thread& current() {
  return running->where;
}

int lane() {
  return static_cast<int>(running->lane);
}

void wait_for_block() {
  running->vote = true;
  yield(*running, State::in_block);
}

bool block_and(bool vote) {
  running->vote = vote;
  yield(*running, State::in_block);
  return block->all;
}

Slots next_slots() {
  Wave& wave = *running->wave;
  const unsigned lane = running->lane, turn = wave.turn[lane]++ % 2;
  return {wave.slots[turn][lane], &wave.slots[turn][0][0]};
}

void wait_for_wave() {
  yield(*running, State::in_wave);
}

unsigned char* dynamic_shared() {
  const auto address = reinterpret_cast<uintptr_t>(block->shared.data());
  return block->shared.data() + (128 - address % 128) % 128;
}

void copy_later(void* to, const void* from, size_t bytes) {
  running->open.push_back({to, from, bytes});
}
void commit_copies() {
  running->committed.push_back(std::move(running->open));
  running->open.clear();
}
void wait_copies(int pending) {
  std::deque<std::vector<Copy>>& groups = running->committed;
  while (static_cast<int>(groups.size()) > pending) {
    for (const Copy& copy : groups.front()) {
      if (copy.from != nullptr) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        std::memset(copy.to, 0, copy.bytes);
      }
    }
    groups.pop_front();
  }
}

// Blocks from the last to the first, and so a block's waves: a device may take them in any order, and what counts on
// that of their numbers is to be seen here.
void run_grid(const Dim& grid, const Dim& size, size_t shared_bytes, const std::function<void()>& body) {
  Block own;
  Block* const outer_block = block;
  Fiber* const outer_fiber = running;
  block = &own;
  own.fibers = std::vector<Fiber>(static_cast<size_t>(size.x) * size.y * size.z);
  own.waves.resize((own.fibers.size() + kWave - 1) / kWave);
  own.body = &body;
  for (unsigned b = grid.x; b-- > 0;) {
    own.shared.assign(shared_bytes + 128, 0xee);  // no kernel may count on what it finds
    std::memset(static_cast<void*>(own.waves.data()), 0, own.waves.size() * sizeof(Wave));
    for (size_t i = 0; i < own.fibers.size(); ++i) {
      Fiber& fiber = own.fibers[i];
      fiber.state = State::ready;
      fiber.where = Thread{{static_cast<unsigned>(i), 0, 0}, {b, 0, 0}, size, grid};
      fiber.lane = static_cast<unsigned>(i % kWave);
      fiber.wave = &own.waves[i / kWave];
      if (fiber.lane == 0) fiber.wave->first = &fiber;
      fiber.wave->end = &fiber + 1;
      fiber.open.clear();
      fiber.committed.clear();
      start_at(fiber.context, stack_of(i), &fiber_main);
    }
    run_block();
  }
  block = outer_block;
  running = outer_fiber;
}

}  // namespace rlk::emulation
