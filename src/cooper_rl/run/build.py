"""Builds the trainer of `train_cooper` from configuration and files: models, servers, gate and replay."""

import json
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch

from cooper_rl.checkpoints.state import TrainingState
from cooper_rl.config.cooper import CooperConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.config.root import Config
from cooper_rl.distributed.ranks import ALONE, Ranks
from cooper_rl.distributed.trainable import TRAINERS, Trainable
from cooper_rl.distributed.zero import SharedVerifyRM
from cooper_rl.domains.base import Domain
from cooper_rl.domains.open import find_domain
from cooper_rl.engines.open import open_engine
from cooper_rl.errors import ConfigError, DataError
from cooper_rl.method.questions import with_questions
from cooper_rl.models.completions import check_head
from cooper_rl.models.lora import adapter_weights, add_adapters, merged_weights
from cooper_rl.models.packed.forward import use_packed
from cooper_rl.models.policy import Policy, load_policy
from cooper_rl.models.precision import Compute, round_layers, round_weights, settle
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.randomness import derive_seed
from cooper_rl.records.files import read_records
from cooper_rl.records.model_set import read_models
from cooper_rl.redteam.negatives import read_attacks
from cooper_rl.run.memory import check_memory
from cooper_rl.schema.data import Problem, VerifyExample
from cooper_rl.schema.step_metrics import GateMetrics
from cooper_rl.servers.open import open_assistant, open_judge
from cooper_rl.storage.models import at_hand
from cooper_rl.training.gate import RewardGate, make_gate
from cooper_rl.training.optimizer import make_adamw, restore_optimizer
from cooper_rl.training.pair_queue import PairQueue
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.reward_learner import RewardLearner
from cooper_rl.training.rollout import begin_rollouts
from cooper_rl.training.rollout_queue import RolloutQueue, read_drawn
from cooper_rl.training.step import Trainer
from cooper_rl.verdicts.hybrid import Judge
from cooper_rl.verdicts.verifier import Verifier

logger = logging.getLogger(__name__)


class SideData(NamedTuple):
    """Data that is read beside the problems; each is empty where no file was given."""

    replay: Sequence[VerifyExample]
    examples: Sequence[VerifyExample]
    held_out: Sequence[Problem]
    test: Sequence[VerifyExample] = ()
    attacks: Sequence[str] = ()
    """Texts of the red team."""

    @property
    def evaluated(self) -> Iterator[Problem | VerifyExample]:
        """Rows whose questions are evaluated on, while training goes on or later."""
        return chain(self.examples, self.held_out, self.test)


def read_side_data(
    config: Config,
    *,
    replay: Path | None,
    examples: Path | None,
    held_out: Path | None,
    test: Path | None,
    attacks: Path | None,
) -> SideData:
    """Read what the configuration needs.

    Raises:
        ConfigError: an option needs a file that was not given.
        DataError: a file is missing or malformed, or replayed questions are evaluated on.
    """
    cooper = config.cooper
    asks_for_replay = (
        "num_replay_examples" in cooper.reward.model_fields_set and cooper.reward.num_replay_examples > 0
    )
    for is_needed, path, option, key in (
        (asks_for_replay and cooper.trains_verify_rm, replay, "replay", "reward.num_replay_examples=0"),
        (cooper.gate is not None and cooper.trains_verify_rm, examples, "examples", "gate=null"),
        (cooper.evaluate_every is not None, held_out, "held-out", "evaluate_every=null"),
        (cooper.evaluate_every is not None, examples, "examples", "evaluate_every=null"),
        (
            cooper.trains_verify_rm and cooper.pairs.negatives.red_team > 0,
            attacks,
            "attacks",
            "pairs.negatives.red_team=0",
        ),
    ):
        if is_needed and path is None:
            raise ConfigError(f"--{option} is missing, which this configuration needs; or set cooper.{key}")
    data = SideData(
        replay=read_records(replay, VerifyExample) if replay else (),
        examples=read_records(examples, VerifyExample) if examples else (),
        held_out=read_records(held_out, Problem) if held_out else (),
        test=read_records(test, VerifyExample) if test else (),
        attacks=read_attacks(attacks),
    )
    shared = {row.question for row in with_questions(data.replay, data.evaluated)}
    if shared:
        raise DataError(
            f"{replay}: {len(shared)} of its questions are evaluated on, e.g. "
            f"{min(shared)[:80]!r}; replay examples of other questions"
        )
    return data


