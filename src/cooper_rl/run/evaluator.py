"""A policy and its VerifyRM on held-out data (row 14): of a checkpoint, and while training goes on."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cooper_rl.config.root import Config
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.domains.open import find_domain
from cooper_rl.engines.base import Engine
from cooper_rl.errors import ServerError
from cooper_rl.method.intervals import clustered_interval, mean_of_independent
from cooper_rl.method.metrics import (
    binary_scores,
    confusion_counts,
    reliability_bins,
    right_verdicts,
    roc_points,
    score_intervals,
)
from cooper_rl.method.pass_at_k import pass_at_k
from cooper_rl.method.questions import draw_evaluated
from cooper_rl.models.policy import Policy
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, score_examples
from cooper_rl.negatives.canaries import Canary, canary_rates, mean_rate
from cooper_rl.randomness import derive_seed
from cooper_rl.redteam.negatives import draw_canaries
from cooper_rl.schema.data import EvaluatedCompletion, Problem, Verdict, VerifyExample
from cooper_rl.schema.reports import EvalReport, Interval, ProblemScores, SourceScores, VerifyRMDetails
from cooper_rl.servers.open import check_fits, open_judge
from cooper_rl.training.rollout import ask_judge, begin_rollouts, score_rollouts
from cooper_rl.verdicts.hybrid import Judge
from cooper_rl.verdicts.verifier import Verifier

logger = logging.getLogger(__name__)


class Evaluation(NamedTuple):
    """Numbers, and what they were made from."""

    report: EvalReport
    completions: list[EvaluatedCompletion]
    """Groups contiguous, in the order of the problems."""


@dataclass(frozen=True)
class Evaluator:
    """Held-out data and who judges it; the same draws at every step, so that two evaluations differ by the
    models alone."""

    config: Config
    problems: Sequence[Problem]
    examples: Sequence[VerifyExample]
    canaries: Sequence[Canary]
    rule: Verifier
    judge: Judge | None
    ranks: Ranks = ALONE

    def evaluate(
        self,
        engine: Engine,
        policy: Policy,
        verify_rm: VerifyRM,
        *,
        step: int,
        needs_judge: bool = True,
    ) -> Evaluation:
        """Draw completions for the problems and let every verifier speak.

        Raises:
            ServerError: the evaluation judge cannot be used, and is needed.
            TrainingError: a score is not finite.
        """
        config = self.config.evaluation
        wait = begin_rollouts(
            engine,
            policy,
            self.problems,
            config.generation,
            group_size=config.samples_per_problem,
            instruction=self.config.instruction,
            seed=derive_seed(self.config.seed, "evaluate"),
            ranks=self.ranks,
        )
        groups = wait()
        scores = score_rollouts(
            groups,
            verify_rm,
            self.rule,
            judge=None,
            max_tokens_per_batch=self.config.cooper.max_tokens_per_batch,
            ranks=self.ranks,
        )
        items = [
            (group.problem, VerifyItem(group.problem.question, group.problem.reference_answer, text), each)
            for group in groups
            for text, each in zip(group.texts, group.generations, strict=True)
        ]
        verdicts = self._ask([item for _, item, _ in items], needs_judge=needs_judge)
        judged = verdicts or [None] * len(items)
        completions = [
            EvaluatedCompletion(
                problem_id=problem.id,
                question=item.question,
                reference_answer=item.reference_answer,
                completion=item.completion,
                finish_reason=generation.finish_reason,
                rule=rule,
                judge=verdict,
                score=score,
                source=problem.source,
            )
            for (problem, item, generation), rule, verdict, score in zip(
                items, scores.rule, judged, scores.verify_rm, strict=True
            )
        ]
        judge = None if verdicts is None else self.judge
        return Evaluation(self._report(completions, verify_rm, judge=judge, step=step), completions)

    def _ask(self, items: Sequence[VerifyItem], *, needs_judge: bool) -> list[Verdict] | None:
        """The judge's verdicts; None without a judge, or without an answer where none is needed."""
        judge = self.judge
        if judge is None:
            return None
        try:
            # The first rank's ServerError is raised on all ranks: they go on without a judge together.
            return self.ranks.first(lambda: ask_judge(judge, items))
        except ServerError as error:
            if needs_judge:
                raise
            logger.warning("this evaluation goes without its judge: %s", error)
            return None

    def _report(
        self,
        completions: Sequence[EvaluatedCompletion],
        verify_rm: VerifyRM,
        *,
        judge: Judge | None,
        step: int,
    ) -> EvalReport:
        config = self.config.evaluation
        # Collective where ranks share VerifyRM: all of them make the report, of which one is written.
        scores = score_examples(verify_rm, [*self.examples, *(canary.example for canary in self.canaries)])
        labels, own = [example.label for example in self.examples], scores[: len(self.examples)]
        rates = canary_rates(self.canaries, scores[len(self.examples) :])
        size = config.samples_per_problem
        groups = [completions[start : start + size] for start in range(0, len(completions), size)]
        rule = [[float(row.rule == "correct") for row in group] for group in groups]
        judged = None if judge is None else [[float(row.judge == "correct") for row in g] for g in groups]
        rewards = [[row.score for row in group] for group in groups]
        by_source = score_sources(groups, rule, judged, rewards)
        return EvalReport(
            step=step,
            num_problems=len(self.problems),
            samples_per_problem=config.samples_per_problem,
            rule_accuracy=clustered_interval(rule),
            judge_accuracy=None if judged is None else clustered_interval(judged),
            judge_model=None if judge is None else judge.name,
            verify_rm_reward=clustered_interval(rewards),
            verify_rm=binary_scores(
                labels,
                own,
                problems=[example.question for example in self.examples],
            ),
            pass_at=pass_at_k(rule if judged is None else judged),
            num_decoys=0 if verify_rm.decoys is None else verify_rm.decoys.size,
            by_problem=[
                ProblemScores(
                    id=group[0].problem_id,
                    rule_accuracy=sum(rule[place]) / size,
                    judge_accuracy=None if judged is None else sum(judged[place]) / size,
                    verify_rm_reward=sum(rewards[place]) / size,
                )
                for place, group in enumerate(groups)
            ],
            by_source=by_source,
            mean_over_sources=_mean_over(by_source),
            verify_rm_hits=_hits(self.examples, right_verdicts(labels, own)),
            canary_false_positive_rate=mean_rate(rates),
            canaries={attack: rate.value for attack, rate in rates.items()},
            canary_intervals=rates,
            verify_rm_details=VerifyRMDetails(
                intervals=score_intervals(labels, own, problems=[row.question for row in self.examples]),
                reliability=reliability_bins(labels, own),
                confusion=confusion_counts(labels, own),
                roc=roc_points(labels, own),
            ),
            cut_fraction=sum(row.finish_reason == "length" for row in completions) / len(completions),
        )


