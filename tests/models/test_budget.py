"""The budget of a step against FLOPs and bytes worked out by hand."""

from pathlib import Path

import pytest

from cooper_rl.__main__ import main
from cooper_rl.config.load import load
from cooper_rl.models.budget import Card, Load, Phase, Work, describe_budget, make_budget
from cooper_rl.models.completions import MAX_LOGITS
from cooper_rl.run.memory import make_work
from tests.models.test_memory_plan import SHAPE
from tests.test_presets_paper import QWEN

WORK = Work(
    num_problems=2, group_size=3, prompt_tokens=4, completion_tokens=10, num_drawn=4, num_pairs=2,
    is_checkpointed=False,
)  # fmt: skip
"""6 completions of 10 tokens: 60 drawn, and 2 * 4 + 60 = 68 through the layers."""


def budget(work: Work) -> dict[str, Phase]:
    return {phase.name: phase for phase in make_budget(SHAPE, SHAPE, work)}


def test_rollouts_read_all_weights_once_a_round_and_the_cache_for_every_token() -> None:
    """Layers 1,312 - 80 = 1,232 and head 80: 2 * 1,312 * 60 + 2 * 1,232 * 8 = 177,152; two rounds of 4 and 2
    make 20 passes over 2,624 bytes. 60 tokens see 4 + 5 each, 540: 4 * 8 * 2 FLOPs and 32 bytes of cache."""
    found = budget(WORK)["rollouts"]
    assert found.products == Load(177_152, 20 * 2 * 1312)
    assert found.attention == Load(540 * 64, 540 * 32)


def test_a_forward_pass_has_two_flops_for_each_weight_and_half_of_the_square_of_attention() -> None:
    """Layers 2 * 1,232 * 68, head 2 * 80 * 60; attention 2 * 8 * 2 * 6 rows * 14 * 14; states of 68 tokens of
    two layers of 336 bytes, written and read, and 16 for each of 600 logits. The reward has no head."""
    phases = budget(WORK)
    assert phases["reference policy"] == Phase(
        "reference policy", Load(167_552 + 9_600), Load(37_632), Load(bytes=2 * 68 * 672 + 9_600)
    )
    assert phases["reward"] == Phase("reward", Load(167_552), Load(37_632), Load(bytes=2 * 68 * 672))


def test_an_update_has_three_forwards_of_products_and_a_fourth_where_activations_are_recomputed() -> None:
    """Attention 3.5 and 4.5 times; passes 3 and 4 times; with so few logits the head is not made again."""
    kept, recomputed = (budget(WORK._replace(is_checkpointed=on))["policy update"] for on in (False, True))
    assert kept.products.flops == 3 * 167_552 + 3 * 9_600
    assert recomputed.products.flops == 4 * 167_552 + 3 * 9_600
    assert (kept.attention.flops, recomputed.attention.flops) == (3.5 * 37_632, 4.5 * 37_632)
    assert kept.passes.bytes == 3 * 2 * 68 * 672 + 2 * 9_600


def test_more_logits_than_a_chunk_go_through_the_head_once_more() -> None:
    length = MAX_LOGITS // 60 + 1
    found = budget(WORK._replace(completion_tokens=length))["policy update"]
    tokens = 6 * length
    assert found.products.flops == 3 * 2 * 1232 * (8 + tokens) + 4 * 2 * 80 * tokens


def test_a_pair_shares_its_beginning_and_the_optimisers_pass_over_all_weights() -> None:
    """2 pairs: 2 * (4 + 20) = 48 tokens, thrice 2 * 1,232. 32 * (1,304 + 1,312) + 6 * 1,304 bytes."""
    phases = budget(WORK)
    assert phases["reward update"].products.flops == 3 * 2 * 1232 * 48
    assert phases["optimisers, weights to the engine"].products == Load(bytes=91_536)


def test_a_rival_adds_an_answers_tokens_and_a_whole_row_of_attention() -> None:
    """5 rivals: 40 tokens for each of 6 completions, and of the 4 in 2 pairs; 6 rows for each."""
    plain, compared = budget(WORK), budget(WORK._replace(num_rivals=5))
    for name, passes, completions in (("reward", 1, 6), ("reward update", 3, 4)):
        added = compared[name].products.flops - plain[name].products.flops
        assert added == passes * 2 * 1232 * 40 * completions
        assert compared[name].attention.flops == 6 * plain[name].attention.flops
    assert compared["policy update"] == plain["policy update"]


def test_a_phase_takes_its_slower_side_and_the_usual_shares() -> None:
    """Peaks 10 and 10: floor 4 + 3; 40 / 6.5 + 30 / 5 + 16 / 8 = 14.15."""
    phase = Phase("some", Load(40, 20), Load(30, 0), Load(bytes=16))
    assert phase.floor(Card(10, 10)) == 7
    assert phase.estimated(Card(10, 10)) == pytest.approx(40 / 6.5 + 6 + 2)
    last = describe_budget([phase, phase], Card(10, 10)).splitlines()[-1]
    assert last.split() == ["together", "14.00", "28.31"]


def test_the_work_is_the_configurations() -> None:
    values = ["cooper.generation.max_new_tokens=1024"]
    expected = Work(64, 16, 100, 1024, 1024, 64, is_checkpointed=True, num_rivals=25)
    assert make_work(load("single_gpu", values), prompt_tokens=100) == expected
    frozen = [*values, "cooper.reward.update_verify_rm=false", "engine.kind=hf"]
    expected = expected._replace(num_pairs=0, num_drawn=128)
    assert make_work(load("single_gpu", frozen), prompt_tokens=100) == expected
    plain = [*frozen, "verify_rm.num_decoys=0"]
    assert make_work(load("single_gpu", plain), prompt_tokens=100) == expected._replace(num_rivals=0)


def test_plan_prints_the_table_of_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/how-to/gpu.md has the numbers of two models of Qwen2.5-1.5B's size."""
    (tmp_path / "config.json").write_text(QWEN)
    models = ["--policy", str(tmp_path), "--verify-rm", str(tmp_path)]
    given = ["--preset", "single_gpu", "--set", "cooper.generation.max_new_tokens=1024", "--seconds"]
    assert main(["plan", *models, *given]) == 0
    shown = capsys.readouterr().out
    assert "64 x 16 completions of 1024 tokens" in shown
    assert "estimated, not measured" in shown
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "gpu.md").read_text(encoding="utf-8")
    for line in shown.splitlines()[2:]:
        name, numbers = line[:34].strip(), line[34:].split()
        assert f"| {name} | {' | '.join(['', '', *numbers][-4:])} |" in page
