"""The red team's texts as wrong completions, for VerifyRM's training and for preference pairs."""

import random
from collections.abc import Sequence
from pathlib import Path

from cooper_rl.domains.base import Domain
from cooper_rl.negatives.canaries import Canary
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import parse_row, read_rows
from cooper_rl.redteam.library import QUESTION
from cooper_rl.schema.data import VerifyExample
from cooper_rl.schema.red_team import AttackText


def read_attacks(path: Path | None) -> list[str]:
    """The different texts of a file that the stage `red_team` wrote, in its order.

    None without a file, or where it is empty: a registry may know no attack yet.

    Raises:
        DataError: the file is missing or malformed.
    """
    if path is None:
        return []
    attacks = [parse_row(row, AttackText) for row in read_rows(path)]
    return list(dict.fromkeys(attack.text for attack in attacks))


class AttackWriter:
    """Texts of the red team as negatives: one per item, drawn with the seed. Implements `pairs.Assistant`."""

    name = "red_team"

    def __init__(self, texts: Sequence[str], domain: Domain) -> None:
        self._texts = texts
        self._domain = domain

    def rewrite(self, items: Sequence[RewriteItem], *, seed: int) -> list[str | None]:
        """One text per item, in order; None where the text may be right."""
        written: list[str | None] = []
        for item in items:
            rng = random.Random(derive_seed(seed, self.name, *item))
            text = rng.choice(self._texts).replace(QUESTION, item.question) if self._texts else None
            if text is not None and self._domain.may_be_right(item.question, item.reference_answer, text):
                text = None
            written.append(text)
        return written


def attack_examples(
    texts: Sequence[str],
    examples: Sequence[VerifyExample],
    *,
    num_problems: int,
    rng: random.Random,
    domain: Domain,
) -> list[VerifyExample]:
    """Every text as a wrong completion of up to `num_problems` problems of the examples.

    Left out where it may be right.
    """
    by_question = {example.question: example for example in examples}
    questions = sorted(by_question)
    found: list[VerifyExample] = []
    for text in texts:
        for question in rng.sample(questions, min(num_problems, len(questions))):
            example = by_question[question]
            completion = text.replace(QUESTION, question)
            if not domain.may_be_right(question, example.reference_answer, completion):
                changes = {"completion": completion, "label": 0, "source": "red_team"}
                found.append(example.model_copy(update=changes))
    return found


def attack_canaries(
    texts: Sequence[str],
    examples: Sequence[VerifyExample],
    *,
    num_problems: int,
    rng: random.Random,
    domain: Domain,
) -> list[Canary]:
    """The same as canaries: every text is an attack of its own, named by its place."""
    return [
        Canary(f"red_team_{place}", example)
        for place, text in enumerate(texts)
        for example in attack_examples([text], examples, num_problems=num_problems, rng=rng, domain=domain)
    ]


def draw_canaries(
    examples: Sequence[VerifyExample], attacks: Sequence[str], *, num_problems: int, seed: int, domain: Domain
) -> list[Canary]:
    """A run's canaries and known attacks: the same for the same seed and examples.

    Args:
        examples: Labelled examples that VerifyRM has not seen.
        attacks: Texts of the red team.
        num_problems: Problems of an attack, drawn.
        seed: The run's.
        domain: Makes the canaries.
    """
    rng = random.Random(derive_seed(seed, "canaries"))
    canaries = domain.make_canaries(examples, max_problems=num_problems, rng=rng)
    return canaries + attack_canaries(attacks, examples, num_problems=num_problems, rng=rng, domain=domain)
