"""Functions that read hostile text in the caller's process, and so hold its GIL, take linear time."""

import random
import time
from collections.abc import Callable, Sequence

import pytest

from cooper_rl.config.data import AnswerPolicy
from cooper_rl.negatives.mention import check_mention
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.negatives.perturb import Perturber
from cooper_rl.servers.judge import read_verdict
from cooper_rl.tiny.meaning import find_conclusion
from cooper_rl.verdicts.answers.extraction import find_final_answer
from cooper_rl.verdicts.answers.text import normalise_answer
from cooper_rl.verdicts.answers.verify import (
    MAX_QUICK_CHARS,
    AnswerCheck,
    AnswerItem,
    compare_quickly,
    parse_reference,
    state_answer,
)

UNITS = (
    *(" ", "\n", "\t", "\r", "(", ")", "{", "}", "[", "$", "\\", "½", "1", "0", "1,", "1 ", "1 000", ",000"),
    *(
        "a",
        "a ",
        "a,",
        "=",
        "x=",
        "= 1 ",
        "x<",
        "<",
        "and ",
        "or ",
        "9",
        "*",
        "**",
        "`",
        '"',
        "'",
        "#",
        ".",
        ". ",
    ),
    *(
        "answer",
        "answer ",
        "answer is ",
        "final answer ",
        "A: ",
        "not ",
        "n't ",
        "so ",
        " where",
        "is ",
        ": ",
    ),
    *(
        '"answer": ',
        '"answer": 1 ',
        '"answer": "',
        '\\"',
        r"\boxed",
        r"\boxed ",
        r"\boxed{",
        r"\text{",
        "<sup>",
    ),
    *(
        r"\(",
        r"\)",
        r"\[",
        r"\frac{",
        r"\left ",
        r"\begin{matrix}",
        r"\{x|",
        r"\mid",
        r"\pm ",
        "±",
        "√(",
        "°",
    ),
    *(
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "<|",
        "####",
        "million ",
        "km ",
        "m/s ",
        "^",
        "^2",
        "e5",
        "/",
        "1/",
        r"\cup ",
        "|",
    ),
    *(
        "VERDICT-n:",
        "VERDICT-n: CORRECT\n",
        "> ",
        "_",
        "* ",
        "sin ",
        "pi",
        "sqrt(",
        "1:",
        "mod ",
        "{,}",
        "_{1}",
    ),
    *("frac", "frac{1}", "1 frac", "1.", ".1", "twenty ", "twenty-", "seven"),
    *("(A) ", "(B) ", "A. ", "\nB. ", "choice ", "such as ", "if the ", " is wrong", "3 m ", "x_1", "log2("),
    *(r"\mathrm{m^{2}", "<x", "[1", '{"value": ', "U(", " in ", "I need ", "5'", "f'", "1.000", "Bob is "),
)
AFFIXES = (
    *(
        ("", ""),
        ("", "!"),
        ("answer", ""),
        ("answer", ": 1"),
        ("The answer is ", "."),
        ("The answer is x", "."),
    ),
    *(
        (r"\boxed{1", "1}"),
        (r"\boxed{x=", "}"),
        ('{"answer": "', '"}'),
        ('{"answer": ', "}"),
        ("final answer", ":"),
    ),
    *(("#### ", ""), ("VERDICT-n", "CORRECT"), ("VERDICT-n:", "")),
)


def _quick(text: str) -> None:
    stated = state_answer(AnswerItem("(1,2), x+1", text), AnswerPolicy())
    if not isinstance(stated, AnswerCheck):
        compare_quickly(stated, AnswerPolicy())


def _state(item: AnswerItem) -> None:
    state_answer(item, AnswerPolicy())


def _reference(text: str) -> None:
    try:
        parse_reference(text)
    except ValueError:
        return


READERS: dict[str, Callable[[str], object]] = {
    "find_final_answer": lambda text: find_final_answer(text, AnswerPolicy()),
    "question": lambda text: _state(AnswerItem("B", r"\boxed{17}", text)),
    "question and completion": lambda text: _state(AnswerItem("17", text[:3000], text)),
    "cut completion": lambda text: _state(AnswerItem("17", text, "", "length")),
    "normalise_answer": normalise_answer,
    "parse_reference": _reference,
    "read_verdict": lambda text: read_verdict(text, "n"),
    "check_mention": lambda text: check_mention("", "41", text),
    "perturb": lambda text: Perturber().rewrite([RewriteItem("1", "q", "1", text)], seed=0),
    "find_conclusion": find_conclusion,
}
MAX_CHARS = 6000
"""Below every limit at which a reader cuts its text."""


def _draw_texts(seed: int, count: int) -> list[tuple[str, str, str]]:
    """Openings, endings and what is repeated between them: one unit, or two in turn."""
    rng = random.Random(seed)
    single = rng.sample([(*affix, unit) for affix in AFFIXES for unit in UNITS], count)
    mixed = [(*rng.choice(AFFIXES), rng.choice(UNITS) + rng.choice(UNITS)) for _ in range(count)]
    return single + mixed


TEXTS = [
    *_draw_texts(0, 200),
    *(("answer", "", unit) for unit in (" ", "\n", "\t")),
    *(("", "", unit) for unit in ("\n", "(B) ", "A. ")),
]
"""All 2,000 of one unit and 30,000 of two would take half an hour."""


def _seconds(read: Callable[[str], object], text: str) -> float:
    started = time.process_time()
    read(text)
    return time.process_time() - started


@pytest.mark.parametrize("reader", READERS)
def test_four_times_the_text_takes_about_four_times_as_long(reader: str) -> None:
    """Quadratic time would take sixteen times as long; `answer` and 6,000 spaces took 0.3 s."""
    assert find_quadratic(READERS[reader], TEXTS) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_four_times_any_other_text_takes_about_four_times_as_long(seed: int) -> None:
    """Minutes: five times as many texts, for the readers of the rule verifier."""
    texts = _draw_texts(seed, 1000)
    for reader in ("find_final_answer", "question", "normalise_answer", "parse_reference"):
        assert find_quadratic(READERS[reader], texts) == []


def find_quadratic(
    read: Callable[[str], object], texts: Sequence[tuple[str, str, str]], *, repeats: int = 3
) -> list[str]:
    """The texts whose fourfold takes over nine times as long."""
    quadratic: list[str] = []
    for opening, closing, unit in texts:
        count = (MAX_CHARS - len(opening) - len(closing)) // len(unit)
        long, short = (opening + unit * number + closing for number in (count, count // 4))
        if _seconds(read, long) < 0.015:
            continue
        slow = min(_seconds(read, long) for _ in range(repeats))
        ratio = slow / min(_seconds(read, short) for _ in range(repeats))
        if ratio > 9:
            quadratic.append(f"{opening!r} + {count} * {unit!r} + {closing!r}: {ratio:.1f} times")
    return quadratic


def test_a_quick_comparison_is_bounded() -> None:
    """A comparison is superlinear in the answer's length, so longer answers go to a worker that is killed."""
    slow = [
        f"{opening!r} {unit!r}"
        for opening, closing, unit in TEXTS
        if min(_seconds(_quick, opening + unit * (MAX_QUICK_CHARS // len(unit)) + closing) for _ in range(3))
        > 0.1
    ]
    assert slow == []