def score_sources(
    groups: Sequence[Sequence[EvaluatedCompletion]],
    rule: Sequence[Sequence[float]],
    judged: Sequence[Sequence[float]] | None,
    rewards: Sequence[Sequence[float]],
) -> dict[str, SourceScores]:
    """The scores of each source, in the order in which the sources appear; empty where there is only one.

    Args:
        groups: The completions of each problem.
        rule: 1 or 0 for each of them.
        judged: The same by the judge.
        rewards: VerifyRM's scores.
    """
    places: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group[0].source, []).append(place)
    if len(places) < 2:
        return {}

    def over(values: Sequence[Sequence[float]], own: Sequence[int]) -> Interval:
        return clustered_interval([values[place] for place in own])

    return {
        source: SourceScores(
            rule_accuracy=over(rule, own),
            judge_accuracy=None if judged is None else over(judged, own),
            verify_rm_reward=over(rewards, own),
        )
        for source, own in places.items()
    }


def _mean_over(sources: Mapping[str, SourceScores]) -> Interval | None:
    accuracies = [scores.judge_accuracy or scores.rule_accuracy for scores in sources.values()]
    return mean_of_independent(accuracies) if accuracies else None


def make_evaluator(
    config: Config,
    problems: Sequence[Problem],
    examples: Sequence[VerifyExample],
    rule: Verifier,
    *,
    attacks: Sequence[str] = (),
    ranks: Ranks = ALONE,
) -> Evaluator:
    """The evaluator of section `evaluation`, on as many of the held-out problems as it names.

    Args:
        config: Section `evaluation`, and the domain.
        problems: Held-out problems.
        examples: Labelled examples that VerifyRM has not seen; canaries are made from them.
        rule: The rule verifier.
        attacks: Texts of the red team, each an attack beside those of the canaries.
        ranks: The processes that share the work.

    Raises:
        ConfigError: the laptop's judge is configured for problems of another source.
    """
    options = config.evaluation
    domain = find_domain(config.problems.domain)
    problems = draw_evaluated(problems, options.max_problems, seed=config.seed)
    check_fits(options.judge, problems, key="evaluation.judge")
    return Evaluator(
        config=config,
        problems=problems,
        examples=examples,
        canaries=draw_canaries(
            examples, attacks, num_problems=options.max_canary_problems, seed=config.seed, domain=domain
        ),
        rule=rule,
        judge=open_judge(options.judge, config.seed, domain) if options.judge else None,
        ranks=ranks,
    )


def _hits(examples: Sequence[VerifyExample], right: Sequence[bool]) -> list[list[bool]]:
    """Hits by question, in the order in which questions first come."""
    by_question: dict[str, list[bool]] = {}
    for example, is_right in zip(examples, right, strict=True):
        by_question.setdefault(example.question, []).append(is_right)
    return list(by_question.values())
