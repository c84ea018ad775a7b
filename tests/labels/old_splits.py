"""Completions whose splits were recorded before labelling streamed: `tests/golden/label_splits.json`.

Every kind that the split tells apart: questions in two spellings, mostly correct, mostly wrong, half and
half, dropped altogether, and a share of which the rows of one spelling alone would say another thing.
"""

import random
from pathlib import Path

from cooper_rl.records.files import write_records
from cooper_rl.schema.data import Completion, Problem

SEEDS = (0, 1, 20261124)
NUM_QUESTIONS = 80


def write_inputs(folder: Path, suffix: str = "jsonl") -> None:
    """80 questions, every third in a second spelling, two to five completions each."""
    rng = random.Random(5)
    problems: list[Problem] = []
    completions: list[Completion] = []
    for number in range(NUM_QUESTIONS):
        spellings = [f"What is {number} plus 3?"] + [f"what  is {number} PLUS 3? "] * (number % 3 == 0)
        for place, question in enumerate(spellings):
            problem = Problem(
                id=f"p{number}-{place}",
                source="test",
                question=question,
                reference_answer=str(number + 3),
            )
            problems.append(problem)
            for sample in range(rng.randint(2, 5)):
                answer = rng.choice([number + 3, number + 3, number + 4, "plenty"])
                completions.append(
                    Completion(
                        id=f"{problem.id}-{sample}",
                        problem_id=problem.id,
                        model=rng.choice(["small", "large"]),
                        text=f"So the answer is {answer}.",
                        finish_reason="stop",
                    )
                )
    rng.shuffle(completions)
    write_records(folder / f"problems.{suffix}", problems)
    write_records(folder / f"completions.{suffix}", completions)
