"""Pairs of a reference answer and a completion, made from templates for each family of notation.

A line of `families/*.txt` is `SIGN reference ~~ completion [~~ question or "cut"]`:

    +  correct      -  incorrect      ?  the two texts do not tell
    x  never correct                  o  never incorrect

`@a` to `@d` are rising whole numbers, `@h` and `@g` such of three digits, `@u` and `@v` letters that may be
units, `@x` a variable, `@n` a new line, `[[a+b]]` arithmetic. One of `WRAPPERS` states an answer; a text
that begins with `!` is taken as it is.

The verifier may be mended by the templates of `tune`; its figures come from those of `report`.
"""

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from benchmarks._labelled import Half
from cooper_rl.verdicts.answers.verify import AnswerItem

FOLDER = Path(__file__).parent / "families"
PAIRS_PER_FAMILY = 300
SEED = "families-2026-11-24"

Sign = Literal["+", "-", "?", "x", "o"]
_ALLOWED: dict[str, frozenset[str]] = {
    "+": frozenset({"correct"}),
    "-": frozenset({"incorrect"}),
    "?": frozenset({"unparsable"}),
    "x": frozenset({"incorrect", "unparsable"}),
    "o": frozenset({"correct", "unparsable"}),
}


class Pair(NamedTuple):
    """An item with what a verifier should say of it."""

    family: str
    template: str
    sign: Sign
    item: AnswerItem

    def rate(self, verdict: str) -> Literal["right", "abstained", "wrong"]:
        """An abstention where a decision was possible is no mistake."""
        if verdict in _ALLOWED[self.sign]:
            return "right"
        return "abstained" if verdict == "unparsable" else "wrong"


WRAPPERS: tuple[Callable[[str], str], ...] = (
    lambda answer: rf"\boxed{{{answer}}}",
    lambda answer: f"The answer is ${answer}$.",
    lambda answer: f"Final answer: {answer}",
    lambda answer: f"**Answer:** {answer}",
    lambda answer: f"#### {answer}",
    lambda answer: f"The final answer is **{answer}**.",
    lambda answer: f"So we get ${answer}$.",
    lambda answer: f"Therefore the result is {answer}.",
    lambda answer: json.dumps({"answer": answer}, ensure_ascii=False),
)


def family_names() -> list[str]:
    """Every family, in order of name."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def read_family(name: str, *, half: Half | None = None) -> list[Pair]:
    """The pairs of one family: all, or those of the templates of one half."""
    lines = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    count = -(-PAIRS_PER_FAMILY // len(lines))
    return [
        pair
        for line in lines
        if half is None or _is_drawn(line) == (half != "tune")
        for pair in _fill_template(name, line, count)
    ]


def _is_drawn(template: str) -> bool:
    return bool(hashlib.blake2b(f"{SEED}:{template}".encode()).digest()[0] % 2)


def _fill_template(family: str, template: str, count: int) -> Iterator[Pair]:
    sign, _, rest = template.partition(" ")
    reference, completion, *others = rest.split(" ~~ ")
    last = others[0] if others else ""
    for number in range(count):
        rng = random.Random(f"{SEED}:{template}:{number}")
        values = _draw_values(rng)
        text = _fill(completion, values)
        item = AnswerItem(
            _fill(reference, values),
            text[1:] if text.startswith("!") else _wrap(text, rng),
            "" if last == "cut" else _fill(last, values),
            "length" if last == "cut" else "stop",
        )
        yield Pair(family, template, sign, item)  # pyright: ignore[reportArgumentType] one of five characters


def _draw_values(rng: random.Random) -> dict[str, str]:
    small = sorted(rng.sample(range(2, 20), 4))
    large = sorted(rng.sample(range(100, 1000), 2))
    letters = rng.sample("cdklmnpst", 2)
    names = ("a", "b", "c", "d", "h", "g", "u", "v", "x", "n")
    return dict(zip(names, (*map(str, small + large), *letters, rng.choice("xyz"), "\n"), strict=True))


def _fill(template: str, values: dict[str, str]) -> str:
    numbers = {name: int(value) for name, value in values.items() if value.isdigit()} | {"round": round}
    template = re.sub(
        r"\[\[([^\[\]@]+)\]\]", lambda found: str(eval(found[1], {"__builtins__": {}}, numbers)), template
    )
    return re.sub(r"@([a-dghuvxn])", lambda found: values[found[1]], template)


def _wrap(answer: str, rng: random.Random) -> str:
    is_price = "$" in answer
    fitting = [
        wrap
        for wrap in WRAPPERS
        if not ("*" in answer and "**" in wrap("1")) and not (is_price and "$" in wrap("1"))
    ]
    return rng.choice(fitting)(answer)
