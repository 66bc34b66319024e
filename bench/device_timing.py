"""How bench/device_torch.py takes times on a device: queues of calls between two events, of which the host is not seen."""
import statistics
import time

import torch

SLEEP_CYCLES_MS = 2_000_000     # of torch.cuda._sleep, for some millisecond
LONGEST_SLEEP_MS = 100
QUEUES, QUEUE_MS, MOST_CALLS = 7, 10, 100
LONG_CALL_MS, QUEUES_OF_LONG_CALLS = 20, 3
CALLS_OF_A_GRAPH, REPLAYS = 20, 10


def queue_ms(enqueue, calls, sleep_ms):
    """Milliseconds a call, of one queue: it waits behind a kernel that sleeps until the host has queued all of it."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(SLEEP_CYCLES_MS * min(LONGEST_SLEEP_MS, sleep_ms)))
    begin.record()
    for i in range(calls):
        enqueue(i)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls


def cost_ms(enqueue):
    """(of the host, of both) for a call by itself."""
    host, both = [], []
    for i in range(2):
        start = time.perf_counter()
        enqueue(i)
        host.append(1e3 * (time.perf_counter() - start))
        torch.cuda.synchronize()
        both.append(1e3 * (time.perf_counter() - start))
        if both[-1] > LONG_CALL_MS:
            break
    return min(host), min(both)


class Turn:
    """An implementation's queues: how many calls each has, and what they took, milliseconds a call."""

    def __init__(self, enqueue, most_calls):
        enqueue(0)  # compiles, and asks the allocator
        torch.cuda.synchronize()
        self.enqueue, self.ms = enqueue, []
        host, both = cost_ms(enqueue)
        self.calls = max(1, min(most_calls, int(QUEUE_MS / max(both - host, 1e-3)), int(LONGEST_SLEEP_MS / both)))
        self.sleep_ms = 1 + 1.5 * host * self.calls
        self.queues = 1 if both > 10 * LONG_CALL_MS else QUEUES_OF_LONG_CALLS if both > LONG_CALL_MS else QUEUES

    def take(self):
        if len(self.ms) < self.queues:
            self.ms.append(queue_ms(self.enqueue, self.calls, self.sleep_ms))


def in_turns(enqueues, most_calls=MOST_CALLS):
    """({name: (median, least) milliseconds a call}, {name: exception}): a queue of each, one behind the other and again, so
    that all meet the same clock. enqueues: {name: function of the number of the call}."""
    turns, failed = {}, {}

    def guarded(name, function):
        try:
            return function()
        except Exception as error:  # one that fails hides no other
            failed[name] = error
            turns.pop(name, None)
    for name, enqueue in enqueues.items():
        turn = guarded(name, lambda enqueue=enqueue: Turn(enqueue, most_calls))
        if turn is not None:
            turns[name] = turn
    for _ in range(QUEUES):
        for name in list(turns):
            guarded(name, turns[name].take)
    return {name: (statistics.median(turn.ms), min(turn.ms)) for name, turn in turns.items()}, failed


def over(function, sets):
    """Each call has the next of the sets."""
    return lambda i: function(**sets[i % len(sets)])


def captured(function, sets):
    """(what replays a CUDA graph of twenty calls, the outputs of its last call)."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for inputs in sets:
            function(**inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(CALLS_OF_A_GRAPH):
            out = function(**sets[i % len(sets)])
    return lambda i: graph.replay(), out
