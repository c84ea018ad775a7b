"""The whole configuration: a section for every stage."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from cooper_rl.addresses import opens_something, redact_values
from cooper_rl.config.cooper import CooperConfig, EvaluationConfig, ExperimentConfig
from cooper_rl.config.data import LabelingConfig, ProblemsConfig, SamplingConfig
from cooper_rl.config.engine import EngineConfig
from cooper_rl.config.infrastructure import (
    DistributedConfig,
    LaunchConfig,
    RegistryConfig,
    StorageConfig,
    TrackerConfig,
    is_stored,
)
from cooper_rl.config.models import ModelsConfig, VerifyRMConfig
from cooper_rl.config.red_team import RedTeamConfig
from cooper_rl.config.section import Section, flatten


class Config(Section):
    """The whole run. Every stage takes this and reads its own section."""

    seed: int = Field(default=0, ge=-(2**63), lt=2**63)
    """Seed of everything drawn at random."""
    instruction: str | None = None
    """Appended to every question before the policy or a sampler sees it."""
    prompt_template: str | None = None
    """Prompt of policy and samplers in place of their chat template, for base models that have none, as
    R1-Zero is trained: a text with `{question}`, where question and instruction go. None: the chat
    template."""
    packed_forward: bool = True
    """Run Qwen2, Qwen3 and Llama through our own forward pass, which computes no padding, and shared
    beginnings once. False: they run through the library's, over padded batches. That is slower and gives the
    same numbers to rounding."""
    models: ModelsConfig
    problems: ProblemsConfig
    sampling: SamplingConfig = SamplingConfig()
    labeling: LabelingConfig = LabelingConfig()
    engine: EngineConfig = EngineConfig()
    verify_rm: VerifyRMConfig = VerifyRMConfig()
    cooper: CooperConfig
    storage: StorageConfig = StorageConfig()
    registry: RegistryConfig = RegistryConfig()
    distributed: DistributedConfig = DistributedConfig()
    launch: LaunchConfig = LaunchConfig()
    tracker: TrackerConfig | None = None
    """None: metrics.jsonl alone."""
    evaluation: EvaluationConfig = EvaluationConfig()
    experiment: ExperimentConfig = ExperimentConfig()
    red_team: RedTeamConfig = RedTeamConfig()

    @field_validator("prompt_template")
    @classmethod
    def _has_a_place_for_the_question(cls, value: str | None) -> str | None:
        if value is not None and value.count("{question}") != 1:
            raise ValueError(
                f"{value[:80]!r} holds {{question}} {value.count('{question}')} times: write it once, where "
                "the question goes"
            )
        return value

    @model_validator(mode="after")
    def _has_what_zero_knows(self) -> Self:
        if self.distributed.zero_stage and self.cooper.reward.ema_decay:
            raise ValueError(
                f"cooper.reward.ema_decay={self.cooper.reward.ema_decay:g} is kept by one process without "
                "DeepSpeed: set it to 0, or distributed.zero_stage=0"
            )
        return self

    @model_validator(mode="after")
    def _job_has_a_store(self) -> Self:
        uri = self.storage.uri
        if self.launch.kind == "trainjob" and not is_stored(uri):
            raise ValueError(
                f"launch.kind=trainjob needs storage.uri=s3://bucket/prefix (found {uri}), which inputs and "
                "checkpoints travel through: a job on other nodes sees no folder of this machine"
            )
        return self

    @model_validator(mode="after")
    def _job_shows_no_secret(self) -> Self:
        if self.launch.kind != "trainjob":
            return self
        for key, value in flatten(self.model_dump(mode="json")):
            if opens_something(value):
                raise ValueError(
                    f"{key}={redact_values(value)}: holds a password or a signature, and a TrainJob's "
                    "arguments and variables stand in the cluster for all to read; give an address without, "
                    "such as that of a gateway that adds it, or mount it (launch.secrets)"
                )
        return self

    @model_validator(mode="after")
    def _what_is_stored_has_a_server(self) -> Self:
        models, problems = self.models, self.problems
        addresses = [
            ("registry.uri", self.registry.uri),
            ("models.policy", models.policy),
            ("models.backbone", models.backbone),
            *((f"models.samplers.{name}", model) for name, model in models.samplers.items()),
            *(("problems.sources", name) for name in problems.sources),
            *(("problems.held_out_sources", name) for name in problems.held_out_sources),
        ]
        for key, address in addresses:
            if is_stored(address) and self.storage.endpoint is None:
                raise ValueError(f"{key}=s3://... needs storage.endpoint, e.g. https://minio:9000")
        return self
