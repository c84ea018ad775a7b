"""A profile: what differs from cluster to cluster and is fixed when a pipeline is compiled.

Images, hardware, queue, secrets, retries, and the preset and overrides that hold for every run there. Two
profiles ship (`profiles/`); any other is a TOML file. What differs from run to run is a pipeline's parameter.
"""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from components.images import CPU_IMAGE, GPU_IMAGE
from cooper_rl.comparison.arms import arm_overrides
from cooper_rl.config.kubernetes import (
    Cpus,
    DeviceName,
    Image,
    LabelKey,
    LabelValue,
    Memory,
    ObjectName,
    QueueName,
    SecretKey,
    TaintKey,
    VariableName,
    quantity,
)
from cooper_rl.config.load import load, settings_of
from cooper_rl.config.section import Section
from cooper_rl.errors import ConfigError
from cooper_rl.stages import STAGES
from pipelines.options import check_no_secret

FOLDER = Path(__file__).parent / "profiles"
MAX_HOURS = 8760.0
"""A year."""
MAX_SHOWN = 400
"""Characters of a wrong value that an error shows."""


def _check_hours(hours: float) -> float:
    if 0 < hours < 1 / 3600:  # zero seconds, which is no time limit
        raise ValueError("is less than a second; write hours, of which 0.5 are 30 minutes")
    return hours


class Toleration(Section):
    """A taint that tasks accept."""

    key: TaintKey
    """Empty: every taint."""
    operator: Literal["Exists", "Equal"] = "Exists"
    value: LabelValue | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.value and self.operator == "Exists":
            raise ValueError(
                f"value={self.value!r} with the operator Exists, which Kubernetes refuses: set operator = "
                '"Equal", or leave the value out'
            )
        if not self.key and self.operator == "Equal":
            raise ValueError(
                "key='' is every taint, which Kubernetes takes with the operator Exists alone: name the "
                'taint\'s key, or set operator = "Exists"'
            )
        return self


class Pool(Section):
    """The nodes that tasks run on, and what one task's pod asks for and may use there."""

    cpu: Cpus = "4"
    memory: Memory = "16Gi"
    node_selector: dict[LabelKey, LabelValue] = Field(default={})
    """Labels that the nodes must have."""
    tolerations: tuple[Toleration, ...] = ()


class GpuPool(Pool):
    """The nodes that GPU tasks run on."""

    type: DeviceName = "nvidia.com/gpu"
    """Resource name of the device plug-in."""
    count: int = Field(default=1, ge=1)
    """GPUs of one task."""
    shared_memory: Memory = "16Gi"
    """Size of /dev/shm, which counts against `memory`."""
    queue: QueueName | None = None
    """Kueue LocalQueue; None: no Kueue."""
    queue_hours: float = Field(default=168.0, ge=0, le=MAX_HOURS)
    """Hours that a task may wait in the queue in all, beside its own."""

    @model_validator(mode="after")
    def _fits_into_memory(self) -> Self:
        if quantity(self.shared_memory) > quantity(self.memory):
            raise ValueError(
                f"shared_memory={self.shared_memory!r} is more than memory={self.memory!r}, against which it "
                "counts: raise memory, or lower shared_memory"
            )
        return self


class Retry(Section):
    """The tries of a task that failed or was preempted, within its hours."""

    attempts: int = Field(default=8, ge=1, le=100)
    """Attempts of a GPU task, and of the task that waits for a TrainJob."""
    cpu_attempts: int = Field(default=2, ge=1, le=100)
    """Attempts of any other task. It is short, so a second failure is rarely a lost node."""
    first_pause_seconds: int = Field(default=20, ge=1, le=86400)


class Secret(Section):
    """A Kubernetes secret as environment variables."""

    name: ObjectName
    env: dict[SecretKey, VariableName] = Field(min_length=1)
    """Key of the secret -> environment variable."""
    tasks: tuple[str, ...] = ()
    """Stages that get it; empty: all."""


