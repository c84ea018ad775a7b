"""What the released code gets wrong, each fault with a test that fails if it came back.

Places are files and lines of ZJU-REAL/Cooper at 44679eb. Faults that other tests keep out already stand with
these in the table of `docs/concepts/paper_index.md`; the last test here holds the table to the tests.
"""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForSequenceClassification

from cooper_rl.config.cooper import AdvantagesConfig
from cooper_rl.config.models import VerifyRMConfig
from cooper_rl.engines.base import Generation
from cooper_rl.method.shortcuts import shortcut_auroc
from cooper_rl.models.verify_rm import VerifyItem, VerifyRM, load_verify_rm, new_verify_rm, save_verify_rm
from cooper_rl.negatives.pairs import RewriteItem
from cooper_rl.schema.data import PreferencePair, Problem, VerifyExample
from cooper_rl.tiny.assistant import TinyAssistant
from cooper_rl.tiny.problems import generate_problems
from cooper_rl.training.fitting.fit_verify_rm import fit_verify_rm
from cooper_rl.training.optimizer import make_adamw
from cooper_rl.training.pairing import PairMaker
from cooper_rl.training.policy_update import update_policy
from cooper_rl.training.reward_update import update_verify_rm
from cooper_rl.training.rollout import RolloutGroup
from cooper_rl.training.step import Trainer, run_step
from tests.cooper_config import cooper_config
from tests.training.scripted import scripted_trainer

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


class ScriptedAssistant:
    """Writes the same text against every positive."""

    name = "scripted"

    def __init__(self, text: str) -> None:
        self.text = text

    def rewrite(self, items, *, seed):
        return [self.text for _ in items]


def make_trainer(make_policy, make_verify_rm, rule, script, assistant, **values) -> Trainer:
    """A trainer whose engine writes `script[problem]`, uncut texts with an end token."""
    rates = {"reward__lr": 1e-3, "reward__weight_decay": 0, "policy__weight_decay": 0}
    config = cooper_config(**({"group_size": 2} | rates | values))
    return scripted_trainer(make_policy, make_verify_rm(0), PairMaker(config, rule, assistant, None), script)


def problem_of(name: str, reference_answer: str) -> Problem:
    question = f"Tom has 7 apples. {name}?"
    return Problem(id=name, source="t", question=question, reference_answer=reference_answer)


def pair_of(positive: str, negative: str) -> PreferencePair:
    return PreferencePair(
        step=1, problem_id="a", question="Tom has 7 apples.", reference_answer="7",
        positive=positive, negative=negative, source="t",
    )  # fmt: skip


def update_on(verify_rm: VerifyRM, pairs: list[PreferencePair], *, lr: float):
    optimizer = make_adamw(verify_rm.model, lr=lr, weight_decay=0.0)
    config = cooper_config()
    return update_verify_rm(verify_rm, optimizer, pairs, config=config)


@pytest.mark.parametrize("folder", ["src/cooper_rl", "components", "pipelines"])
def test_no_module_imports_one_that_is_not_there(folder: str) -> None:
    """The release's entry point imports a module that is not in its tree, so that it cannot start."""
    missing = [
        f"{path}: {name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in _own_imports(path)
        if importlib.util.find_spec(name) is None
    ]
    assert missing == []


def _own_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {name for name in names if name.split(".")[0] in ("cooper_rl", "components", "pipelines")}
    return found


def test_positive_and_negative_are_not_rendered_differently(make_verify_rm) -> None:
    """The release renders negatives through a chat template, with an extra newline, and positives not.

    Two halves of one text have one logit: the loss is ln 2 = .693147 and there is no gradient.
    """
    update = update_on(make_verify_rm(0), [pair_of("The answer is 7.", "The answer is 7.")], lr=1e-3)
    assert update.loss == pytest.approx(0.693147, abs=1e-6)
    assert update.grad_norm < 1e-5  # rounding of two backward passes that cancel


