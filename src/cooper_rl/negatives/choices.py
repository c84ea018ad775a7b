"""Mathematics: the choice of a question that a reference answer is: the value of a letter, a value's letter.

The rule verifier looks up the choice that a completion states (`verdicts/answers/question.py`). This is for
texts that only mention an answer.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from cooper_rl.verdicts.answers.question import read_letter, read_options, split_choice
from cooper_rl.verdicts.answers.text import normalise_answer
from cooper_rl.verdicts.answers.units import TEXT_COMMAND
from cooper_rl.verdicts.answers.verify import is_another_answer


class Choice(NamedTuple):
    """The choice that a reference answer is."""

    letters: tuple[str, ...]
    """Letters of the choices that say the same as the reference answer; of a letter, that letter."""
    content: str | None
    """The value of the choice; None where a letter's choice cannot be read."""


# All completions of a problem have one question.
@lru_cache(maxsize=4096)
def read_choice(question: str, reference_answer: str) -> Choice | None:
    """The choice that a reference answer is; None where it is a value and none of the question's choices."""
    options = _read_options(question)
    answer = TEXT_COMMAND.sub(r"\1", normalise_answer(reference_answer))
    letter, written = read_letter(answer), split_choice(answer)
    if letter is not None:
        return Choice((letter,), options.get(letter) or None)
    if written is not None:
        return Choice((written[0],), written[1])
    letters = tuple(letter for letter, text in options.items() if not is_another_answer("", answer, text))
    return Choice(letters, answer) if letters else None


def choice_letters(question: str) -> tuple[str, ...]:
    """The letters of a question's choices; where it has none that can be read, all but I, which is a word."""
    return tuple(_read_options(question)) or tuple("ABCDEFGHJ")


def _read_options(question: str) -> dict[str, str]:
    """`read_options`, also of a question that writes its choices `(a) 12 (b) 16`."""
    return read_options(question) or read_options(_SMALL_MARK.sub(_capital, question))


def names_letter(completion: str, letter: str) -> bool:
    """True if a letter stands alone in a completion, as a capital: `(B)`, `\\textbf{B}`, `option B`.

    A small letter is a word or a variable, unless it is marked: `(b)`, `\\boxed{b}`, `option b`.
    """
    if re.search(rf"(?<![A-Za-z]){letter}(?![A-Za-z])", completion):
        return True
    small = letter.lower()
    return any(
        found.lower() == small
        for match in _MARKED_LETTER.finditer(completion)
        for found in match.groups()
        if found
    )


def _capital(mark: re.Match[str]) -> str:
    return mark[0].upper()


_SMALL_MARK = re.compile(r"\([a-j]\)|(?:(?<=\n)|(?<=[ ,;:]))[a-j][).](?=[\s$\\])")
"""`(b)` or `b)` before a choice."""
_MARKED_LETTER = re.compile(
    r"(?<![A-Za-z])\(([A-Ja-j])\)|\\boxed\s?\{\s?(?:\\(?:text|textbf|mathrm|mathbf)\s?\{)?\s?\(?([A-Ja-j])\)?[\s}.:)]"
    r"|(?:\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer:|[Aa]nswer is)|####|^)\s?([a-j])(?:[).:](?!\w)|[ \t]*$)",
    re.MULTILINE,
)
