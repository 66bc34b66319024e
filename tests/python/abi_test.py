"""What Python believes of the C ABI is what a C compiler makes of the headers: sizes, offsets, constants, functions."""
import ctypes
import os
import pathlib
import re
import subprocess

import pytest
import rlk
from rlk import _abi, _runtime, errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
INCLUDES = [ROOT / "plugin_api/include", ROOT / "loader/api/include"]


def structs():
    """{C name: ctypes structure} of everything that crosses the ABI, parameters of every operator included."""
    params = {f"rlk_{name}_params": _abi.params_struct(name, op.params) for name, op in rlk.ops.operators.items()}
    return _abi.STRUCTS | params


def constants():
    """{C name: what Python says}"""
    named = {f"RLK_NUMERICS_{name.upper()}": value for name, value in _abi.NUMERICS.items()}
    named |= {"RLK_MAX_NDIM": _abi.MAX_NDIM, "RLK_OK": errors.OK, "RLK_NOT_READY": errors.NOT_READY}
    for name, op in rlk.ops.operators.items():
        named[f"RLK_{name.upper()}_N_INPUTS"] = len(op.inputs)
        named[f"RLK_{name.upper()}_N_OUTPUTS"] = len(op.outputs)
        named |= {f"RLK_{name.upper()}_IN_{a.name.upper()}": i for i, a in enumerate(op.inputs)}
        named |= {f"RLK_{name.upper()}_OUT_{a.name.upper()}": i for i, a in enumerate(op.outputs)}
        named |= {f"RLK_{name.upper()}_{p.name.upper()}_{word.upper()}": i
                  for p in op.params for i, word in enumerate(p.values)}
    return named


