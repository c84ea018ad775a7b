"""Lessons that VerifyRM gets before whole completions, and their order (row 4).

All of it is optional and off in the paper's recipe. A backbone that was pre-trained on text brings the first
lesson along; a model from scratch does not (docs/lab/real_data.md has what each is worth).
`fit_verify_rm.py` teaches a lesson.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import default_domain
from cooper_rl.errors import ConfigError
from cooper_rl.negatives.canaries import draw_other_answer
from cooper_rl.randomness import derive_seed
from cooper_rl.redteam.hostile import hostile_examples
from cooper_rl.redteam.negatives import attack_examples
from cooper_rl.schema.data import VerifyExample

MAX_DRAWN_FROM = 50_000
"""Examples that canaries, hostile texts and the red team's are made of: they are in memory."""
MATCHING_ROWS = 1_000
"""Generated examples that are in memory at a time; even, so that no pair is split."""

Keep = Callable[[Iterable[VerifyExample]], Sequence[VerifyExample]]
"""Puts examples where they can be read again and again."""


class Lesson(NamedTuple):
    """Examples that are learned together, before the next lesson."""

    name: str
    examples: Sequence[VerifyExample]
    config: VerifyRMConfig


def plan_lessons(
    examples: Sequence[VerifyExample],
    *,
    config: VerifyRMConfig,
    is_from_scratch: bool,
    seed: int,
    domain: Domain | None = None,
    attacks: Sequence[str] = (),
    keep: Keep = list,
) -> list[Lesson]:
    """The lessons in their order; the last one is whole completions for `num_epochs`.

    Args:
        examples: Labelled ones.
        config: Section `verify_rm`.
        is_from_scratch: Whether the model has learned nothing yet.
        seed: Of all draws.
        domain: Whose answers they are; None: the default domain.
        attacks: Texts of the red team, to be learned as wrong.
        keep: Keeps the examples of a lesson, in memory or elsewhere.

    Raises:
        ConfigError: texts are to be generated for a domain that has none.
    """
    lessons: list[Lesson] = []
    domain = domain or default_domain()
    if is_from_scratch and config.scratch.num_matching_examples:
        rng = random.Random(derive_seed(seed, "matching"))
        changes = {"num_epochs": 1, "lr": config.scratch.matching_lr}
        key = "verify_rm.scratch.num_matching_examples"
        matching = _make_matching(domain, config.scratch.num_matching_examples, [], rng, key=key)
        lessons.append(Lesson("matching", keep(matching), config.model_copy(update=changes)))
    rows = keep(chain(examples, _additions(examples, config, seed, domain, attacks)))
    for num_chars in config.answer_spans:
        spans = keep(cut_to_answer(row, num_chars) for row in rows)
        once = config.model_copy(update={"num_epochs": 1})
        lessons.append(Lesson(f"last {num_chars} characters", spans, once))
    lessons.append(Lesson("completions", rows, config))
    return lessons


def _additions(
    examples: Sequence[VerifyExample],
    config: VerifyRMConfig,
    seed: int,
    domain: Domain,
    attacks: Sequence[str],
) -> Iterator[VerifyExample]:
    """Made-up examples beside the labelled ones.

    Each kind has a seed of its own: switching one on leaves the draws of the others as they were.
    """
    if config.swapped_references:
        yield from swap_references(examples, random.Random(derive_seed(seed, "swap")), domain)
    has_texts = config.num_canary_problems or config.hostile_fraction or config.matching_fraction or attacks
    material = _draw_material(examples, seed) if has_texts else []
    if config.num_canary_problems:
        rng = random.Random(derive_seed(seed, "train_canaries"))
        canaries = domain.make_canaries(material, max_problems=config.num_canary_problems, rng=rng)
        yield from (canary.example for canary in canaries)
    if config.hostile_fraction:
        rng = random.Random(derive_seed(seed, "train_hostile"))
        count = round(config.hostile_fraction * len(examples))
        yield from hostile_examples(material, count, rng, domain=domain)
    if config.matching_fraction:
        rng = random.Random(derive_seed(seed, "train_matching"))
        count = round(config.matching_fraction * len(examples))
        solved = [example for example in material if example.label == 1]
        yield from _make_matching(domain, count, solved, rng, key="verify_rm.matching_fraction")
    if attacks:
        rng = random.Random(derive_seed(seed, "train_attacks"))
        num_problems = config.num_attack_problems
        yield from attack_examples(attacks, material, num_problems=num_problems, rng=rng, domain=domain)


def _draw_material(examples: Sequence[VerifyExample], seed: int) -> Sequence[VerifyExample]:
    if len(examples) <= MAX_DRAWN_FROM:
        return list(examples)
    rng = random.Random(derive_seed(seed, "train_material"))
    return [examples[index] for index in sorted(rng.sample(range(len(examples)), MAX_DRAWN_FROM))]


def _make_matching(
    domain: Domain, count: int, solved: Sequence[VerifyExample], rng: random.Random, *, key: str
) -> Iterator[VerifyExample]:
    if domain.make_matching is None:
        raise ConfigError(f"problems.domain={domain.name}: no texts can be generated for it; set {key} to 0")
    for start in range(0, count, MATCHING_ROWS):
        yield from domain.make_matching(min(MATCHING_ROWS, count - start), rng, solved)


def cut_to_answer(example: VerifyExample, num_chars: int) -> VerifyExample:
    """The example without its question and with the end of its completion only."""
    return example.model_copy(update={"question": "", "completion": example.completion[-num_chars:]})


def swap_references(
    examples: Sequence[VerifyExample], rng: random.Random, domain: Domain | None = None
) -> Iterator[VerifyExample]:
    """Yield every example once more with another reference answer and, as a rule, the other label.

    A correct completion gets the reference answer of another problem (another answer: label 0). An incorrect
    one gets the answer that it states itself (label 1); where it states none, it is left out.
    """
    domain = domain or default_domain()
    # Sorted: the order of a set of texts differs from process to process, and the draws would with it.
    answers = sorted({example.reference_answer for example in examples})
    for example in examples:
        if example.label == 1:
            reference = draw_other_answer(answers, example, rng, domain.is_other_answer)
        else:
            reference = domain.find_stated_answer(example.completion)
        if reference is not None:
            changes = {"reference_answer": reference, "label": 1 - example.label}
            yield example.model_copy(update=changes)
