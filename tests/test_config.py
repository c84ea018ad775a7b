"""Configuration: every preset loads, every mistake is named with a way out."""

import json
from operator import attrgetter
from pathlib import Path

import pytest
from pydantic import BaseModel

from cooper_rl.config.load import load, preset_names, section_of
from cooper_rl.config.root import Config
from cooper_rl.config.serve import LearnConfig, ServeConfig
from cooper_rl.errors import ConfigError


@pytest.mark.parametrize("preset", preset_names())
def test_every_shipped_preset_is_valid(preset: str) -> None:
    assert load(preset).cooper.steps >= 1


def test_defaults_yield_to_the_preset_and_the_preset_to_overrides(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'models = { policy = "p", backbone = "b" }\nproblems = { sources = ["x.jsonl"], num_held_out = 5 }\n'
        "cooper = { reward.kind = 'rule', steps = 7 }\n"
    )
    assert load(str(path)).cooper.group_size == 8
    assert load(str(path)).cooper.steps == 7
    assert load(str(path), ["cooper.steps=9"]).cooper.steps == 9


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("cooper.policy.lr=0.5", 0.5),
        ("cooper.policy.lr = 1e-4", 1e-4),
        ("cooper.reward.kind=rule", "rule"),
        ('cooper.reward.kind="rule"', "rule"),
        ("cooper.reward.update_verify_rm=false", False),
    ],
)
def test_an_override_is_a_toml_value_or_plain_text(override: str, value: object) -> None:
    name = override.partition("=")[0].strip().removeprefix("cooper.")
    assert attrgetter(name)(load("laptop", [override]).cooper) == value


def test_null_turns_off_what_the_preset_or_the_default_has() -> None:
    config = load("laptop")
    assert config.evaluation.judge is not None
    assert config.cooper.monitor is not None
    config = load("laptop", ["evaluation.judge=null", "cooper.monitor=null"])
    assert config.evaluation.judge is None
    assert config.cooper.monitor is None
    again = load("laptop", ["cooper.monitor=null", "cooper.monitor.window=4"]).cooper.monitor
    assert again is not None
    assert again.window == 4


