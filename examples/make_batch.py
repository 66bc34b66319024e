"""Writes a small batch for grpo_step as .npy files, the same every time, with the standard library alone.

    make_batch.py FOLDER

Two prompts with four sampled sequences each. Behind the end of a sequence mask is 0 and ids is -100.
"""
import array
import math
import os
import random
import struct
import sys

SEQUENCES, TOKENS, VOCABULARY = 8, 16, 512
REWARDS = [1, 0, 0, 1, 0.5, 1, 0, 0.25]
CODES = {"<f4": "f", "<i8": "q", "|u1": "B"}


def write(path, descr, shape, values):
    header = str({"descr": descr, "fortran_order": False, "shape": shape})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        array.array(CODES[descr], values).tofile(file)


def main(folder):
    numbers = random.Random(1)
    logits, ref_logits, ids, old_logp, mask = [], [], [], [], []
    for sequence in range(SEQUENCES):
        length = TOKENS - 2 * (sequence % 4)
        for token in range(TOKENS):
            row = [numbers.gauss(0, 2) for _ in range(VOCABULARY)]
            logits += row
            ref_logits += [z + numbers.gauss(0, 0.1) for z in row]
            # The policy that sampled is a few steps old: some ratios are outside the clip.
            old = [z + numbers.gauss(0, 0.15) for z in row]
            weights = [math.exp(z) for z in old]
            chosen = numbers.choices(range(VOCABULARY), weights)[0]
            active = token < length
            mask.append(int(active))
            ids.append(chosen if active else -100)
            old_logp.append(old[chosen] - math.log(sum(weights)) if active else 0)
    os.makedirs(folder, exist_ok=True)
    tokens = (SEQUENCES, TOKENS)
    for name, descr, shape, values in (
            ("logits", "<f4", (*tokens, VOCABULARY), logits),
            ("ref_logits", "<f4", (*tokens, VOCABULARY), ref_logits),
            ("ids", "<i8", tokens, ids),
            ("old_logp", "<f4", tokens, old_logp),
            ("rewards", "<f4", (SEQUENCES,), REWARDS),
            ("mask", "|u1", tokens, mask),
            ("grad_loss", "<f4", (1,), [1])):  # the gradient of the loss with respect to itself, for the command line
        write(os.path.join(folder, name + ".npy"), descr, shape, values)
    print(f"{folder}: {SEQUENCES} sequences of up to {TOKENS} tokens, {sum(mask)} of them active, {VOCABULARY} entries")


if __name__ == "__main__":
    main(sys.argv[1]) if len(sys.argv) == 2 else sys.exit(__doc__)
