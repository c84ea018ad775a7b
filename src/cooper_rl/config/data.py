"""Configuration of problems, completions and labels, and of the servers asked for them."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from cooper_rl.addresses import redact
from cooper_rl.config import names
from cooper_rl.config.section import Section


class ProblemsConfig(Section):
    """`collect_problems`: which problems, and how many are held out for evaluation."""

    domain: Annotated[str, AfterValidator(names.DOMAINS.check)] = "mathematics"
    """The subject of the problems. It chooses the verifier, the prompts of judge and assistant, canaries and
    perturbation. A program can register its own (docs/how-to/extending.md)."""
    num_tiny: int = Field(default=0, ge=0)
    """Problems to generate in the laptop world; they come before those that are read from `sources`."""
    tiny_blind_share: float = Field(default=0.0, ge=0, le=0.75, multiple_of=0.25)
    """Share (0, .25, .5, .75) of the laptop world's kinds of problems whose reference answers are phrases
    that the rule verifier cannot read; the laptop's models are trained for the same share."""
    sources: tuple[str, ...] = ()
    """Files (.jsonl, .parquet), http(s) URLs and `s3://bucket/...` addresses of such files, or Hugging Face
    data set ids (`openai/gsm8k:main:train`)."""
    held_out_sources: tuple[str, ...] = ()
    """Problems for evaluation only, in the same forms as `sources`."""
    num_held_out: int = Field(default=0, ge=0)
    """Problems drawn from the collected ones (not from `held_out_sources`) for evaluation."""
    max_problems: int | None = Field(default=None, ge=1)
    """Keep at most this many of the collected problems, drawn with the seed before `num_held_out` is
    taken."""
    question_column: str | None = None
    """Column of the question, for files whose columns are not recognised; holds for all sources."""
    answer_column: str | None = None
    """Column of the final answer, for files whose columns are not recognised."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.num_tiny == 0 and not self.sources:
            raise ValueError("no problems: set problems.sources or problems.num_tiny")
        if self.num_held_out == 0 and not self.held_out_sources:
            raise ValueError("nothing to evaluate on: set problems.num_held_out or problems.held_out_sources")
        return self


def _check_temperature(value: float) -> float:
    if 0 < value < MIN_TEMPERATURE:
        raise ValueError(
            f"logits divided by it are beyond fp32; write 0 for greedy, or {MIN_TEMPERATURE} or more"
        )
    return value


MIN_TEMPERATURE = 1e-6
Temperature = Annotated[float, Field(ge=0), AfterValidator(_check_temperature)]


class GenerationConfig(Section):
    """Settings for drawing completions."""

    temperature: Temperature = 1.0
    """Sampling temperature; 0 is greedy."""
    top_p: float = Field(default=1.0, ge=1e-6, le=1)
    """Nucleus sampling: draw from the smallest set of tokens that holds this probability; 1: from all."""
    max_new_tokens: int = Field(default=512, ge=1)
    """Limit of tokens for one completion; a completion that reaches it has the finish reason `length`."""
    batch_size: int = Field(default=128, ge=1)
    """Completions generated at a time by the Hugging Face engine."""


class SamplingConfig(Section):
    """`sample_completions`: the completions that VerifyRM is trained on."""

    generation: GenerationConfig = GenerationConfig()
    max_problems: int | None = Field(default=None, ge=1)
    """Problems to sample for, the first ones of the file; None: all."""
    completions_per_problem: int = Field(default=1, ge=1)
    """Completions of a problem from each sampler."""
    temperatures: dict[str, Temperature] = {}
    """Sampler -> temperature, where it differs from generation.temperature."""


class ServerConfig(Section):
    """An OpenAI-compatible chat server. The key is read from an environment variable, never stored."""

    base_url: str
    """Address of the API, e.g. `http://judge:8000/v1`."""
    model: str
    """The model's name in requests."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0 is greedy, so that verdicts can be repeated."""
    max_tokens: int = Field(default=1024, ge=1)
    """Limit of tokens for one answer."""
    max_concurrency: int = Field(default=32, ge=1)
    """Requests in flight at a time."""
    timeout_seconds: float = Field(default=120.0, gt=0)
    """Time limit of one request."""
    max_attempts: int = Field(default=5, ge=1)
    """Tries per request on 5xx, connection errors and answers that are no chat completion, with exponential
    backoff."""
    rate_limit_patience_seconds: float = Field(default=900.0, ge=0)
    """The longest time that a server may answer with 429 alone, and the longest pause that it may ask for.
    After that the run ends. Until then a 429 costs no attempt: all requests pause for as long as the server
    asks, and fewer are made at a time."""
    max_requests: int | None = Field(default=None, ge=1)
    """Budget of requests for one run of a stage, with retries and second requests. The run stops with an
    error before it exceeds the budget. None: no limit."""
    max_total_tokens: int | None = Field(default=None, ge=1)
    """Budget of prompt and completion tokens, as the server counts them. None: no limit."""
    max_cost: float | None = Field(default=None, gt=0)
    """Budget of money, in the currency of the two prices, both of which it needs. None: no limit."""
    price_per_million_prompt_tokens: float | None = Field(default=None, ge=0)
    """The server's price of a million prompt tokens, e.g. 0.15. Estimate, report and `max_cost` use it."""
    price_per_million_completion_tokens: float | None = Field(default=None, ge=0)
    """The server's price of a million completion tokens."""
    expected_answer_tokens: int = Field(default=256, ge=1)
    """Expected length of an answer, for the estimate before the start."""
    backoff_seconds: float = Field(default=1.0, ge=0)
    """Pause before the second try; it doubles with every further one."""

    @model_validator(mode="after")
    def _priced(self) -> Self:
        prices = (self.price_per_million_prompt_tokens, self.price_per_million_completion_tokens)
        if None in prices and (self.max_cost is not None or prices != (None, None)):
            raise ValueError(
                "a cost needs both price_per_million_prompt_tokens and price_per_million_completion_tokens "
                f"(now {prices[0]} and {prices[1]}): set both, or leave out max_cost and prices"
            )
        return self


