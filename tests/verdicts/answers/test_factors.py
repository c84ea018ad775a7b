r"""Boxes that are a part of an expression: `-\boxed{5}` is not 5, and `\boxed{5}` million neither."""

import pytest

from cooper_rl.verdicts.answers.verify import verify_answer


@pytest.mark.parametrize(
    "form",
    [
        *(
            "-BOX",
            "$-BOX$",
            "x = -BOX",
            "= $-$BOX",
            "2BOX",
            r"$2 \cdot BOX$",
            r"2 \times BOX",
            "3 + BOX",
            "5 - BOX",
        ),
        *(
            r"\frac{1}{BOX}",
            r"\frac{BOX}{2}",
            r"\sqrt{BOX}",
            r"\sqrt BOX",
            r"\frac{1}{2}BOX",
            "2^{BOX}",
            "x_BOX",
        ),
        *(r"x \ne BOX", r"$x \neq BOX$", "x > BOX", "$x<BOX$", r"x \ge BOX", r"\pm BOX", r"\ln BOX", "1/BOX"),
        *("BOX^2", "$BOX$^2", "BOX + 1", "BOX - 1", "$BOX$ + $1$", r"BOX \cdot 2", r"BOX\pi", r"BOX\sqrt{3}"),
        *("BOX/2", "BOX0", "BOX.5", "BOX,000", "BOX = 13", r"BOX \to 13", "BOX < x", r"BOX\ne x", "BOX{13}"),
        *("BOX million", "$BOX$ thousand", r"BOX \text{ hundred}", "BOX squared", "BOXx", "BOX or more"),
    ],
)
def test_a_box_within_an_expression_states_nothing(form: str) -> None:
    completion = "So it is " + form.replace("BOX", r"\boxed{12}")
    assert verify_answer("12", completion).verdict == "unparsable"


@pytest.mark.parametrize(
    "form",
    [
        *(
            "BOX",
            "$BOX$.",
            "**BOX**",
            "- BOX",
            "> BOX",
            "<b>BOX</b>",
            "Answer - BOX",
            "=> BOX",
            r"\Rightarrow BOX",
        ),
        *(
            "x = BOX",
            "6+6=BOX",
            r"6 \cdot 2 &= BOX",
            r"\$BOX",
            r"x \approx BOX",
            r"\text{So } BOX",
            "(BOX)",
            "{BOX}",
        ),
        *(
            r"\[ BOX \]",
            r"\textcolor{red}{BOX}",
            "BOX apples",
            r"BOX\text{ cm}",
            r"BOX\%",
            r"BOX^\circ",
            "BOX = x.",
        ),
        *("BOX, as 6+6=12", "BOX - done", "BOX more than Tom", "BOX\n\n1 + 1 = 2", "BOX.\n\n5 is no answer."),
    ],
)
def test_what_leads_to_a_box_and_what_it_counts_change_nothing(form: str) -> None:
    completion = "So it is\n" + form.replace("BOX", r"\boxed{12}")
    assert verify_answer("12", completion).verdict == "correct"
