"""Generated pairs of a reference answer and a statement of an answer, equal or not (row 4).

A model without pre-training does not find "the stated answer equals the reference" in a few thousand labelled
completions: it memorises them. These short examples hold nothing else to learn. They are drawn from number
ranges and fixed phrases, never from a data set. Labelled data teaches answers that are equal in
meaning but not in form.
"""

import random

from cooper_rl.schema.data import VerifyExample
from cooper_rl.verdicts.answers.verify import is_another_answer

SOURCE = "generated"
MAX_LINES = 1
"""Of arithmetic before the statement: the last may end in the answer, and any hold the wrong reference."""

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
_NOUNS = ("apples", "dollars", "hours", "miles", "pages", "students", "eggs", "minutes")
_VERBS = ("has", "buys", "needs", "pays", "counts", "gets")


def matching_examples(count: int, rng: random.Random) -> list[VerifyExample]:
    """`count` examples without a question; every text once with the answer it states, once with another."""
    found = [example for _ in range((count + 1) // 2) for example in _pair(rng)]
    return found[:count]


def _pair(rng: random.Random) -> list[VerifyExample]:
    """The same text with the answer that it states and with another one."""
    stated = _formula(rng) if rng.random() < 0.15 else _number(rng)
    other = _other(stated, rng)
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


def _number(rng: random.Random) -> str:
    digits = rng.choices((1, 2, 3, 4, 5), weights=(3, 7, 5, 3, 1))[0]
    value = str(rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits))
    if rng.random() < 0.08:
        value += f".{rng.randrange(1, 100):02}"
    return f"-{value}" if rng.random() < 0.08 else value


def _formula(rng: random.Random) -> str:
    first, second, third = (str(rng.randrange(1, 30)) for _ in range(3))
    forms = (
        f"\\frac{{{first}}}{{{second}}}",
        f"{first}\\sqrt{{{second}}}",
        f"({first}, {second})",
        f"{first}/{second}",
        f"{first}x + {second}",
        f"[{first}, {second})",
        f"{first}, {second}, {third}",
        f"\\frac{{{first}\\sqrt{{{second}}}}}{{{third}}}",
    )
    return rng.choice(forms)


def _other(answer: str, rng: random.Random) -> str:
    """Another answer, as often near the given one as not."""
    digits = [place for place, letter in enumerate(answer) if letter.isdigit()]
    while True:
        kind = rng.random()
        if kind < 0.5:
            place = rng.choice(digits)
            found = answer[:place] + str(rng.randrange(10)) + answer[place + 1 :]
        elif kind < 0.6:
            found = answer + "0"
        else:
            found = _number(rng)
        has_leading_zero = len(found) > 1 and found[0] == "0" and found[1].isdigit()
        if not has_leading_zero and is_another_answer(found, answer):
            return found


def _line(rng: random.Random) -> str:
    first, second = rng.randrange(1, 200), rng.randrange(1, 50)
    sign, value = rng.choice((("+", first + second), ("-", first - second), ("*", first * second)))
    shown = f"{first} {sign} {second} = {value}"
    if rng.random() < 0.3:
        shown = f"{first} {sign} {second} = <<{first}{sign}{second}={value}>>{value}"
    return rng.choice((shown, f"She {rng.choice(_VERBS)} {shown} {rng.choice(_NOUNS)}.", f"So {shown}. "))