class JudgeConfig(Section):
    """The judge of completions beside the rule verifier: a server or the laptop's. Exactly one of the two."""

    server: ServerConfig | None = None
    tiny_error_rate: float | None = Field(default=None, ge=0, le=1)
    """Use the laptop's exact evaluator, with this share of its verdicts flipped."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.server is None) == (self.tiny_error_rate is None):
            raise ValueError(
                "set exactly one of server and tiny_error_rate; to take one out that a preset has, write "
                "--set ...judge.tiny_error_rate=null"
            )
        return self

    def who(self) -> str:
        """Model and address, in words; two judges of one `who` make the same errors."""
        if self.server is None:
            return f"the laptop's, tiny_error_rate={self.tiny_error_rate:g}"
        return f"model {self.server.model!r} at {redact(self.server.base_url).rstrip('/').lower()}"


class AssistantConfig(Section):
    """The assistant, which rewrites a correct solution into a wrong one: a server or the laptop's. Exactly
    one of the two."""

    server: ServerConfig | None = None
    tiny: bool = False
    """Use the laptop's rewriter, which slips in one step and carries the error through."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.server is None) == (not self.tiny):
            raise ValueError(
                "set exactly one of server and tiny; to take the second out where a preset has it, write "
                "tiny = false"
            )
        return self


class AnswerPolicy(Section):
    """Choices of the rule verifier where people differ."""

    number_words: bool = True
    """Read `ten` as 10. Off: an answer in number words is `unparsable`, so that the judge decides."""
    reference_rounding: bool = True
    """Accept a fraction that rounds to a reference answer with two or more decimals (27/59 for 0.458). Roots
    and other expressions are not accepted, nor is a rounded decimal for a fraction (0.333 for 1/3)."""
    measured_rounding: bool = True
    """If the question asks for a measured quantity (`in km/h`), accept an answer of three or more digits that
    the reference answer rounds to (85.7 for 600/7). Off: only if the question asks for rounding."""
    convert_units: bool = True
    """Compare `5 km` with `5000 m` by converting. Off: answers in different units are `unparsable`."""
    several_boxes: Literal["last", "abstain"] = "last"
    """What counts if boxes differ and no `and`, `or` or comma connects them. `last`: the last box, which
    corrects the others. `abstain`: nothing; the verdict is `unparsable`."""
    several_json: Literal["abstain", "first", "last"] = "abstain"
    """What counts if JSON objects give different answers. `abstain`: nothing, because they contradict each
    other. `first` and `last`: the answer of that object."""
    answer_in_thought: bool = False
    """Accept an answer that is only inside a `<think>` block."""