def compiled(tmp_path, lines):
    """The words that a C program prints, one a line."""
    source, program = tmp_path / "probe.c", tmp_path / "probe"
    includes = "".join(f"#include <rlk/ops/{name}.h>\n" for name in rlk.ops.operators)
    source.write_text("#include <rlk/rlk.h>\n#include <stddef.h>\n#include <stdio.h>\n" + includes
                      + "int main(void) {\n" + "".join(f"  {line}\n" for line in lines) + "  return 0;\n}\n")
    folders = [f"-I{folder}" for folder in INCLUDES]
    subprocess.run([os.environ.get("RLK_TEST_CC", "cc"), "-std=c11", *folders, source, "-o", program], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()


def test_structs_have_the_sizes_and_offsets_of_the_headers(tmp_path):
    lines, expected = [], []
    for name, kind in structs().items():
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        expected.append((name, "sizeof", ctypes.sizeof(kind)))
        for field, *_ in kind._fields_:
            lines.append(f'printf("%zu %zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));')
            member = getattr(kind, field)
            expected += [(name, field, member.offset), (name, f"sizeof {field}", member.size)]
    seen = compiled(tmp_path, lines)
    assert [(*where, int(value)) for (*where, _), value in zip(expected, seen)] == expected


def test_structs_have_every_field_of_the_headers():
    """A field appended in C has to be appended here too: sizes alone would tell, but not which."""
    text = "".join(path.read_text() for folder in INCLUDES for path in sorted(folder.rglob("*.h")))
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for name, kind in structs().items():
        body = re.search(r"typedef struct(?: \w+)? \{([^{}]*)\} " + name + ";", text).group(1)
        # name, name[16], a, b, (*name)(...)
        declared = [re.search(r"(\w+)\s*(?:\[\d+\])?$", part.strip()).group(1)
                    for line in body.split(";") if line.strip() for part in line.split(",")]
        assert declared == [field for field, *_ in kind._fields_], name


def test_parameters_have_the_defaults_of_the_headers(tmp_path):
    lines, expected = [], []
    for name, op in rlk.ops.operators.items():
        lines.append(f"const rlk_{name}_params {name} = RLK_{name.upper()}_PARAMS_INIT;")
        lines += [f'printf("%.17g\\n", (double){name}.{p.name});' for p in op.params]
        defaults = op.codes([p.default for p in op.params])
        expected += [(name, p.name, float(d)) for p, d in zip(op.params, defaults)]
        lines.append(f"(void){name};")
    seen = compiled(tmp_path, lines)
    assert [(*where, float(value)) for (*where, _), value in zip(expected, seen)] == expected


def test_constants_are_those_of_the_headers(tmp_path):
    names = list(constants())
    seen = compiled(tmp_path, [f'printf("%lld\\n", (long long){name});' for name in names])
    assert dict(zip(names, map(int, seen))) == constants()


def test_dtypes_are_those_of_the_headers(tmp_path):
    words = {"f": "FLOAT", "i": "INT", "u": "UINT"}
    names = {"bf16": "BFLOAT", "bool": "BOOL", "f8_e4m3fn": "FLOAT8_E4M3FN", "f8_e5m2": "FLOAT8_E5M2"}
    codes = {name: f"RLK_DTYPE_{names.get(name) or words[name[0]]}" for name in _abi.DTYPES}
    seen = compiled(tmp_path, [f'printf("%d\\n", {code});' for code in codes.values()])
    assert dict(zip(codes, map(int, seen))) == {name: code for name, (code, _) in _abi.DTYPES.items()}


def test_every_status_has_a_class_of_its_own():
    text = (ROOT / "plugin_api/include/rlk/abi/status.h").read_text()
    numbers = {name: int(value) for name, value in re.findall(r"#define (RLK_[A-Z_]+) \((-\d+)\)", text)}
    assert len(numbers) >= 14
    for name, number in numbers.items():
        words = name.removeprefix("RLK_").split("_")
        assert errors.CLASSES[number].__name__ == "".join(word.capitalize() for word in words), name
        assert getattr(rlk, errors.CLASSES[number].__name__) is errors.CLASSES[number]
    assert set(errors.CLASSES) == set(numbers.values())


@pytest.mark.parametrize("name", _abi._FUNCTIONS)
def test_functions_take_what_the_header_says(name):
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "loader/api/include/rlk/rlk.h").read_text(), flags=re.S)
    result, arguments = re.search(rf"RLK_API ([\w ]+\*?) ?{name}\(([^)]*)\)", text).groups()
    arguments = [] if arguments.strip() == "void" else arguments.split(",")
    known, types = _abi._FUNCTIONS[name]
    assert known is {"rlk_status": ctypes.c_int32, "const char*": ctypes.c_char_p, "void": None}[result.strip()]
    assert len(types) == len(arguments)
    plain = {"uint32_t": ctypes.c_uint32, "int32_t": ctypes.c_int32, "uint64_t": ctypes.c_uint64, "double": ctypes.c_double}
    for declared, mine in zip(arguments, types):
        if "*" in declared:
            assert mine in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(mine, ctypes._Pointer), declared
        else:
            assert mine is plain[declared.split()[0]], declared


def test_packed_structs_are_the_same_as_their_fields():
    assert _abi.PACKED_TENSOR.size == ctypes.sizeof(_abi.Tensor)
    packed = _abi.PACKED_TENSOR.pack(48, 64, 3, 5, 7, 11, 13, 17, 19, 23)
    tensor = _abi.Tensor.from_buffer_copy(packed)
    assert [getattr(tensor, f) for f, *_ in _abi.Tensor._fields_[:-1]] == [48, 64, 3, 5, 7, 11, 13]
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (17, 19, 23)
    assert _abi.PACKED_OPTIONS.size == ctypes.sizeof(_abi.CallOptions)
    options = _abi.CallOptions.from_buffer_copy(_abi.PACKED_OPTIONS.pack(40, 5, 0, 7, 11, 13))
    assert [getattr(options, f) for f, *_ in _abi.CallOptions._fields_] == [40, 5, None, 7, 11, 13]
    for name, op in rlk.ops.operators.items():
        struct = _abi.params_struct(name, op.params)
        values = [1.5 if p.type == "f64" else 7 for p in op.params]
        params = struct.from_buffer_copy(op.packed_params.pack(op.packed_params.size, 0, *values))
        assert [getattr(params, p.name) for p in op.params] == values


def test_the_version_is_the_packages():
    assert _runtime.version() == re.search(r"project\(rlk VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