def test_null_takes_an_entry_out_of_a_table() -> None:
    tiny = load("laptop", ["models.tiny.samplers.small=null"]).models.tiny
    assert tiny is not None
    assert tiny.samplers == {}
    assert load("laptop", ["launch.environment.NOT_THERE=null"]).launch.environment == {}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cooper.steps=null", r"cooper\.steps: .*valid integer \(found null\)"),
        ("cooper.stps=2", r"cooper\.stps: unknown key; did you mean 'steps'\?"),
        ("zz=1", "zz: unknown key; known here: cooper, distributed, engine, evaluation"),
        (f"seed={2**63}", r"seed: Input should be less than 9223372036854775808"),
        ("cooper.reward.kind=foo", r"cooper\.reward\.kind: Input should be .* \(found \"foo\"\)"),
        ("cooper.steps=many", r"cooper\.steps: .*integer.* \(found \"many\"\)"),
        ("cooper.group_size=1", "greater than or equal to 2"),
        ("cooper.pairs.assistant=null", r"cooper\.reward\.update_verify_rm needs cooper\.pairs\.assistant"),
        ("cooper.policy.updates_per_step=3", "must be a multiple of"),
        ("cooper.generation.temperature=0", "makes all rollouts of a group equal"),
        (
            "cooper.policy.loss=ppo",
            r"policy\.loss=ppo: use one of grpo, gspo, cispo, or register a part",
        ),
        ("cooper.advantages.estimator=gae", r"cooper\.advantages\.estimator=gae: use one of grpo, rloo, or"),
        (
            "cooper.policy.loss=gspo",
            r"gspo with loss_aggregation=token_mean .*: set .*=sequence_mean",
        ),
        (
            "cooper.advantages.estimator=rloo",
            r"divided by the standard .*: set .*\.scale=none",
        ),
        (
            "cooper.reward.overlong_buffer_tokens=65",
            r"=65 is more than .*\.max_new_tokens=64",
        ),
        ("problems.sources=/data/x.jsonl", r'write a list: \["a", "b"\] \(found "/data/x.jsonl"\)'),
        ("cooper.generation.top_p=0.9", "only top_p=1 keeps"),
        ("sampling.generation.temperature=1e-40", "write 0 for greedy, or 1e-06 or more"),
        ("sampling.generation.top_p=1e-46", "greater than or equal to 0.000001"),
        ("models.policy=x", r"models\.tiny excludes models\.policy"),
        ("models.tiny=null", r"set models\.policy and models\.backbone, or models\.tiny"),
        ("problems.num_tiny=0", "no problems: set problems.sources or problems.num_tiny"),
        ("problems.num_held_out=0", "nothing to evaluate on"),
        ("storage.run_key=../x", r"storage\.run_key: use 1 to 100 letters"),
        ("storage.uri=", r"storage\.uri: .*at least 1 character"),
        ("registry.uri=", r"registry\.uri: .*at least 1 character"),
        ("storage.uri=s3://b/p", r"storage\.uri=s3://\.\.\. needs storage\.endpoint"),
        ("labeling.judge={}", "set exactly one of server and tiny_error_rate"),
        (
            "labeling.third_vote.judge.tiny_error_rate=0.02",
            r"labeling\.third_vote\.judge is labeling\.judge again \(the laptop's, tiny_error_rate=0\.02\)",
        ),
        (
            'labeling.judge={ server = { base_url = "http://j/v1", model = "m", max_cost = 2 } }',
            r"both price_per_million_prompt_tokens and .* \(now None and None\): set both, or leave",
        ),
        (
            "labeling={ other_judges = [{ tiny_error_rate = 0.5 }] }",
            "labeling.other_judges needs labeling.judge",
        ),
        (
            "labeling.other_judges=[{ tiny_error_rate = 0.02 }]",
            r"labeling\.other_judges\[0\] is labeling\.judge again",
        ),
        ("cooper.pairs.assistant={}", "set exactly one of server and tiny"),
        ("sampling.temperatures.early=-1", r"sampling\.temperatures\.early: .*greater than or equal to 0"),
        ("sampling.generation.temperature=inf", "finite number"),
        ("seed=" + 5000 * "9", r"seed: .*integer"),
        ("cooper.steps=true", r"cooper\.steps: Value error, is a number, and true is none"),
        ("cooper.evaluate_every=true", r"cooper\.evaluate_every: .* true is none"),
        (
            "launch.queue=My_Queue",
            r"launch\.queue: Value error, is no name of a queue: use .*found \"My_Queue\"",
        ),
        ("engine.devices=[true]", r"engine\.devices: .*is a number, and true is none"),
        ("verify_rm.answer_spans=[30, true]", r"answer_spans: .*is a number, and true is none"),
        ('launch.memory="120"', r"launch\.memory: .*is 120 bytes, in which no task can work: write its unit"),
        ("launch.cpu=0", r"launch\.cpu: .*is no number of CPUs that a task can have: write more than 0"),
        ("launch.image=registry.lan/Cooper:1", r"launch\.image: .*is no reference to an image: write"),
        ('launch.secrets=["Certs"]', r"launch\.secrets\.0: .*is no name of a Kubernetes object: use"),
        ('launch.environment={ "MY VAR"="1" }', r"environment.*is no name of an environment variable: use"),
        ("storage.uri=~/checkpoints", r"storage\.uri: .*~ is not read as your home folder here"),
        ("registry.uri=~/registry", r"registry\.uri: .*write the whole path"),
        ("storage.uri=s3:/bucket/runs", r"storage\.uri: .*in an object store is s3://bucket/prefix"),
        ("registry.uri=S3://bucket/runs", r"registry\.uri: .*is s3://bucket/prefix, in small letters"),
        ("storage.uri=s3:///runs", r"storage\.uri: .*is s3://bucket/prefix"),
        ("storage.run_key=2026-01-01", r"storage\.run_key: .*write it in quotes: .*'\"2026-01-01\"'"),
        ("launch.environment.THREADS=1", r"THREADS: .*write it in quotes: .*THREADS='\"1\"'"),
        (
            "launch.node_selector.kubernetes.io/arch=amd64",
            r"names that hold dots as a table: launch\.node_selector=\{\"a\.b\"=\"c\"\}",
        ),
        ("storage.retry_seconds=1e300", r"storage\.retry_seconds: .*write at most 1209600 .*found 1e\+300"),
        ("launch.poll_seconds=inf", r"launch\.poll_seconds: .*finite number"),
        ("labeling.rule.timeout_seconds=1209601", r"labeling\.rule\.timeout_seconds: .*at most 1209600"),
        ("cooper.steps.x=1", "'steps' is a value, not a section"),
        ("cooper.steps", "is not dotted.key=value"),
        ("=1", "is not dotted.key=value"),
    ],
)
def test_a_wrong_override_is_named_with_a_way_out(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("laptop", [override])


def test_a_judge_at_the_same_address_is_refused_as_its_own_second_opinion() -> None:
    def server(url: str, model: str) -> str:
        return f'{{ server = {{ base_url = "{url}", model = "{model}" }} }}'

    def load_with(second: str) -> None:
        first = server("http://me:hunter2@judge:8000/v1", "m")
        load("laptop", [f"labeling.judge={first}", f"labeling.third_vote={{ judge = {second} }}"])

    with pytest.raises(
        ConfigError, match=r"again \(model 'm' at http://\*\*\*@judge:8000/v1\), and a voter"
    ) as e:
        load_with(server("http://me:hunter2@Judge:8000/v1/", "m"))
    assert "hunter2" not in str(e.value)
    load_with(server("http://me:hunter2@judge:8000/v1", "m2"))
    load_with(server("http://me:hunter2@judge-2:8000/v1", "m"))


def test_a_run_has_its_own_place_below_the_stores() -> None:
    storage = load("laptop", ["storage.uri=/store/", "storage.run_key=first"]).storage
    assert storage.run_uri() == "/store/first"
    assert load("laptop").storage.run_uri() is None
    arm = load("laptop", ["storage.uri=/store/", "storage.run_key=first", "storage.arm=frozen"]).storage
    assert arm.run_uri() == "/store/first-frozen"


@pytest.mark.parametrize("arm", ["x/../../elsewhere", "Frozen", "a b", "x" * 41, "frozen\n"])
def test_an_arm_cannot_lead_out_of_its_runs_place(arm: str) -> None:
    with pytest.raises(ConfigError, match=r"storage\.arm"):
        load("laptop", ["storage.uri=/store", "storage.run_key=first", f"storage.arm={json.dumps(arm)}"])


def test_a_place_for_checkpoints_needs_a_run_key_where_checkpoints_are_written() -> None:
    """Only there: other stages of a pipeline get the address, but not the key."""
    storage = load("laptop", ["storage.uri=/store"]).storage
    with pytest.raises(ConfigError, match=r"storage\.uri needs storage\.run_key, the name that a run"):
        storage.run_uri()


def test_an_address_with_a_password_is_not_shown_by_an_error() -> None:
    with pytest.raises(ConfigError, match=r"needs storage\.endpoint") as refused:
        load("laptop", ["storage.uri=s3://me:hunter2@b"])
    assert "hunter2" not in str(refused.value)


def test_an_override_with_line_breaks_is_one_text() -> None:
    assert load("laptop", ['instruction="a"\nb=3']).instruction == '"a"\nb=3'


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown preset 'lptop'; did you mean 'laptop'\? It is one of \["):
        load("lptop")


def test_a_preset_that_extends_another_holds_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('extends = "laptop"\nseed = 7\n[cooper]\nsteps = 3')
    assert load(str(path)) == load("laptop", ["seed=7", "cooper.steps=3"])
    path.write_text('extends = "own.toml"')
    with pytest.raises(
        ConfigError, match=r"own\.toml' extends 'own\.toml', which is none of \['gsm8k_one_gpu', 'laptop'"
    ):
        load(str(path))


def test_a_preset_file_that_is_missing_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml'?: no such file"):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "latin.toml").write_bytes(b"a = '\xe9'")
    with pytest.raises(ConfigError, match=r"latin\.toml' cannot be read as UTF-8 text"):
        load(str(tmp_path / "latin.toml"))
    for text in ("a = = 1", "a = " + 5000 * "9", "a = " + 5000 * "["):
        (tmp_path / "bad.toml").write_text(text)
        with pytest.raises(ConfigError, match=r"bad\.toml' is not TOML"):
            load(str(tmp_path / "bad.toml"))


def test_a_preset_of_an_editor_that_marks_utf_8_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('extends = "laptop"\r\nseed = 7\r\n', encoding="utf-8-sig")
    assert load(str(tmp_path / "own.toml")).seed == 7


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("models.backbone", '"s3://models/backbone"'),
        ("models.samplers.small", '"s3://models/small"'),
        ("problems.sources", '["gsm8k.jsonl", "s3://problems/mine.jsonl"]'),
        ("problems.held_out_sources", '["s3://problems/mine.jsonl"]'),
    ],
)
def test_what_is_stored_needs_a_server(key: str, value: str) -> None:
    setting = f"{key}={value}"
    with pytest.raises(ConfigError, match=rf"{key}=s3://\.\.\. needs storage\.endpoint"):
        load("paper", [setting])
    assert load("paper", [setting, "storage.endpoint=http://minio:9000"]).storage.endpoint


@pytest.mark.parametrize("root", [Config, LearnConfig, ServeConfig])
def test_every_key_has_a_docstring(root: type[BaseModel]) -> None:
    assert undocumented(root) == []


def undocumented(section: type[BaseModel], place: str = "") -> list[str]:
    found: list[str] = []
    for name, field in section.model_fields.items():
        inner = section_of(field.annotation)
        if inner is not None:
            found += undocumented(inner, f"{place}{name}.")
        elif not field.description:
            found.append(f"{section.__module__}.{section.__name__}.{name}")
    return sorted(set(found))


@pytest.mark.parametrize(
    "settings", [["distributed.trainer=zero"], ["distributed.trainer=single", "distributed.zero_stage=2"]]
)
def test_a_trainer_that_does_not_fit_the_zero_stage_is_refused(settings: list[str]) -> None:
    with pytest.raises(
        ConfigError, match=r"trainer=\w+ and distributed\.zero_stage=\d do not fit: zero divides"
    ):
        load("laptop", settings)


def test_an_unknown_trainer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"distributed\.trainer=fsdp: use one of single, zero, or register"):
        load("laptop", ["distributed.trainer=fsdp"])