class RuleConfig(Section):
    """The rule verifier."""

    timeout_seconds: float = Field(default=5.0, gt=0)
    """Hard limit for one item, in CPU seconds; then its worker is killed and the verdict is `unparsable`."""
    num_workers: int | None = Field(default=None, ge=1)
    """Worker processes; None: one per core, shared by the processes that train. Fewer are started if half of
    the container's memory is less than 512 MiB for each."""
    policy: AnswerPolicy = AnswerPolicy()
    """Choices about equal answers where people differ."""


class ThirdVoteConfig(Section):
    """The third vote, which decides where rule verdict and judge verdict differ."""

    judge: JudgeConfig
    """Another judge. One of the same model and address as `labeling.judge` is refused: it repeats errors."""


class ShardConfig(Section):
    """A part of the completions, by question."""

    number: int = Field(ge=0)
    """Index of the shard, from 0."""
    count: int = Field(ge=1)
    """Shards in all."""

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.number >= self.count:
            raise ValueError(
                f"labeling.shard.number={self.number} is none of {self.count} shards: count from 0"
            )
        return self


class LabelingConfig(Section):
    """`label_completions`: rule verdict and judge verdict become one label."""

    rule: RuleConfig = RuleConfig()
    judge: JudgeConfig | None = None
    """None: the rule verdict alone decides (unparsable is dropped)."""
    other_judges: tuple[JudgeConfig, ...] = ()
    """Further judges, of other models or addresses, asked about the same completions as `judge`. The judge
    verdict is then what more than half of all judges say, and an abstention if there is no such majority."""
    third_vote: ThirdVoteConfig | None = None
    """Decides where rule and judge differ. None: such completions are dropped, as in the paper."""
    judge_asked: Literal["always", "where_rule_abstains"] = "always"
    """`where_rule_abstains` is a cascade: the judge is asked only where the rule verifier abstains. Elsewhere
    the rule verdict alone is the label, and the judge checks a random `audit_fraction` of these labels."""
    audit_fraction: float = Field(default=0.05, ge=0, le=1)
    """Share of the decisive rule verdicts that a cascade shows to the judge. The report states how often the
    judge differs there, which estimates the error of the labels that nobody checked."""
    unparsable_rule: Literal["judge_decides", "drop"] = "judge_decides"
    """The label when the rule verifier abstains. `drop` is the paper's agreement filter, which removes every
    correct answer in a format that the rule cannot read."""
    validation_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the problems whose examples steer training (early stop, checks between steps)."""
    test_fraction: float = Field(default=0.1, gt=0, lt=0.5)
    """Share of the problems whose examples only `evaluate_verify_rm` sees."""
    shard: ShardConfig | None = None
    """Label the questions of one shard only, and leave the splits to `merge_labels`. None: all. A pipeline
    fills it in (`label_shards` of its profile)."""

    @model_validator(mode="after")
    def _is_a_panel(self) -> Self:
        if self.other_judges and self.judge is None:
            raise ValueError("labeling.other_judges needs labeling.judge, the first of them: set it")
        return self

    @model_validator(mode="after")
    def _judges_differ(self) -> Self:
        known: dict[str, str] = {}
        for key, judge in self.judges().items():
            first = known.setdefault(judge.who(), key)
            if first != key:
                raise ValueError(
                    f"{key} is {first} again ({judge.who()}), and a voter that shares the first one's errors "
                    "confirms them: name another model or address, or leave it out"
                )
        return self

    def judges(self) -> dict[str, JudgeConfig]:
        """Dotted key -> judge, of every judge that may be asked."""
        found = {} if self.judge is None else {"labeling.judge": self.judge}
        found |= {f"labeling.other_judges[{place}]": judge for place, judge in enumerate(self.other_judges)}
        return (
            found if self.third_vote is None else found | {"labeling.third_vote.judge": self.third_vote.judge}
        )
