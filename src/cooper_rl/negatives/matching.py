"""Generated pairs of a reference answer and a statement of an answer, equal or not (row 4).

A model without pre-training does not find "the stated answer equals the reference" in a few thousand labelled
completions: it memorises them. These short examples hold nothing else to learn. They are drawn from number
ranges and fixed phrases, never from a data set. Labelled data teaches answers that are equal in
meaning but not in form.

In a part of the pairs one text states the answer, and the other names it, or its digits, without stating it.
A model that only looks for the reference answer in a text is wrong on them.
"""

import random
from collections.abc import Sequence
from string import ascii_lowercase

from cooper_rl.negatives.variants import vary_answer
from cooper_rl.schema.data import VerifyExample
from cooper_rl.verdicts.answers.verify import is_another_answer

SOURCE = "generated"
MAX_LINES = 1
"""Of arithmetic before the statement: the last may end in the answer, and any hold the wrong reference."""
NUMBERS = 0.5
"""Share of the answers that are a number in digits."""
EVASIVE = 1 / 3
"""Share of the pairs in which the second text evades the answer that the first one states."""
MAX_DRAWS = 8
"""Of another answer than that of a labelled row, which may be of any kind."""
SOLVED = 1 / 4
"""Share of the pairs that go on where a right solution ends, if there are any."""

_STATEMENTS = (
    "A: {}",
    "#### {}",
    "\\boxed{{{}}}",
    "The final answer is $\\boxed{{{}}}$.",
    "So the answer is {}",
    "The answer is: {}",
    '",\n    "answer": "{}"\n}}\n```',
    '",\n    "answer": "{}"\n}}',
)
_REPEATED = (
    "</{}>", "<{}>", "{}", "{} ", "{}: ", "{}\n", ".", "= ", "# ", "$$", "\\boxed{{}}", "0", "1", "7",
)  # fmt: skip
"""What a text without an answer repeats. The word in it is drawn."""
STATED = (
    *_STATEMENTS,
    "{}",
    "It is {}.",
    "The answer is {}.",
    "So the result is {}.",
    "Yes, it is {}.",
    "The answer: {}",
    "The right result is {}.",
    "$\\boxed{{{}}}$ is the answer.",
)
DENIED = (
    "not {}",
    "It is not {}.",
    "{} is wrong.",
    "No, {} is incorrect.",
    "The answer: not {}",
    "The answer cannot be {}.",
    "A wrong result would be {}.",
    "So the result is certainly not {}.",
    "$\\boxed{{{}}}$ is a wrong answer.",
    "One might think that it is {}, but it is not.",
)
"""All of them deny an answer and give no other one, in other words than the canary `negated_answer`."""
_ALTERED = (
    "twice {}", "two times {}", "double {}", "three times {}", "half of {}", "a third of {}",
    "a quarter of {}", "the square of {}", "{} squared", "{} thousand", "{} dozen", "minus {}",
    "one less than {}", "{} minus one", "more than {}", "less than {}", "at least {}", "at most {}",
)  # fmt: skip
_UNALTERED = (
    "exactly {}",
    "just {}",
    "only {}",
    "{} in total",
    "a total of {}",
    "the number {}",
    "equal to {}",
)
"""Words beside an answer that leave it as it is, so that words alone do not tell an altered one."""
_NOUNS = ("apples", "dollars", "hours", "miles", "pages", "students", "eggs", "minutes")
_TEXTS = ("even", "odd", "yes", "no", "Tuesday", "east", "circle", "neither", "red", "Anna", "Ben", "July")
_VERBS = ("has", "buys", "needs", "pays", "counts", "gets")


