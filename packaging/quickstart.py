"""The tensors of the quickstart as .npy files, with the standard library alone.

    quickstart.py make                       writes logits.npy, ids.npy and grad_logp.npy into the current folder
    quickstart.py compare ONE OTHER NAME...  prints the largest difference of ONE/NAME.npy and OTHER/NAME.npy of these
                                             folders; exits with 1 when one is larger than fp32 rounding explains, or
                                             when a file holds no finite numbers
"""
import array
import ast
import math
import random
import struct
import sys

ROWS, VOCABULARY = 64, 8192
CODES = {"<f4": "f", "<i8": "q"}
LIMIT = 2e-5  # of fp32 log-probabilities


def write(path, descr, shape, values):
    header = str({"descr": descr, "fortran_order": False, "shape": shape})
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        array.array(CODES[descr], values).tofile(file)


def read(path):
    with open(path, "rb") as file:
        magic = file.read(8)
        size = struct.unpack("<H", file.read(2))[0] if magic[6] == 1 else struct.unpack("<I", file.read(4))[0]
        header = ast.literal_eval(file.read(size).decode())
        values = array.array(CODES[header["descr"]])
        values.frombytes(file.read())
        return header["shape"], values


def make():
    numbers = random.Random(1)
    write("logits.npy", "<f4", (ROWS, VOCABULARY), [numbers.gauss(0, 4) for _ in range(ROWS * VOCABULARY)])
    write("ids.npy", "<i8", (ROWS,), [-100 if n == 3 else numbers.randrange(VOCABULARY) for n in range(ROWS)])
    write("grad_logp.npy", "<f4", (ROWS,), [numbers.gauss(0, 1) for _ in range(ROWS)])
    print(f"logits [{ROWS}, {VOCABULARY}] f32, ids [{ROWS}] i64, one of them ignored")


def compare(folder, other_folder, names):
    agree = True
    for name in names:
        (shape, one), (other_shape, other) = read(f"{folder}/{name}.npy"), read(f"{other_folder}/{name}.npy")
        if shape != other_shape or not all(map(math.isfinite, one)) or not any(one):
            print(f"{name}: shapes {shape} and {other_shape}, or no finite values")
            agree = False
            continue
        difference = max(abs(a - b) for a, b in zip(one, other))
        agree = agree and difference <= LIMIT
        value = f"{one[0]:.7g} and {other[0]:.7g}, " if len(one) == 1 else ""
        print(f"{name:12} {str(list(shape)):12} {value}max |{folder} - {other_folder}| = {difference:.3g}")
    print(f"{folder} and {other_folder} {'agree' if agree else 'DISAGREE'}")
    return 0 if agree else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["make"]:
        make()
    elif len(sys.argv) > 4 and sys.argv[1] == "compare":
        sys.exit(compare(sys.argv[2], sys.argv[3], sys.argv[4:]))
    else:
        sys.exit(__doc__)
