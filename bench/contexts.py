#!/usr/bin/env python3
"""What do the processes of a training job cost the cards? Starts one process per rank, each with a runtime of its own,
as torchrun does, and reports the contexts and the memory that they hold.

    RLK_PLUGIN_PATH=build/release/lib/plugins python3 bench/contexts.py build/release/lib/librlk.so [--ranks 8]

Memory and processes are nvidia-smi's, per card: before, with every runtime created, and with one stream per rank on the
card rank % cards. A card holds a context of each process that it lists.
"""
import argparse
import ctypes
import subprocess
import sys


def rank_main(library, rank, cards):
    """Creates a runtime, waits for a line, makes a stream, waits for a line."""
    rlk = ctypes.CDLL(library)

    class Error(ctypes.Structure):
        _fields_ = [("struct_size", ctypes.c_uint32), ("status", ctypes.c_int32), ("native_code", ctypes.c_int64),
                    ("domain", ctypes.c_char * 32), ("text", ctypes.c_char * 464)]

    error = Error(ctypes.sizeof(Error))

    def check(status):
        if status != 0:
            sys.exit(f"rank {rank}: {error.text.decode()}")

    runtime, stream = ctypes.c_void_p(), ctypes.c_void_p()
    check(rlk.rlk_runtime_create(None, ctypes.byref(runtime), ctypes.byref(error)))
    print("created", flush=True)
    sys.stdin.readline()
    check(rlk.rlk_stream_create(runtime, b"cuda", ctypes.c_uint32(rank % cards), ctypes.c_int32(0), ctypes.byref(stream),
                                ctypes.byref(error)))
    print("streaming", flush=True)
    sys.stdin.readline()
    check(rlk.rlk_stream_destroy(stream, ctypes.byref(error)))
    check(rlk.rlk_runtime_destroy(runtime, ctypes.byref(error)))


def smi(query):
    lines = subprocess.run(["nvidia-smi", *query.split(), "--format=csv,noheader,nounits"], check=True,
                           capture_output=True, text=True).stdout.strip().splitlines()
    return [[field.strip() for field in line.split(",")] for line in lines]


def report(label):
    contexts = [uuid for uuid, _ in smi("--query-compute-apps=gpu_uuid,pid")]
    print(f"{label:32}", "   ".join(f"card {index}: {contexts.count(uuid)} contexts, {used} MiB"
                                    for index, uuid, used in smi("--query-gpu=index,uuid,memory.used")), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cards = len(smi("--query-gpu=index"))
    if arguments.rank is not None:
        return rank_main(arguments.library, arguments.rank, cards)
    report("before")
    ranks = [subprocess.Popen([sys.executable, __file__, arguments.library, "--rank", str(rank)], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) for rank in range(arguments.ranks)]
    for label in ("every rank has a runtime", "every rank has a stream"):
        for process in ranks:
            if not process.stdout.readline():
                sys.exit("a rank ended early; its text is above")
        report(label)
        for process in ranks:
            process.stdin.write("\n")
            process.stdin.flush()
    return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
