"""The paper's recipe as a preset: the published numbers, and a source beside every value."""

from importlib import resources

from cooper_rl.config.load import load


def test_the_published_numbers_are_the_papers() -> None:
    """METHOD: lr 2e-5, decay .01, 3 epochs; policy 1e-6, clip .2, KL 1e-3; reward update 1e-5; .7/.95/8."""
    config = load("paper")
    assert (config.verify_rm.lr, config.verify_rm.weight_decay, config.verify_rm.num_epochs) == (
        2e-5,
        0.01,
        3,
    )
    assert config.models.backbone == "Qwen/Qwen2.5-Math-1.5B-Instruct"
    cooper = config.cooper
    assert (cooper.policy_lr, cooper.clip_epsilon, cooper.kl_coefficient) == (1e-6, 0.2, 1e-3)
    assert (cooper.verify_rm_lr, cooper.group_size, cooper.steps) == (1e-5, 16, 180)
    evaluation = config.evaluation
    assert (evaluation.generation.temperature, evaluation.generation.top_p) == (0.7, 0.95)
    assert evaluation.samples_per_problem == 8


def test_every_value_of_the_paper_preset_has_its_source() -> None:
    text = (resources.files("cooper_rl") / "presets" / "paper.toml").read_text()
    values = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    assert len(values) > 25
    without = [line for line in values if "# " not in line]
    assert all(line.startswith(("reward", "update_verify_rm", "base_url")) for line in without)
