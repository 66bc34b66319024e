"""Every operator that is declared is a function of rlk.ops, whose outputs have the shapes and dtypes that librlk expects."""
import inspect

import numpy as np
import pytest
import rlk
from declared import OPERATORS, cases
from rlk import _abi


def test_there_is_a_function_for_every_operator_of_the_library_and_no_other():
    assert sorted(rlk.ops.__all__) == sorted(op["name"] for op in rlk.ops_json()["ops"])


@pytest.mark.parametrize("name", OPERATORS)
def test_signature_names_what_the_declaration_names(name):
    op, function = OPERATORS[name], getattr(rlk.ops, name)
    parameters = inspect.signature(function).parameters
    positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert positional == [a["name"] for a in op["input"]]
    for p in op["param"]:
        assert parameters[p["name"]].default == p["default"]
    for a in op["output"]:
        if a.get("optional"):
            assert parameters[a["name"]].default is False
    for a in (*op["input"], *op["output"]):
        assert a["doc"].split()[0] in function.__doc__


@pytest.mark.parametrize("name", OPERATORS)
def test_outputs_are_made_as_the_library_expects_them(name):
    """librlk refuses an output whose shape or dtype is not what it infers itself."""
    op, tried = OPERATORS[name], 0
    for case in cases(name):
        result = getattr(rlk.ops, name)(**case.inputs, **case.words(), outputs=case.wanted)
        result = result if isinstance(result, tuple) else (result,)
        assert len(result) == len(case.wanted) + sum(not a.get("optional") for a in op["output"])
        assert all(isinstance(x, np.ndarray) for x in result)
        tried += 1
    assert tried >= len(op["form_names"])


@pytest.mark.parametrize("name", OPERATORS)
def test_a_wrong_rank_and_a_wrong_dtype_are_told_in_the_librarys_words(name):
    case = next(cases(name))
    first = OPERATORS[name]["input"][0]["name"]
    dtype = OPERATORS[name]["input"][0]["dtype"]
    if "i16" not in OPERATORS[name]["dtypes"].get(dtype, [dtype]):  # some operators take every dtype
        wrong_dtype = case.inputs | {first: np.zeros(case.inputs[first].shape, np.int16)}
        with pytest.raises(rlk.InvalidArgument, match=f"{name}: input '{first}' has dtype i16; expected"):
            getattr(rlk.ops, name)(**wrong_dtype, **case.words())
    wrong_rank = case.inputs | {first: case.inputs[first][(None,) * (9 - case.inputs[first].ndim)]}
    with pytest.raises(rlk.InvalidArgument, match="9 dimensions; at most 8"):
        getattr(rlk.ops, name)(**wrong_rank, **case.words())
    if not isinstance(OPERATORS[name]["input"][0]["shape"], str):
        wrong_rank = case.inputs | {first: case.inputs[first][None]}
        with pytest.raises(rlk.InvalidArgument, match=f"{name}: input '{first}' has shape"):
            getattr(rlk.ops, name)(**wrong_rank, **case.words())


def test_dtypes_that_declarations_name_are_known():
    named = {dtype for op in OPERATORS.values() for choices in op["dtypes"].values() for dtype in choices}
    named |= {a["dtype"] for op in OPERATORS.values() for a in (*op["input"], *op["output"])}
    variables = {v for op in OPERATORS.values() for v in op["dtypes"]}
    plain = {dtype for dtype in named if not dtype.startswith("acc(")} - variables
    assert plain - set(_abi.DTYPES) == set()
