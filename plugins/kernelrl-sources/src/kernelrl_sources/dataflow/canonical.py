"""One form for equal computations: composite operators, powers, products, and items of results.

`canonical_node` makes every node of a graph from its operands, which have this form already. So a rule looks at an
operator and a few operands below it. A rule states an identity: `x / (1 + exp(-x))` is the product of `x` and its
sigmoid. As everywhere in the graph, other numbers make no difference, except an exponent and the bound 0, which select
an operator. Sources: documentation of the operators in `torch.nn.functional`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelrl_sources.dataflow.graph import CONSTANT, NUMBER, SAME_OPERATOR, Node
from kernelrl_sources.dataflow.matching import (
    is_mean_of,
    is_number,
    is_same,
    is_zero,
    joined,
    numbers_of,
    one_plus,
    operand_of,
    shifted,
    squared,
    tensors_of,
    without_epsilon,
)

__all__ = ["PAIRS", "canonical_node"]

PAIRS = {
    "max": ("amax", "argmax"),
    "min": ("amin", "argmin"),
    "varmean": ("var", "mean"),
    "stdmean": ("std", "mean"),
}
"""Operators with two results -> the operators that compute one of them."""

_KEEPDIM = "[keepdim=True]"
_ASSOCIATIVE = frozenset({"add", "mul"})
_WITH_DEFAULT_NUMBER = frozenset(
    {"leakyrelu", "elu", "celu", "normalize", "l1normalize", "softmax", "logsoftmax", "flatten"}
)
"""Operators whose only number has a default, so that writing it changes nothing."""


def canonical_node(label: str, operands: Sequence[Node]) -> Node:
    """The node of an operator in its canonical form.

    Args:
        label: canonical name of the operator, with its flags.
        operands: nodes that this function or a leaf made.
    """
    name, bracket, rest = label.partition("[")
    name = SAME_OPERATOR.get(name, name)
    operands = list(operands)
    if name in _WITH_DEFAULT_NUMBER and not any(is_number(operand) for operand in operands):
        operands.append(CONSTANT)
    flags = bracket + rest
    rule = _RULES.get(name)
    found = rule(operands, flags) if rule is not None and operands else None
    return found if found is not None else Node(name + flags, operands)


# Rules: each returns None if the node stays as it is.


def _mul(operands: list[Node], flags: str) -> Node | None:
    parts = joined("mul", operands)
    for position, part in enumerate(parts):
        rest = parts[:position] + parts[position + 1 :]
        if (of := operand_of(part, "reciprocal")) is not None:
            return canonical_node("div", [_product(rest), of])
        if part.name == "rsqrt" and (found := _normalised(part, rest)) is not None:
            return found
        if part.label == "lt" and len(part.operands) == 2 and len(rest) == 1:
            zero, value = part.operands
            if is_zero(zero) and is_same(value, rest[0]):
                return Node("relu", [value])
    if (found := _gelu(parts)) is not None:
        return found
    is_square = len(parts) == 2 and is_same(*parts)
    if is_square and parts[0].label == "sub":
        ordered = _unordered_difference(parts[0])
        parts = [ordered, ordered]
    return Node("mul", parts)


def _product(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else canonical_node("mul", parts)


def _unordered_difference(difference: Node) -> Node:
    """A difference of which only the absolute value matters."""
    return Node("sub", sorted(difference.operands, key=lambda node: node.digest))


def _normalised(root: Node, rest: list[Node]) -> Node | None:
    """`x * rsqrt(...)` as a norm: of squares (`rmsnorm`, `normalize`) or of the centred value (`standardise`)."""
    inner = without_epsilon(root.operands[0])
    of = operand_of(inner, "mean") or operand_of(inner, "sum")
    value = squared(of) if of is not None else None
    name = "rmsnorm" if inner.name == "mean" else "normalize"
    if value is None and inner.name == "var" and "unbiased=False" in inner.flags:
        value, name = operand_of(inner, "var"), "standardise"
    if value is None:
        return None
    centred = value.label == "sub" and is_mean_of(value.operands[-1], value.operands[0])
    if centred and name == "rmsnorm":
        name = "standardise"
    for position, part in enumerate(rest):
        others = rest[:position] + rest[position + 1 :]
        found = None
        if name == "standardise":
            origin = value.operands[0] if centred else value
            is_centred = part.label == "sub" and is_same(part.operands[0], origin)
            if is_centred and is_mean_of(part.operands[-1], origin):
                found = Node(name, [origin, CONSTANT])
        elif is_same(part, value):
            found = Node(name, [value, CONSTANT])
        if found is not None:
            return _product([*others, found])
    return None


def _gelu(parts: list[Node]) -> Node | None:
    """`0.5 * x * (1 + erf(x / sqrt(2)))`, and its approximation by tanh."""
    tensors, numbers = tensors_of(parts), numbers_of(parts)
    if len(tensors) != 2 or len(numbers) != 1:
        return None
    for value, other in (tensors, tensors[::-1]):
        inner = one_plus(other)
        if inner is None:
            continue
        argument = operand_of(inner, "erf")
        scaled = operand_of(argument, "mul") if argument is not None else None
        if scaled is not None and is_same(scaled, value):
            return Node("gelu", [value])
        argument = operand_of(inner, "tanh")
        if argument is not None and _is_cubic(argument, value):
            return Node("gelu[tanh]", [value])
    return None


def _is_cubic(node: Node, value: Node) -> bool:
    """Whether a node is `c * (x + d * x * x * x)`."""
    of = operand_of(node, "mul")
    if of is None or of.label != "add" or len(of.operands) != 2:
        return False
    for linear, cubic in (of.operands, of.operands[::-1]):
        factors = tensors_of(cubic.operands)
        is_cube = cubic.label == "mul" and len(factors) == 3 and all(is_same(factor, value) for factor in factors)
        if is_same(linear, value) and is_cube:
            return True
    return False


def _add(operands: list[Node], flags: str) -> Node | None:
    parts = joined("add", operands)
    if len(parts) == 2:
        for first, second in (parts, parts[::-1]):
            if (of := operand_of(second, "neg")) is not None:
                return canonical_node("sub", [first, of])
            value, total = operand_of(first, "amax"), operand_of(second, "logsumexp")
            if value is not None and total is not None and is_same(shifted(total), value):
                return Node(second.label, [value, *numbers_of(second.operands)])
    return Node("add", parts)


def _sub(operands: list[Node], flags: str) -> Node | None:
    first, second = operands[0], operands[-1]
    of = operand_of(second, "logsumexp")
    if of is not None and second.flags == _KEEPDIM and is_same(of, first):
        return Node("logsoftmax", [shifted(first), CONSTANT])
    return None


def _div(operands: list[Node], flags: str) -> Node | None:
    if flags or len(operands) != 2:
        return None
    above, below = operands
    if is_number(below):
        is_count = below.number is None and above.name == "sum"
        if is_count:
            return canonical_node("mean" + above.flags, above.operands)
        return canonical_node("mul", [above, CONSTANT])
    if above.label == NUMBER and above.number == 1:
        return canonical_node("reciprocal", [below])
    if below.name == "sqrt":
        return canonical_node("mul", [above, canonical_node("rsqrt", [below.operands[0]])])
    if is_number(above):
        return None
    exponential = one_plus(below)
    if exponential is not None:
        exponent = operand_of(exponential, "exp")
        if exponent is not None and (value := operand_of(exponent, "neg")) is not None:
            return canonical_node("mul", [above, Node("sigmoid", [value])])
        if exponent is not None and is_same(above, exponential):
            return Node("sigmoid", [exponent])
        absolute = operand_of(exponential, "abs")
        if absolute is not None and is_same(absolute, above):
            return Node("softsign", [above])
    inner = without_epsilon(below)
    if inner.flags != _KEEPDIM:
        return None
    summed = operand_of(inner, "sum")
    if summed is not None and is_same(summed, above) and (exponent := operand_of(above, "exp")) is not None:
        return Node("softmax", [shifted(exponent), CONSTANT])
    if summed is not None and (absolute := operand_of(summed, "abs")) is not None and is_same(absolute, above):
        return Node("l1normalize", [above, CONSTANT])
    length = operand_of(inner, "norm")
    if length is not None and is_same(length, above):
        return Node("normalize", [above, CONSTANT])
    return None


def _reciprocal(operands: list[Node], flags: str) -> Node | None:
    below = operands[0]
    if below.name == "sqrt":
        return canonical_node("rsqrt", below.operands)
    exponential = one_plus(below)
    exponent = operand_of(exponential, "exp") if exponential is not None else None
    value = operand_of(exponent, "neg") if exponent is not None else None
    return Node("sigmoid", [value]) if value is not None else None


def _pow(operands: list[Node], flags: str) -> Node | None:
    if len(operands) != 2 or operands[0].label == NUMBER:
        return None
    base, exponent = operands
    match exponent.number:
        case 1:
            return base
        case 2 | 3 | 4:
            return canonical_node("mul", [base] * int(exponent.number))
        case 0.5:
            return canonical_node("sqrt", [base])
        case -0.5:
            return canonical_node("rsqrt", [base])
        case -1:
            return canonical_node("reciprocal", [base])
    return None


def _sqrt(operands: list[Node], flags: str) -> Node | None:
    inner = operands[0]
    summed = operand_of(inner, "sum")
    if summed is not None and (value := squared(summed)) is not None:
        return Node("norm" + inner.flags, [value, *numbers_of(inner.operands)])
    if inner.name == "var":
        return Node("std" + inner.flags, inner.operands)
    return None


def _mean(operands: list[Node], flags: str) -> Node | None:
    """The mean of squared distances from the mean is the variance."""
    value = squared(operands[0])
    if value is None or value.label != "sub":
        return None
    for origin, centre in (value.operands, value.operands[::-1]):
        if is_mean_of(centre, origin):
            flags_of_var = "[keepdim=True,unbiased=False]" if flags else "[unbiased=False]"
            return Node("var" + flags_of_var, [origin, *operands[1:]])
    return None


def _exp(operands: list[Node], flags: str) -> Node | None:
    of = operand_of(operands[0], "logsoftmax")
    return Node("softmax", operands[0].operands) if of is not None else None


def _log(operands: list[Node], flags: str) -> Node | None:
    inner = operands[0]
    if inner.name == "softmax":
        return Node("logsoftmax" + inner.flags, inner.operands)
    summed = operand_of(inner, "sum")
    if summed is not None and (value := operand_of(summed, "exp")) is not None:
        return Node("logsumexp" + inner.flags, [value, *numbers_of(inner.operands)])
    exponential = one_plus(inner)
    exponent = operand_of(exponential, "exp") if exponential is not None else None
    return Node("softplus", [exponent]) if exponent is not None else None


def _log1p(operands: list[Node], flags: str) -> Node | None:
    exponent = operand_of(operands[0], "exp")
    return Node("softplus", [exponent]) if exponent is not None else None


def _neg(operands: list[Node], flags: str) -> Node | None:
    if (of := operand_of(operands[0], "neg")) is not None:
        return of
    negated = operand_of(operands[0], "softplus")
    value = operand_of(negated, "neg") if negated is not None else None
    return Node("log", [Node("sigmoid", [value])]) if value is not None else None


def _abs(operands: list[Node], flags: str) -> Node | None:
    return Node("abs", [_unordered_difference(operands[0])]) if operands[0].label == "sub" else None


def _square(operands: list[Node], flags: str) -> Node | None:
    return canonical_node("mul", [operands[0], operands[0]])


def _silu(operands: list[Node], flags: str) -> Node | None:
    return canonical_node("mul", [operands[0], Node("sigmoid", [operands[0]])])


def _mish(operands: list[Node], flags: str) -> Node | None:
    return canonical_node("mul", [operands[0], Node("tanh", [Node("softplus", [operands[0]])])])


def _logsigmoid(operands: list[Node], flags: str) -> Node | None:
    return Node("log", [Node("sigmoid", [operands[0]])])


def _softmin(operands: list[Node], flags: str) -> Node | None:
    return canonical_node("softmax", [canonical_node("neg", operands[:1])])


def _softmax(operands: list[Node], flags: str) -> Node | None:
    return Node("softmax" + flags, [shifted(operands[0]), CONSTANT])


def _clamp(operands: list[Node], flags: str) -> Node | None:
    """With the single bound 0: relu. `clamp(max=0)` is another operator."""
    is_relu = len(operands) == 2 and is_zero(operands[1])
    return Node("relu", operands[:1]) if is_relu and not flags else None


def _maximum(operands: list[Node], flags: str) -> Node | None:
    for value, other in (operands[:2], operands[1::-1]):
        is_tensor_of_zero = other.name == "tensor" and is_zero(other.operands[-1])
        if other.name == "zeroslike" or is_zero(other) or is_tensor_of_zero:
            return Node("relu", [value])
    return None


def _max(operands: list[Node], flags: str) -> Node | None:
    tensors = tensors_of(operands)
    if len(tensors) == 2:
        return canonical_node("maximum", tensors)
    return Node("amax", operands) if len(operands) == 1 else None


def _min(operands: list[Node], flags: str) -> Node | None:
    tensors = tensors_of(operands)
    if len(tensors) == 2:
        return Node("minimum", tensors)
    return Node("amin", operands) if len(operands) == 1 else None


def _item(position: int) -> Callable[[list[Node], str], Node | None]:
    def item(operands: list[Node], flags: str) -> Node | None:
        pair = operands[0]
        if pair.name not in PAIRS:
            return None
        name = PAIRS[pair.name][position]
        kept = pair.flags
        if name == "mean":
            # The mean has no flag `unbiased`.
            kept = _KEEPDIM if "keepdim" in pair.flags else ""
        return canonical_node(name + kept, pair.operands)

    return item


def _where(operands: list[Node], flags: str) -> Node | None:
    if len(operands) != 3:
        return None
    condition, value, other = operands
    if condition.name not in ("lt", "le") or len(condition.operands) != 2:
        return None
    zero, compared = condition.operands
    if not (is_zero(zero) and is_same(compared, value)):
        return None
    if is_zero(other):
        return Node("relu", [value])
    scaled = operand_of(other, "mul")
    return Node("leakyrelu", [value, CONSTANT]) if scaled is not None and is_same(scaled, value) else None


def _transpose(operands: list[Node], flags: str) -> Node | None:
    """Without the numbers of the dimensions: a matrix has only two."""
    inner = operands[0]
    return inner.operands[0] if inner.label == "transpose" else Node("transpose", operands[:1])


def _l1norm(operands: list[Node], flags: str) -> Node | None:
    return Node("sum" + flags, [canonical_node("abs", operands[:1]), *operands[1:]])


def _linear(operands: list[Node], flags: str) -> Node | None:
    """`F.linear` with its weights. A layer has its own ones, which are no operands."""
    tensors = tensors_of(operands)
    if len(tensors) < 2:
        return None
    product = canonical_node("matmul", [tensors[0], canonical_node("transpose", tensors[1:2])])
    return canonical_node("add", [product, tensors[2]]) if len(tensors) > 2 else product


def _addmm(operands: list[Node], flags: str) -> Node | None:
    if len(operands) != 3:
        return None
    return canonical_node("add", [operands[0], canonical_node("matmul", operands[1:])])


def _matmul(operands: list[Node], flags: str) -> Node | None:
    """Attention: `softmax(q @ k.T * scale) @ v`."""
    if len(operands) != 2 or operands[0].name != "softmax":
        return None
    scores = operands[0].operands[0]
    scaled = scores.label == "mul" and len(numbers_of(scores.operands)) == 1
    product = tensors_of(scores.operands)[0] if scaled else scores
    if product.label != "matmul" or len(tensors_of(scores.operands)) != (1 if scaled else 2):
        return None
    query, key = product.operands
    if not scaled and query.label == "mul" and len(tensors_of(query.operands)) == 1:
        query, scaled = tensors_of(query.operands)[0], True
    if not scaled or key.name not in ("transpose", "permute"):
        return None
    return Node("scaleddotproductattention", [query, key.operands[0], operands[1]])


def _einsum(operands: list[Node], flags: str) -> Node | None:
    """Equations that another operator computes. The flag is the equation with its letters renamed in order."""
    equation = flags.strip("[]")
    given, arrow, result = equation.partition("->")
    terms = given.split(",")
    plain = all(term.isalpha() and len(set(term)) == len(term) for term in terms)
    if not arrow or not plain or len(terms) != len(operands):
        return None
    if len(terms) == 1:
        if sorted(terms[0]) == sorted(result):
            swapped = sum(old != new for old, new in zip(terms[0], result, strict=True))
            return canonical_node("transpose", operands) if swapped == 2 else None
        kept = [letter for letter in terms[0] if letter in result]
        return Node("sum", [*operands, CONSTANT]) if "".join(kept) == result and result else None
    if len(terms) != 2:
        return None
    first, second = terms
    if first == second == result:
        return canonical_node("mul", operands)
    summed = [letter for letter in first if letter in second and letter not in result]
    common = [letter for letter in first if letter in second and letter in result]
    if len(summed) != 1 or len(second) < 2:
        return None
    (k,) = summed
    batch = "".join(common)
    free_first = "".join(letter for letter in first if letter not in second)
    free_second = "".join(letter for letter in second if letter not in first)
    if result != batch + free_first + free_second or len(free_second) != 1:
        return None
    left, right = operands
    if first == batch + k + free_first and len(free_first) == 1:
        left = canonical_node("transpose", [left])
    elif first != batch + free_first + k:
        return None
    if second == batch + free_second + k:
        right = canonical_node("transpose", [right])
    elif second != batch + k + free_second:
        return None
    return canonical_node("matmul", [left, right])


def _layernorm(operands: list[Node], flags: str) -> Node | None:
    value, *weights = tensors_of(operands)
    found = Node("standardise", [value, CONSTANT])
    if weights:
        found = canonical_node("mul", [found, weights[0]])
    return canonical_node("add", [found, weights[1]]) if len(weights) > 1 else found


def _rmsnorm(operands: list[Node], flags: str) -> Node | None:
    value, *weights = tensors_of(operands)
    found = Node("rmsnorm", [value, CONSTANT])
    return canonical_node("mul", [found, weights[0]]) if weights else found


def _loss(distance: Callable[[Node], Node]) -> Callable[[list[Node], str], Node | None]:
    def loss(operands: list[Node], flags: str) -> Node | None:
        if len(operands) != 2:
            return None
        distances = distance(canonical_node("sub", operands))
        reduction = {"": "mean", "[sum]": "sum"}.get(flags)
        return canonical_node(reduction, [distances]) if reduction is not None else distances

    return loss


def _crossentropy(operands: list[Node], flags: str) -> Node | None:
    if len(operands) != 2:
        return None
    return Node("nllloss" + flags, [canonical_node("logsoftmax", operands[:1]), operands[1]])


_RULES: dict[str, Callable[[list[Node], str], Node | None]] = {
    "abs": _abs,
    "add": _add,
    "addmm": _addmm,
    "baddbmm": _addmm,
    "clamp": _clamp,
    "crossentropy": _crossentropy,
    "div": _div,
    "einsum": _einsum,
    "exp": _exp,
    "item0": _item(0),
    "item1": _item(1),
    "l1norm": _l1norm,
    "l1loss": _loss(lambda difference: canonical_node("abs", [difference])),
    "layernorm": _layernorm,
    "linear": _linear,
    "log": _log,
    "log1p": _log1p,
    "logsigmoid": _logsigmoid,
    "matmul": _matmul,
    "max": _max,
    "maximum": _maximum,
    "mean": _mean,
    "min": _min,
    "mish": _mish,
    "mseloss": _loss(lambda difference: canonical_node("square", [difference])),
    "mul": _mul,
    "neg": _neg,
    "pow": _pow,
    "reciprocal": _reciprocal,
    "rmsnorm": _rmsnorm,
    "silu": _silu,
    "softmax": _softmax,
    "softmin": _softmin,
    "sqrt": _sqrt,
    "square": _square,
    "sub": _sub,
    "transpose": _transpose,
    "where": _where,
}