def make_trainer(
    config: Config,
    state: TrainingState,
    problems: Sequence[Problem],
    data: SideData,
    stack: ExitStack,
    *,
    models: Path,
    place: str,
    ranks: Ranks = ALONE,
) -> Trainer:
    """Everything that steps use; the stack closes what must be closed.

    Of several ranks, the first one's state is what all train from.

    Raises:
        ConfigError: the engine cannot be started as configured, the models do not fit on the GPU, or
            adapters belong to other models.
        ModelError: the reference policy cannot be loaded or trained, or the optimisers' state does not fit.
        TrainingError: VerifyRM's score is not finite.
    """
    cooper = config.cooper
    state = _with_precision(state, cooper.precision)
    check_memory(config, policy=state.policy.model, verify_rm=state.verify_rm.model, num_processes=ranks.size)
    name = at_hand(config.storage, read_models(models).policy)
    reference = load_policy(
        name, device=state.policy.device, is_trained=False, prompt_template=config.prompt_template
    )
    use_packed(reference.model, is_on=config.packed_forward)
    check_head(reference)
    reference = replace(reference, compute=state.policy.compute)
    anchors = _draw_anchors(config, reference, problems)
    drawing = state.policy  # what the engine draws with
    if cooper.policy.lora is not None:
        # The adapted model is the reference, without its adapters; the engine has the other one.
        seed = derive_seed(config.seed, "adapters")
        add_adapters(reference.model, rank=cooper.policy.lora.rank, alpha=cooper.policy.lora.alpha, seed=seed)
        state = replace(state, policy=replace(state.policy, model=reference.model))
        reference = replace(reference, is_bare=True)
    trained = _make_trained(config, state, ranks, place=place)
    policy, verify_rm = trained.policy, trained.verify_rm
    if policy.model.dtype == torch.bfloat16:
        round_weights(reference.model)
    elif reference.compute == "bfloat16" and not reference.is_bare:
        # Not with adapters: the policy's own weights are these.
        round_layers(reference.model)
    with trained.policy_optimizer.gather():
        if cooper.policy.lora is not None and ranks.is_first:
            _check_merged(policy, drawing, place=place)
        engine = stack.enter_context(closing(open_engine(drawing, config.engine)))
        if cooper.policy.lora is not None and not ranks.is_first:
            engine.load_weights(policy.weights())  # the first one's, which may be a checkpoint's
    if cooper.policy.lora is not None and (config.engine.has_copy or drawing.compute == "bfloat16"):
        drawing.model.cpu()  # the engine has a copy, and checkpoints are written from here
    domain = find_domain(config.problems.domain)
    rule = stack.enter_context(closing(domain.open_verifier(config.labeling.rule, num_processes=ranks.size)))
    judge = open_judge(cooper.judge, config.seed, domain) if cooper.judge else None
    pairs = None
    if cooper.trains_verify_rm:
        pairs = stack.enter_context(_make_pairs(cooper, state, data, rule, judge, domain, ranks))
    seed = config.seed if cooper.seed is None else cooper.seed
    reward = RewardLearner(
        verify_rm=verify_rm,
        optimizer=trained.verify_rm_optimizer,
        rule=rule,
        judge=judge,
        pairs=pairs,
        gate=_make_gate(config, verify_rm, state.run.gate_starts, data),
        anchors=anchors,
        replay=data.replay,
        domain=domain,
        config=cooper,
        seed=seed,
    )
    return Trainer(
        policy=policy,
        reference=reference,
        engine=engine,
        policy_optimizer=trained.policy_optimizer,
        reward=reward,
        config=cooper,
        instruction=config.instruction,
        seed=seed,
        pool=problems,
        rollouts=_make_rollouts(config, state, policy, ranks),
    )


def _make_rollouts(config: Config, state: TrainingState, policy: Policy, ranks: Ranks) -> RolloutQueue:
    # The first rank has read the checkpoint; all of them learn from what it holds.
    steps = ranks.first(lambda: state.drawn)
    sampling = _describe_sampling(config)
    pending = read_drawn(
        steps,
        policy,
        instruction=config.instruction,
        group_size=config.cooper.group_size,
        sampling=sampling,
    )
    if len(pending) < len(steps):
        logger.info(
            "%d steps that were drawn ahead are drawn anew: with other settings now",
            len(steps) - len(pending),
        )
    return RolloutQueue(pending, sampling=sampling)


def _describe_sampling(config: Config) -> str:
    generation = config.cooper.generation.model_dump(mode="json", exclude={"batch_size"})
    return json.dumps(generation | config.engine.model_dump(mode="json", include={"kind", "dtype"}))


