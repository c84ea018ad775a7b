"""Words beside an answer that make another one of it, put together by a small grammar; a part are made up."""

import random
from string import ascii_lowercase

_COUNTS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "eleven", "twelve", "twenty")
_PARTS = (
    "half",
    "one half",
    "a third",
    "two thirds",
    "a quarter",
    "three quarters",
    "a fifth",
    "a tenth",
    "10%",
    "40%",
)
_BOUNDS = (
    "more than", "less than", "fewer than", "greater than", "at least", "at most", "no more than", "up to",
    "over", "under", "almost", "not quite", "short of", "above", "below",
)  # fmt: skip
_OTHERS = (
    "twice {}", "double {}", "triple {}", "{} doubled", "the square of {}", "{} squared", "{} cubed", "{}^2",
    "the square root of {}", "minus {}", "the negative of {}", "{} thousand", "{} million", "{} dozen",
)  # fmt: skip
_SHIFTS = (
    "{} more than {{}}",
    "{} less than {{}}",
    "{{}} plus {}",
    "{{}} minus {}",
    "{{}} and {}",
    "{} and {{}}",
)
_SIGNS = ("{{}} + {}", "{{}} - {}", "{} + {{}}", "{{}} \\times {}", "{{}} \\cdot {}", "{{}} / {}", "{}({{}})")


def alter(answer: str, rng: random.Random) -> str:
    """A multiple, a sum, a bound or an unknown function of an answer; of 0 and 1 some are equal to it."""
    pick = rng.choice((_multiply, _shift, _bound, _change, _obscure))
    return pick(rng).format(answer)


def _multiply(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return f"{rng.choice(_PARTS)} of {{}}"
    return f"{rng.choice((rng.choice(_COUNTS), str(rng.randrange(2, 100))))} times {{}}"


def _shift(rng: random.Random) -> str:
    number = str(rng.randrange(2, 100))
    if rng.random() < 0.5:
        return rng.choice(_SIGNS).format(number)
    return rng.choice(_SHIFTS).format(rng.choice(("one", rng.choice(_COUNTS), number)))


def _bound(rng: random.Random) -> str:
    return f"{rng.choice(_BOUNDS)} {{}}"


def _change(rng: random.Random) -> str:
    return rng.choice(_OTHERS)


def _obscure(rng: random.Random) -> str:
    word = "".join(rng.choices(ascii_lowercase, k=rng.randint(3, 9)))
    return rng.choice((f"{word} {{}}", f"{word} of {{}}", f"the {word} of {{}}"))