def matching_examples(
    count: int, rng: random.Random, solved: Sequence[VerifyExample] = ()
) -> list[VerifyExample]:
    """`count` examples, by turns right and wrong.

    Two that follow each other are one text with the answer that it states and with another, or one answer
    with a text that states it and a text that evades it.

    Args:
        count: Of the examples.
        rng: Draws everything.
        solved: Right completions. A part of the examples are one of them, with its question, and a line that
            states its answer again, denies another one, or evades its own. The others have no question.
    """
    found = [example for _ in range((count + 1) // 2) for example in _pair(rng, solved)]
    return found[:count]


def _pair(rng: random.Random, solved: Sequence[VerifyExample]) -> list[VerifyExample]:
    if solved and rng.random() < SOLVED and (found := _continued_pair(rng.choice(solved), rng)):
        return found
    is_number = rng.random() < NUMBERS
    stated = _number(rng) if is_number else _other_kind(rng)
    other = _other_number(stated, rng) if is_number else _other_of_kind(stated, rng)
    if rng.random() < EVASIVE:
        return _evasive_pair(stated, other, rng)
    lines = [_line(rng) for _ in range(rng.randint(0, MAX_LINES))]
    if lines and rng.random() < 0.5:
        lines[-1] += stated
    if lines and rng.random() < 0.4:
        lines[rng.randrange(len(lines))] += f" {other}"
    text = "\n".join([*lines, rng.choice(_STATEMENTS).format(stated)])
    is_whole = stated.removeprefix("-").isdigit()
    equal = f"{stated}.0" if is_whole and rng.random() < 0.05 else stated
    right = VerifyExample(question="", reference_answer=equal, completion=text, label=1, source=SOURCE)
    return [right, right.model_copy(update={"reference_answer": other, "label": 0})]


def _evasive_pair(answer: str, other: str, rng: random.Random) -> list[VerifyExample]:
    """One answer with a text that states it and with a text that names it, or its digits, and does not."""
    start = "".join(f"{_line(rng)}\n" for _ in range(rng.randint(0, MAX_LINES)))
    evade = rng.choices((_deny, _hedge, _alter, _split, _say_nothing), weights=(2, 2, 3, 2, 2))[0]
    states = rng.choice(STATED).format(answer)
    if evade is _alter and rng.random() < 0.7:
        states = rng.choice(STATED).format(rng.choice(_UNALTERED).format(answer))
    elif rng.random() < 0.5:  # it is the right answer whose denial is wrong
        states = f"{rng.choice(DENIED).format(other)}\n{states}"
    evades = evade(answer, other, rng)
    right = VerifyExample(
        question="", reference_answer=answer, completion=start + states, label=1, source=SOURCE
    )
    return [right, right.model_copy(update={"completion": start + evades, "label": 0})]


def _continued_pair(solved: VerifyExample, rng: random.Random) -> list[VerifyExample]:
    """A right solution that goes on and stands by its answer, and one that then evades it.

    Empty where no other answer is found.
    """
    answer = solved.reference_answer
    drawn = (vary_answer(answer, rng) or _number(rng) for _ in range(MAX_DRAWS))
    other = next((found for found in drawn if is_another_answer("", answer, found)), None)
    if other is None:
        return []
    stands = rng.choice(
        (
            rng.choice(DENIED).format(other),
            rng.choice(STATED).format(answer),
            rng.choice(STATED).format(rng.choice(_UNALTERED).format(answer)),
        )
    )
    evade = rng.choices((_deny, _hedge), weights=(2, 1))[0]
    lines = {1: stands, 0: evade(answer, other, rng)}
    return [
        solved.model_copy(
            update={"completion": f"{solved.completion.rstrip()}\n{line}", "label": label, "source": SOURCE}
        )
        for label, line in lines.items()
    ]


def _deny(answer: str, other: str, rng: random.Random) -> str:
    denial = rng.choice(DENIED).format(answer)
    return denial if rng.random() < 0.5 else f"{rng.choice(STATED).format(answer)}\n{denial}"


def _hedge(answer: str, other: str, rng: random.Random) -> str:
    return rng.choice(STATED).format(" or ".join(rng.sample((answer, other), 2)))


def _alter(answer: str, other: str, rng: random.Random) -> str:
    """A multiple or a bound of the answer; of 0 and 1, some are the answer itself."""
    if answer in ("0", "1"):
        return _hedge(answer, other, rng)
    return rng.choice(STATED).format(rng.choice(_ALTERED).format(answer))


def _split(answer: str, other: str, rng: random.Random) -> str:
    """Parts of a number as answers of their own: `1 or 2` for 12."""
    if not answer.isdigit() or len(answer) == 1:
        return _hedge(answer, other, rng)
    place = rng.randrange(1, len(answer))
    parts = rng.choice(((answer[:place], answer[place:]), tuple(answer)))
    if rng.random() < 0.3:
        return "".join(f"\\boxed{{{part}}}" for part in parts)
    return rng.choice(STATED).format(rng.choice((" or ", ", ", " and ")).join(parts))


def _say_nothing(answer: str, other: str, rng: random.Random) -> str:
    """A few characters, again and again, which the answer is none of."""
    while True:
        word = "".join(rng.choices(ascii_lowercase, k=rng.randint(1, 9)))
        repeated = rng.choice((rng.choice(_REPEATED).format(word), rng.choice(STATED).format("")))
        text = repeated * rng.choice((1, 2, 3, 8, 30))
        if answer.lower() not in text.lower():
            return text


def _number(rng: random.Random) -> str:
    digits = rng.choices((1, 2, 3, 4, 5), weights=(3, 7, 5, 3, 1))[0]
    value = str(rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits))
    if rng.random() < 0.08:
        value += f".{rng.randrange(1, 100):02}"
    return f"-{value}" if rng.random() < 0.08 else value


def _other_kind(rng: random.Random) -> str:
    """An answer that is no number in digits: an expression, a pair, an interval, a list, a text ..."""
    return rng.choice((_expression, _fraction, _pair_of, _interval, _list, _relation, _measure, _text))(rng)


def _small(rng: random.Random) -> str:
    return str(rng.randrange(1, rng.choice((10, 30, 200))))


def _value(rng: random.Random) -> str:
    """A short number as it stands inside another answer."""
    sign = "-" if rng.random() < 0.2 else ""
    return sign + rng.choice((_small, _small, _fraction, lambda rng: rng.choice("abcnxyz"), _root))(rng)


def _root(rng: random.Random) -> str:
    return rng.choice(
        (f"\\sqrt{{{_small(rng)}}}", f"{_small(rng)}\\sqrt{{{_small(rng)}}}", f"{_small(rng)}\\pi")
    )


def _fraction(rng: random.Random) -> str:
    first, second = _small(rng), _small(rng)
    return rng.choice(
        (f"\\frac{{{first}}}{{{second}}}", f"\\dfrac{{{first}}}{{{second}}}", f"{first}/{second}")
    )


def _expression(rng: random.Random) -> str:
    first, second, third = (_small(rng) for _ in range(3))
    letter, other, sign = rng.choice("abknptxyz"), rng.choice("mxy"), rng.choice("+-")
    forms = (
        f"{first}{letter} {sign} {second}",
        f"{letter}^{rng.randrange(2, 6)} {sign} {first}{letter} {sign} {second}",
        f"({letter} {sign} {first})({letter} + {second})",
        f"{first}{letter}{other}",
        f"{first} {sign} {second}\\sqrt{{{third}}}",
        f"{first} {sign} {second}i",
        f"\\frac{{{first}\\sqrt{{{second}}}}}{{{third}}}",
        f"\\frac{{{letter} {sign} {first}}}{{{second}}}",
        _root(rng),
    )
    return rng.choice(forms)


def _pair_of(rng: random.Random) -> str:
    parts = ", ".join(_value(rng) for _ in range(rng.choice((2, 2, 3))))
    rows = " \\\\ ".join(_value(rng) for _ in range(rng.choice((2, 3))))
    forms = (
        f"({parts})",
        f"\\left( {parts} \\right)",
        f"\\begin{{pmatrix}} {rows} \\end{{pmatrix}}",
    )
    return rng.choice(forms)


def _interval(rng: random.Random) -> str:
    low, high = _value(rng), _value(rng)
    forms = (
        f"{rng.choice('[(')}{low}, {high}{rng.choice('])')}",
        f"(-\\infty, {high}{rng.choice('])')}",
        f"{rng.choice('[(')}{low}, \\infty)",
        f"(-\\infty, {low}) \\cup ({high}, \\infty)",
        f"\\left[ {low}, {high} \\right]",
    )
    return rng.choice(forms)


def _list(rng: random.Random) -> str:
    parts = [_value(rng) for _ in range(rng.choice((2, 3, 4)))]
    return rng.choice((", ".join(parts), ",".join(parts), f"{parts[0]} \\text{{ and }} {parts[1]}"))


def _relation(rng: random.Random) -> str:
    letter, other = rng.sample("abknxyz", 2)
    relation = rng.choice(("=", "=", "<", ">", "\\le", "\\ge", "\\leq", "\\geq"))
    return rng.choice((f"{letter} {relation} {_value(rng)}", f"{other} = {_expression(rng)}"))


def _measure(rng: random.Random) -> str:
    number = _number(rng)
    forms = (
        f"{number}\\%",
        f"{number}^\\circ",
        f"\\${number}",
        f"{number} {rng.choice(_NOUNS)}",
        f"{number}\\text{{ {rng.choice(_NOUNS)}}}",
        f"{rng.randrange(1, 13)}:{rng.randrange(60):02}",
    )
    return rng.choice(forms)


def _text(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.3:
        found = rng.choice("ABCDE")
        return rng.choice((found, f"({found})", f"\\text{{({found})}}", f"\\text{{{found}}}"))
    if kind < 0.5:
        return rng.choice("abknxyz")
    found = rng.choice(_TEXTS) if kind < 0.8 else "".join(rng.choices(ascii_lowercase, k=rng.randint(3, 8)))
    found = found.capitalize() if kind > 0.9 else found
    return rng.choice((found, f"\\text{{{found}}}"))


def _other_of_kind(answer: str, rng: random.Random) -> str:
    """Another answer, as a rule in the same form."""
    while True:
        kind = rng.random()
        found = vary_answer(answer, rng) if kind < 0.7 else _other_kind(rng) if kind < 0.9 else _number(rng)
        if found is not None and is_another_answer("", answer, found):
            return found


def _other_number(answer: str, rng: random.Random) -> str:
    """Another answer, more often near the given one than not: a digit exchanged, added or left out."""
    digits = [place for place, letter in enumerate(answer) if letter.isdigit()]
    while True:
        kind = rng.random()
        if kind < 0.5:
            place = rng.choice(digits)
            found = answer[:place] + str(rng.randrange(10)) + answer[place + 1 :]
        elif kind < 0.6:
            found = answer + "0"
        elif kind < 0.7 and len(digits) > 1:
            place = rng.choice(digits)
            found = answer[:place] + answer[place + 1 :]
        else:
            found = _number(rng)
        has_leading_zero = len(found) > 1 and found[0] == "0" and found[1].isdigit()
        if not has_leading_zero and is_another_answer("", answer, found):
            return found


def _line(rng: random.Random) -> str:
    first, second = rng.randrange(1, 200), rng.randrange(1, 50)
    sign, value = rng.choice((("+", first + second), ("-", first - second), ("*", first * second)))
    shown = f"{first} {sign} {second} = {value}"
    if rng.random() < 0.3:
        shown = f"{first} {sign} {second} = <<{first}{sign}{second}={value}>>{value}"
    return rng.choice((shown, f"She {rng.choice(_VERBS)} {shown} {rng.choice(_NOUNS)}.", f"So {shown}. "))
