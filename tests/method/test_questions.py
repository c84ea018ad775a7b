"""Which problems ask the same, and what names one."""

import hashlib

from cooper_rl.method.questions import fingerprint, question_key, with_questions, without_questions
from cooper_rl.schema.data import Problem, VerifyExample


def problem(question: str, answer: str = "2", name: str = "a") -> Problem:
    return Problem(id=name, question=question, reference_answer=answer, source="s")


def test_a_key_differs_in_more_than_case_and_white_space() -> None:
    assert question_key("  What IS\n1+1? ") == question_key("what is 1+1?") == "what is 1+1?"
    assert question_key("Straße") == question_key("STRASSE")  # casefold, and not lower
    assert question_key("Zoe\u0301?") == question_key("ZO\u00c9?")  # as one character and as two
    assert question_key("1 1") != question_key("11")
    assert question_key("x\u00b2") != question_key("x2")


def test_rows_are_parted_by_whether_others_ask_the_same() -> None:
    rows = [problem("One?"), problem("Two?", name="b"), problem("three?", name="c")]
    others = [
        VerifyExample(question=" TWO? ", reference_answer="9", completion="", label=0),
        problem("Four?"),
    ]
    assert with_questions(rows, others) == [rows[1]]
    assert without_questions(rows, others) == [rows[0], rows[2]]
    assert with_questions(rows, []) == []
    assert without_questions(rows, []) == rows


def test_a_fingerprint_is_of_question_and_answer_alone() -> None:
    """The first 32 digits of the hash of both, with a zero byte between that neither can hold."""
    expected = hashlib.sha256(b"one?\x002").hexdigest()[:32]
    assert fingerprint(problem("One?", " 2 ")) == fingerprint(problem("ONE? ", "2", "other")) == expected
    assert fingerprint(problem("One?", "3")) != expected