def _check_merged(policy: Policy, saved: Policy, *, place: str) -> None:
    """Refuse adapters that do not make the saved policy of the frozen weights.

    Raises:
        ConfigError: other frozen weights, or another scale.
    """
    expected = saved.model.state_dict()
    for name, tensor in merged_weights(policy.model):
        if not torch.allclose(tensor, expected[name].to(tensor.device), rtol=1e-4, atol=1e-6):
            raise ConfigError(
                f"{place}: with its adapters, --models does not give the policy that was saved with them "
                f"({name} differs): use the --models and the cooper.policy.lora.alpha of its training"
            )


def _make_pairs(
    cooper: CooperConfig,
    state: TrainingState,
    data: SideData,
    rule: Verifier,
    judge: Judge | None,
    domain: Domain,
    ranks: Ranks,
) -> PairQueue:
    assistant = open_assistant(cooper.pairs.assistant, domain) if cooper.pairs.assistant else None
    maker = PairMaker(cooper, rule, assistant, judge, domain, data.attacks)
    return PairQueue(maker, max_staleness=cooper.pairs.max_staleness, pending=state.pending, ranks=ranks)


class _Trained(NamedTuple):
    """Both models with what steps them."""

    policy: Policy
    verify_rm: VerifyRM
    policy_optimizer: Trainable
    verify_rm_optimizer: Trainable


def _with_precision(state: TrainingState, precision: Compute) -> TrainingState:
    """The state with the types of its passes. A run settles them when it finds where it stands."""
    policy, verify_rm = state.policy, state.verify_rm
    if policy.compute == "auto":
        policy = replace(policy, compute=settle(policy.model, precision))
    if verify_rm.compute == "auto":
        verify_rm = replace(verify_rm, compute=settle(verify_rm.model, precision))
    return replace(state, policy=policy, verify_rm=verify_rm)


def _make_trained(config: Config, state: TrainingState, ranks: Ranks, *, place: str) -> _Trained:
    """Both models as the state holds them; divided over the ranks if the configuration says so."""
    cooper = config.cooper
    policy, verify_rm = state.policy, state.verify_rm
    is_offloaded = config.distributed.offload_optimizer
    policy_adamw = make_adamw(
        policy.model,
        lr=cooper.policy.lr,
        weight_decay=cooper.policy.weight_decay,
        is_offloaded=is_offloaded,
    )
    verify_rm_adamw = make_adamw(
        verify_rm.model,
        lr=cooper.reward.lr,
        weight_decay=cooper.reward.weight_decay,
        is_offloaded=is_offloaded,
    )
    trainer = config.distributed.trainer_name
    policy_optimizer, verify_rm_optimizer = (
        TRAINERS[trainer](
            each.model,
            adamw,
            config=config.distributed,
            is_bfloat16=each.compute == "bfloat16" and not adapter_weights(each.model),
            max_grad_norm=cooper.max_grad_norm,
            ranks=ranks,
        )
        for each, adamw in ((policy, policy_adamw), (verify_rm, verify_rm_adamw))
    )
    if trainer != "single":
        # Its weights may be whole in a gather block alone, and other ranks may score a share.
        verify_rm = SharedVerifyRM(
            verify_rm.model, verify_rm.tokenizer, verify_rm.compute, optimizer=verify_rm_optimizer
        )
    restore_optimizer(policy.model, policy_optimizer, state.policy_optimizer, place=place)
    restore_optimizer(verify_rm.model, verify_rm_optimizer, state.verify_rm_optimizer, place=place)
    return _Trained(policy, verify_rm, policy_optimizer, verify_rm_optimizer)


def _draw_anchors(config: Config, reference: Policy, problems: Sequence[Problem]) -> list[VerifyItem]:
    """The starting policy's completions of some problems: the same whenever a run is continued."""
    monitor = config.cooper.active_monitor
    if monitor is None:
        return []
    seed = derive_seed(config.seed, "anchors")
    wait = begin_rollouts(
        open_engine(reference, EngineConfig()),
        reference,
        random.Random(seed).sample(list(problems), min(monitor.num_anchors, len(problems))),
        config.cooper.generation,
        group_size=1,
        instruction=config.instruction,
        seed=seed,
    )
    groups = wait()
    return [
        VerifyItem(each.problem.question, each.problem.reference_answer, each.texts[0]) for each in groups
    ]


def _make_gate(
    config: Config, verify_rm: VerifyRM, starts: Sequence[GateMetrics], data: SideData
) -> RewardGate | None:
    gate = config.cooper.gate
    if gate is None or not config.cooper.trains_verify_rm:
        return None
    return make_gate(
        gate,
        verify_rm,
        data.examples,
        seed=config.seed,
        starts=starts,
        domain=find_domain(config.problems.domain),
        attacks=data.attacks,
    )