@pytest.mark.parametrize(("ending", "is_leak"), [("", False), ("\n", True)])
def test_the_shortcut_probe_sees_no_leak_in_the_laptops_pairs(ending: str, is_leak: bool) -> None:
    """The release's newline would be found at once; the assistant's negatives look like the positives."""
    items = [
        RewriteItem(p.id, p.question, "1", f"9+{n}={n + 9};{n + 9}+8={n + 17}. #### {n + 17}")
        for n, p in zip([*range(50)] * 3, generate_problems(150, 0), strict=True)
    ]
    rewrites = TinyAssistant().rewrite(items, seed=0)
    pairs = [(item, text) for item, text in zip(items, rewrites, strict=True) if text is not None]
    assert len(pairs) > 100
    examples = [
        VerifyExample(question=item.question, reference_answer="1", completion=half, label=label)
        for item, text in pairs
        for half, label in ((item.solution, 1), (text + ending, 0))
    ]
    found = shortcut_auroc(examples)
    assert found is not None
    assert found > 0.95 if is_leak else found < 0.65


@pytest.mark.parametrize(("positive", "rewrite"), [("0.458", "27/59"), ("27/59", "0.458")])
def test_a_negative_is_not_checked_against_the_positive_nor_with_gold_and_answer_swapped(
    make_policy, make_verify_rm, rule, positive: str, rewrite: str
) -> None:
    """collaborate.py:319: `verify(negative, positive)`, although `verify` is asymmetric.

    27/59 = .45763 rounds to the reference answer .458, so all these texts are right and none is a negative.
    With 27/59 as the gold answer .458 is wrong: swapped, the first case gives a pair; checked against the
    positive, the second does.
    """
    script = {problem_of("a", "0.458"): [f"#### {positive}"]}
    trainer = make_trainer(make_policy, make_verify_rm, rule, script, ScriptedAssistant(f"#### {rewrite}"))
    result = run_step(trainer, 1, list(script))
    assert result.metrics.pairs.positives == 1
    assert result.pairs == []


def test_a_rewrite_without_a_readable_answer_is_not_taken_for_a_wrong_one(
    make_policy, make_verify_rm, rule
) -> None:
    """collaborate.py:319: an empty parse equals nothing, so it counts as a wrong answer."""
    script = {problem_of("a", "10"): ["5*2=10. #### 10"]}
    trainer = make_trainer(make_policy, make_verify_rm, rule, script, ScriptedAssistant("The answer is ten."))
    result = run_step(trainer, 1, list(script))
    assert result.metrics.pairs.positives == 1
    assert result.pairs == []


def test_verify_rms_weights_are_not_stepped_in_bf16(make_verify_rm, tmp_path: Path) -> None:
    """The release steps bf16 weights: at lr 1e-5 one update changes 10-16 % of them."""
    stored = make_verify_rm(0)
    stored.model.to(torch.bfloat16)
    save_verify_rm(stored, tmp_path / "rm")
    verify_rm = load_verify_rm(tmp_path / "rm", device=CPU)
    weight = verify_rm.model.model.layers[0].mlp.up_proj.weight
    before = weight.detach().clone()
    update_on(verify_rm, [pair_of("The answer is 7.", "It is 9. The answer is 9.")], lr=1e-5)
    assert weight.dtype == torch.float32
    assert (weight != before).float().mean() > 0.99


def test_the_configured_floor_stops_near_ties_from_becoming_full_advantages(
    make_policy, make_verify_rm, rule
) -> None:
    """The release divides by std + 1e-6: any two scores that differ become -+.707."""
    script = {problem_of("a", "10"): ["#### 10", "#### 12"]}
    absolute = {}
    for floor in (1e-9, 1e6):
        assistant = ScriptedAssistant("#### 9")
        trainer = make_trainer(
            make_policy, make_verify_rm, rule, script, assistant, advantages__std_floor=floor
        )
        absolute[floor] = run_step(trainer, 1, list(script)).metrics.rollout.abs_advantage
    assert absolute[1e-9] == pytest.approx(0.5**0.5, abs=1e-3)
    assert absolute[1e6] < 1e-6
    assert AdvantagesConfig().std_floor == 0.05


