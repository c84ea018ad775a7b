r"""Choices of a question (row 3): `(A) 12 (B) 16`, `A. $\frac12$` on lines of their own, `\textbf{(A)}\ 12`.

A letter against a value can only be decided with the choices; without them nobody knows.
"""

import re

from cooper_rl.verdicts.answers.comparison import AnswerCheck, shorten
from cooper_rl.verdicts.answers.text import normalise_answer
from cooper_rl.verdicts.answers.units import TEXT_COMMAND

MAX_QUESTION_CHARS = 20_000
_MARK = re.compile(
    r"(?:\\(?:textbf|text|mathrm|mathbf|textrm)\s?\{\s?)?"
    r"(?:\(([A-J])\)|(?:(?<=\n)|(?<=[ ,;:]))\(?([A-J])[).:](?=[\s$\\]))(?:\s?\})?"
)
_LETTER = re.compile(
    r"(?:the )?(?:correct )?(?:option|choice|answer)?(?: is)?:? ?\(?([A-J])[).]?", re.IGNORECASE
)
_WITH_CONTENT = re.compile(r"\(([A-J])\)[ :.]?\s*(\S.*)|([A-J])[).:]\s+(\S.*)", re.DOTALL)


def resolve_choice(reference: str, answer: str, question: str) -> tuple[str, str] | AnswerCheck:
    """Reference answer and answer with a letter replaced by its choice where only the other side is a value.

    A verdict where the question holds no choices, since nobody can know, or where the letter is none of them.
    """
    left, right = (TEXT_COMMAND.sub(r"\1", text) for text in (reference, answer))
    ours, theirs = read_letter(left), read_letter(right)
    if (ours is None) == (theirs is None):
        return _resolve_contents(left, right) or (reference, answer)
    chosen, other = (ours, right) if ours is not None else (theirs, left)
    content = split_choice(other)
    if content is not None and ours is not None:
        return reference, answer
    if content is not None:
        equal = content[0] == chosen
        return AnswerCheck(
            "correct" if equal else "incorrect", f"{shorten(answer)} against {shorten(reference)}"
        )
    if _could_be_letter(other, str(chosen)):
        return reference, answer
    options = read_options(question)
    if not options:
        return AnswerCheck(
            "unparsable", f"{shorten(answer)} against {shorten(reference)}: no choices to read"
        )
    value = options.get(str(chosen))
    if value is None:
        verdict = "incorrect" if theirs is not None else "unparsable"
        return AnswerCheck(verdict, f"{chosen} is none of the choices {', '.join(options)}")
    for letter, text in options.items():
        if text.casefold() == (normalise_answer(other)).casefold():
            verdict = "correct" if letter == chosen else "incorrect"
            return AnswerCheck(verdict, f"{shorten(other)} is choice {letter}, against {chosen}")
    return (value, answer) if ours is not None else (reference, value)


def _resolve_contents(left: str, right: str) -> tuple[str, str] | AnswerCheck | None:
    """`(B) 12` against `12` by content; two with letters are left to the comparison of choices."""
    ours, theirs = split_choice(left), split_choice(right)
    if ours is not None and theirs is not None:
        if ours[0] == theirs[0]:
            return normalise_answer(ours[1]), normalise_answer(theirs[1])
        is_same = normalise_answer(ours[1]) == normalise_answer(theirs[1])
        return AnswerCheck("unparsable" if is_same else "incorrect", f"choice {theirs[0]} against {ours[0]}")
    if ours is not None:
        return normalise_answer(ours[1]), right
    return (left, normalise_answer(theirs[1])) if theirs is not None else None


def _could_be_letter(text: str, letter: str) -> bool:
    """Whether an expression may hold the letter as a variable or a name, or names it in words."""
    return re.search(rf"(?<![A-Za-z]){letter}(?![A-Za-z])", text) is not None


def read_options(question: str) -> dict[str, str]:
    """Letter -> normalised text of its choice; empty where the question holds no choices in order from A."""
    question = "\n" + question[-MAX_QUESTION_CHARS:]
    marks = list(_MARK.finditer(question))
    # The last run of letters in order: `Let A. be ...` before the choices is none of them.
    letters = [mark[1] or mark[2] for mark in marks]
    first = len(letters) - 1 - letters[::-1].index("A") if "A" in letters else len(letters)
    run = letters[first:]
    if len(run) < 2 or run != [chr(ord("A") + place) for place in range(len(run))]:
        return {}
    ends = [mark.start() for mark in marks[first + 1 :]] + [len(question)]
    return {
        letter: normalise_answer(_strip(question[mark.end() : end]))
        for letter, mark, end in zip(run, marks[first:], ends, strict=True)
    }


def _strip(text: str) -> str:
    text = re.sub(r"\\(?:qquad|quad|hspace\{[^{}]{0,20}\})|\\\\|\\ ", " ", text)
    text = re.split(r"\n\n|(?<=[a-z\d$])\.\s+(?=[A-Z])", text.strip(), maxsplit=1)[0].strip(" \n,;")
    return text[:-1] if text.count("$") == 1 and text.endswith("$") else text


def read_letter(text: str) -> str | None:
    """The choice that an answer without commands names, `(B)` or `option B`; else None."""
    found = _LETTER.fullmatch(text.strip(" .*"))
    return found[1].upper() if found and found[1].isupper() else None


def split_choice(text: str) -> tuple[str, str] | None:
    """Letter and content of `(B) 12` or `B) 12`; None when the answer is anything else."""
    found = _WITH_CONTENT.fullmatch(text.strip())
    return (found[1] or found[3], found[2] or found[4]) if found else None
