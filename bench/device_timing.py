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


def times(enqueue, most_calls=MOST_CALLS):
    host, both = cost_ms(enqueue)
    calls = max(1, min(most_calls, int(QUEUE_MS / max(both - host, 1e-3)), int(LONGEST_SLEEP_MS / both)))
    queues = 1 if both > 10 * LONG_CALL_MS else QUEUES_OF_LONG_CALLS if both > LONG_CALL_MS else QUEUES
    return [queue_ms(enqueue, calls, 1 + 1.5 * host * calls) for _ in range(queues)]


def device_ms(function, sets):
    """(median, least) time of a call, each with the next of the sets."""
    function(**sets[0])
    torch.cuda.synchronize()
    found = times(lambda i: function(**sets[i % len(sets)]))
    return statistics.median(found), min(found)


def graph_ms(function, sets):
    """The same of a call in a CUDA graph of twenty; and what the last of them gave."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for inputs in sets:
            function(**inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(CALLS_OF_A_GRAPH):
            out = function(**sets[i % len(sets)])
    found = [ms / CALLS_OF_A_GRAPH for ms in times(lambda i: graph.replay(), REPLAYS)]
    return statistics.median(found), min(found), out