def test_a_backbone_without_a_padding_token_does_not_fail_on_batches_over_one(
    make_verify_rm, tmp_path: Path
) -> None:
    """The release never sets `pad_token_id`: Qwen classifiers refuse batches. Here padding is forced."""
    tokenizer = make_verify_rm(0).tokenizer
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=4, use_sliding_window=True, sliding_window=64,
        max_window_layers=0, num_labels=1, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    tokenizer.pad_token = None
    torch.manual_seed(0)
    made = new_verify_rm(Qwen2ForSequenceClassification(config).eval(), tokenizer, reads_added_words=True)
    save_verify_rm(made, tmp_path / "rm")
    verify_rm = load_verify_rm(tmp_path / "rm", device=CPU)
    items = [VerifyItem("Tom has 7 apples.", "7", "7."), VerifyItem("Ann?", "16", "7+9=16. It is 16.")]
    ids = verify_rm.encode(items)
    together = verify_rm.logits(ids)
    apart = torch.cat([verify_rm.logits([one]) for one in ids])
    torch.testing.assert_close(together, apart, atol=1e-6, rtol=1e-5)


def test_a_step_without_pairs_does_no_forward_pass(make_verify_rm) -> None:
    """The release sends masked pairs through forward and backward, then steps the optimiser."""
    verify_rm = make_verify_rm(0)
    passes = []
    verify_rm.model.score.register_forward_hook(lambda *_: passes.append(1))
    assert update_on(verify_rm, [], lr=1e-3) is None
    assert passes == []
    update_on(verify_rm, [pair_of("7", "8")], lr=1e-3)
    assert passes == [1]


def test_no_order_comes_from_a_set(make_policy, make_verify_rm, rule) -> None:
    """collaborate.py:38, :58. Six problems; the pairs stand in the order of their ids."""
    script = {problem_of(name, "10"): ["#### 10"] for name in "dfbeac"}
    trainer = make_trainer(make_policy, make_verify_rm, rule, script, ScriptedAssistant("#### 9"))
    result = run_step(trainer, 1, list(script))
    assert [pair.problem_id for pair in result.pairs] == list("abcdef")


def test_the_last_token_of_a_cut_completion_is_not_dropped(make_policy, make_verify_rm, rule) -> None:
    """collaborate.py:127 takes it for the end token. Without the last digit the answer 10 would read 1."""
    policy = make_policy(0)
    limit = len(policy.tokenizer("#### 10")["input_ids"])
    script = {problem_of("a", "10"): ["#### 10 apples"]}
    trainer = make_trainer(
        make_policy, make_verify_rm, rule, script, ScriptedAssistant("#### 9"),
        generation={"max_new_tokens": limit},
    )  # fmt: skip
    result = run_step(trainer, 1, list(script))
    assert result.metrics.rollout.cut_fraction == 1.0
    assert result.metrics.rollout.tokens == 2 * limit
    assert {sample.completion for sample in result.rollouts} == {"#### 10"}
    assert result.metrics.rollout.rule_unparsable == 1.0  # 10 may be the beginning of 100


def test_the_loss_counts_the_last_token_of_a_cut_completion(make_policy) -> None:
    """Advantages 1 and -1, lengths 1 and 3, cut, no KL: the loss is (-1 + 3) / 4 = .5."""
    policy = make_policy(0)
    made = tuple(Generation(ids, (0.0,) * len(ids), "length") for ids in ((20,), (21, 22, 23)))
    prompt = tuple(policy.encode_prompt("Tom?", None))
    group = RolloutGroup(problem_of("a", "1"), prompt, made, ("", ""))
    config = cooper_config(**({"group_size": 2, "policy__kl_coefficient": 0.0}))
    optimizer = make_adamw(policy.model, lr=1e-3, weight_decay=0.0)
    found = update_policy(
        policy, make_policy(0), optimizer, [group], torch.tensor([1.0, -1.0]), config=config
    )
    assert found.loss == pytest.approx(0.5, abs=1e-6)