class Profile(Section):
    """Everything that compiling needs to know of a cluster."""

    preset: str = "laptop"
    """Default of the pipelines' parameter `preset`."""
    red_team: bool = False
    """Attack VerifyRM before and after co-training: one task each, of `red_team.*` queries."""
    frozen_arm: bool = False
    """Also train on a VerifyRM that has no decoys and never learns, and show it beside Cooper: as much work
    again. The pipeline `cooper` freezes the VerifyRM that it was given."""
    label_shards: int = Field(default=1, ge=1, le=64)
    """Tasks that label completions side by side, each the questions of one shard."""
    arms: tuple[str, ...] = Field(default=("rule", "frozen", "cooper"), min_length=1)
    """Arms of the pipeline `experiment`, as `cooper-rl experiment --help` lists them."""
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**32)], ...] = Field(default=(0, 1, 2), min_length=1)
    """Seeds of co-training there: every arm is trained with each, one task a run."""
    runs_at_once: int = Field(default=0, ge=0)
    """Runs that train side by side there; 0: all."""
    cache: bool = True
    """True if a task may take over what an earlier one wrote; Kubeflow does not look whether it is there."""
    overrides: tuple[str, ...] = ()
    """Set before the overrides of a run, which win."""
    cpu_image: Image = CPU_IMAGE
    gpu_image: Image = GPU_IMAGE
    image_pull_secrets: tuple[ObjectName, ...] = ()
    cpu: Pool | None = None
    """None: tasks ask for nothing."""
    gpu: GpuPool | None = None
    """None: GPU tasks run without one."""
    retry: Retry | None = None
    hours: dict[str, Annotated[float, Field(gt=0, le=MAX_HOURS), AfterValidator(_check_hours)]] = Field(
        default={}
    )
    """Stage -> wall-clock limit of a try, where it differs from `resources.HOURS`."""
    secrets: tuple[Secret, ...] = ()

    @property
    def starts_jobs(self) -> bool:
        """True if every co-training is a TrainJob: its task only starts it and waits, and needs no GPU."""
        found = [settings_of(line).get("launch.kind") for line in self.overrides]
        return [kind for kind in found if kind is not None][-1:] == ["trainjob"]

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Every arm with every seed: the runs of the pipeline `experiment`, in order."""
        return [(arm, seed) for arm in self.arms for seed in self.seeds]

    @property
    def runs_setting(self) -> str:
        """The same as the setting that the stages read."""
        named = ", ".join(f"{{arm={json.dumps(arm)}, seed={seed}}}" for arm, seed in self.runs)
        return f"experiment.runs=[{named}]"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for image in (self.cpu_image, self.gpu_image):
            tag = image.rpartition("/")[2].partition(":")[2]
            if "@" not in image and tag in {"", "latest"}:
                raise ValueError(f"image {image!r} is not pinned: add a version or @sha256:digest")
        named = [*self.hours, *(task for secret in self.secrets for task in secret.tasks)]
        unknown = sorted(set(named) - set(STAGES))
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no stage; stages are {', '.join(STAGES)}")
        for key, values in (("arms", self.arms), ("seeds", self.seeds)):
            if len(set(values)) < len(values):
                raise ValueError(f"{key}: one stands there twice, so that two tasks would train the same run")
        for arm in self.arms:
            try:
                arm_overrides(arm)
            except ConfigError as error:
                raise ValueError(f"arms: {error}") from error
        if self.hours and self.retry is None:
            raise ValueError("hours limit the tries of [retry], which is missing; add the section")
        self._check_variables()
        return self

    def _check_variables(self) -> None:
        """Kubernetes takes a variable that is there twice, and one of its values is lost."""
        given: dict[tuple[str, str], str] = {}
        for number, secret in enumerate(self.secrets):
            for key, variable in secret.env.items():
                place = f"secrets.{number}.env.{key}"
                for task in secret.tasks or STAGES:
                    other = given.setdefault((task, variable), place)
                    if other != place:
                        raise ValueError(
                            f"{place}={variable!r}: {other} sets this variable of {task} too; name another "
                            "variable, or limit `tasks` of the secrets so that no stage gets both"
                        )


def load_profile(profile: str) -> Profile:
    """A shipped profile by name, or a TOML file by path.

    Raises:
        ConfigError: unknown, not TOML, an unknown key, or overrides that its preset refuses.
    """
    shipped = sorted(path.stem for path in FOLDER.glob("*.toml"))
    path = FOLDER / f"{profile}.toml" if profile in shipped else Path(profile)
    try:
        if not path.is_file():
            raise ConfigError(f"profile {profile!r}: use one of {shipped} or the path of a .toml file")
        found = Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8-sig")))
    except ValidationError as error:
        problems = [_explain(problem) for problem in error.errors(include_url=False)]
        raise ConfigError(f"profile {profile!r}: {'; '.join(problems)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"profile {profile!r} is not readable as TOML: {error}") from error
    check_no_secret(found.model_dump(mode="json"), place=f"profile {profile!r}:")  # it is compiled in
    if not found.preset.endswith(".toml"):  # a file lies in the image, whose first task reads it
        load(found.preset, found.overrides)
    return found


def _explain(problem: ErrorDetails) -> str:
    """One of pydantic's errors with its key and its value."""
    loc, value = problem["loc"], problem["input"]
    is_key = loc[-1:] == ("[key]",)  # of a table, whose key is the value that is wrong
    key = ".".join(map(str, loc[:-2] if is_key else loc)) or "(whole)"
    text = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "string_type" and isinstance(value, bool | int | float):
        text += f', write it in quotes: "{json.dumps(value)}"'
    is_shown = not isinstance(value, dict | list) and len(repr(value)) < MAX_SHOWN
    return f"{key}: {text}{f' (found {value!r})' if is_shown else ''}"