def test_the_template_is_not_written_twice() -> None:
    """train_VerifyRM/train.py:37, recipe/cooper/fsdp_workers.py:63. The paper's tags are an attack here."""
    sources = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for folder in ("src", "components", "pipelines")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }
    assert [path for path, text in sources.items() if "<reference_answer>" in text] == [
        "src/cooper_rl/negatives/text_attacks.py",
        "src/cooper_rl/redteam/library.py",
    ]
    assert [
        path for path, text in sources.items() if "cut_field(" in text and "def cut_field(" not in text
    ] == [
        "src/cooper_rl/domains/programs.py",  # of a completion, the program
        "src/cooper_rl/models/template.py",
    ]
    assert [
        path for path, text in sources.items() if "cut_fields(" in text and "def cut_fields" not in text
    ] == ["src/cooper_rl/stages/train_verify_rm.py"], "a tokenizer's training texts"


def test_training_does_not_render_otherwise_than_scoring(make_verify_rm) -> None:
    """One template: the loss of the first update is the mean of -log of what scoring gives to the label."""
    verify_rm = make_verify_rm(0)
    examples = [
        VerifyExample(question="Tom?", reference_answer="7", completion=text, label=label)
        for text, label in (("The answer is 7.", 1), ("It is 9.\n", 0))
    ]
    right, wrong = verify_rm.score([VerifyItem("Tom?", "7", e.completion) for e in examples])
    expected = -(torch.tensor(right).log() + torch.tensor(1 - wrong).log()).item() / 2
    fit = fit_verify_rm(verify_rm, examples, config=VerifyRMConfig(num_epochs=1, lr=1e-9), seed=0)
    assert fit.final_loss == pytest.approx(expected, abs=1e-6)


def test_no_second_limit_counts_tokens(make_verify_rm) -> None:
    """train_VerifyRM/train.py:38 filters by 8000 characters, :43 truncates at 8192 tokens.

    Here 1500 characters of each field count: digits and signs are over 1024 tokens, letters far fewer.
    """
    verify_rm = make_verify_rm(0)
    dense, sparse = "7+5-" * 375, ("apples " * 300)[:1500]
    encoded = verify_rm.encode([VerifyItem("Tom?", "7", text) for text in (dense, sparse)])
    assert len(encoded[0]) > 1024 > 2 * len(encoded[1])
    for ids, text in zip(encoded, (dense, sparse), strict=True):
        assert verify_rm.template.decode(ids) == (("Tom?",), ("7",), (text,))


def test_a_sequence_is_not_padded_to_the_longest_of_the_step(make_policy) -> None:
    """The release pads every sequence to the maximum. Here a token that predicts another is computed once."""
    policy = make_policy(0)
    made = tuple(Generation(ids, (0.0,) * len(ids), "length") for ids in ((20,), tuple(range(21, 61))))
    prompt = tuple(policy.encode_prompt("Tom?", None))
    group = RolloutGroup(problem_of("a", "1"), prompt, made, ("", ""))
    config = cooper_config(**({"group_size": 2, "policy__kl_coefficient": 0.0}))
    sizes = []
    policy.model.get_input_embeddings().register_forward_hook(
        lambda _, inputs, __: sizes.append(inputs[0].numel())
    )
    optimizer = make_adamw(policy.model, lr=1e-3, weight_decay=0.0)
    update_policy(policy, make_policy(0), optimizer, [group], torch.tensor([1.0, -1.0]), config=config)
    assert sizes == [len(prompt) + 39]


def test_the_index_of_faults_names_tests_that_exist() -> None:
    """Every `tests/...py::test_name` in docs/concepts/paper_index.md."""
    text = (ROOT / "docs" / "concepts" / "paper_index.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) >= 20
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path}::{name}"
