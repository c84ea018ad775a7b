"""Configuration of where a run stores, where it works, and where its numbers go."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from cooper_rl.config import names
from cooper_rl.config.kubernetes import (
    CpusOrNumber,
    Image,
    LabelKey,
    LabelValue,
    Memory,
    Namespace,
    ObjectName,
    QueueName,
    VariableName,
)
from cooper_rl.config.section import Section
from cooper_rl.errors import ConfigError


def is_stored(address: str | None) -> bool:
    """True if an address is one in an object store, and not absent, a path, a URL or a hub id."""
    return address is not None and address.startswith("s3://")


def _check_place(address: str) -> str:
    if address.startswith("~"):  # no shell expands it in `--set key=~/folder`, or in a file
        raise ValueError("~ is not read as your home folder here; write the whole path")
    # Not a folder: what a pod wrote to one named `s3:` would be gone with it.
    if re.match("s3:", address, re.IGNORECASE) and not re.match("s3://[^/]", address):
        raise ValueError("an address in an object store is s3://bucket/prefix, in small letters")
    return address


Place = Annotated[str, Field(min_length=1), AfterValidator(_check_place)]
"""An address in an object store, or a folder."""


class StorageConfig(Section):
    """Checkpoints of co-training: how many are kept, and where, when not in the task's own folder. Verdicts
    of labelling are kept there too."""

    uri: Place | None = None
    """`s3://bucket/prefix` or a folder that outlives the task. Absent: checkpoints stay in the folder given
    as `--checkpoint`."""
    run_key: str | None = None
    """Name of the run below `uri`: a run that is started again with the same key continues. Needed with
    `uri` for co-training. A pipeline fills in Kubeflow's id of the run."""
    arm: str | None = Field(default=None, pattern=r"^[a-z0-9_]{1,40}$")
    """Name of the arm, if the run trains several arms from one start. Each keeps its own checkpoints."""
    endpoint: str | None = None
    """`https://host:port` of the S3 server; needed with an `s3://` address."""
    region: str = "us-east-1"
    """Region that requests are signed for."""
    path_style: bool = True
    """Bucket in the path (MinIO, Ceph) instead of in the host name (AWS)."""
    ca_bundle: Path | None = None
    """PEM file of the authorities that the server's certificate is checked against. Absent: the one that the
    environment variable SSL_CERT_FILE names, or the public authorities."""
    credentials: Path | None = None
    """Folder with the files `access_key` and `secret_key` (a mounted secret), read again when they change.
    Absent: the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
    part_mib: int = Field(default=16, ge=5, le=1024)
    """Size of one part of an upload, larger where a file would have over 10,000 parts; memory of an upload is
    twice `num_parallel` parts."""
    num_parallel: int = Field(default=4, ge=1, le=64)
    """Parts that are transferred at a time."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """The longest time that the server may send nothing."""
    retry_seconds: float = Field(default=300.0, ge=0)
    """The time for which a request is tried again on 5xx, 429 and connection errors, before the run stops."""
    verdict_seconds: float = Field(default=1.0, ge=0)
    """The longest time until `label_completions` stores a verdict below `uri`. What a killed pod had not yet
    stored is asked for again. 0: each verdict is stored at once, for judges that cost more than a request to
    the store."""
    keep_last: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept; the second is what a run continues from if the first is damaged."""
    keep_every: int | None = Field(default=None, ge=1)
    """Also keep checkpoints whose step is a multiple of this."""
    keep_best: bool = False
    """Also keep the checkpoint with the best rule accuracy, over the rollouts since the checkpoint before
    it."""
    grace_seconds: float = Field(default=25.0, ge=0)
    """Time between SIGTERM and SIGKILL. The step in progress is finished only if steps take less."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.run_key is not None and re.search(r"\[\[|\{\{", self.run_key):
            raise ValueError(
                f"storage.run_key={self.run_key!r} holds a placeholder that Kubeflow did not fill in, so "
                "that all runs would share one name: leave run_key out, and each run is named by its own id"
            )
        if self.run_key is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", self.run_key):
            raise ValueError("storage.run_key: use 1 to 100 letters, digits, '.', '_', '-', no leading dot")
        if is_stored(self.uri) and self.endpoint is None:
            raise ValueError("storage.uri=s3://... needs storage.endpoint, e.g. https://minio:9000")
        return self

    def run_uri(self) -> str | None:
        """The address of the run's checkpoints, or None: in the task's own folder.

        Raises:
            ConfigError: there is a `uri`, but no `run_key`.
        """
        if self.uri is None:
            return None
        if self.run_key is None:
            raise ConfigError(
                "storage.uri needs storage.run_key, the name that a run is continued under; set it "
                "(for a run on a cluster: --param run_key=NAME)"
            )
        return f"{self.uri.rstrip('/')}/{self.run_name()}"

    def without_arm(self) -> Self:
        """The store of the run itself, whichever arm this process trains."""
        return self.model_copy(update={"arm": None})

    def run_name(self) -> str | None:
        """The run's name and its arm's."""
        return self.run_key if self.run_key is None or self.arm is None else f"{self.run_key}-{self.arm}"


class RegistryConfig(Section):
    """The registry of champions: where `take_champion` looks and `promote` decides."""

    uri: Place | None = None
    """`s3://bucket/prefix`, reached as `storage` says, or a folder. Needed by the two stages."""
    min_new_problems: int = Field(default=3, ge=3)
    """Fewest new problems that are worth a training; with fewer, nothing is trained. At least three are
    needed to fill the three splits of the labels."""
    max_canary_rate: float = Field(default=0.2, ge=0, le=1)
    """Share of the canaries of any one attack that the VerifyRM of a champion may score above 0.5: one
    accepted attack is enough for a policy to hack it."""
    max_universal_rate: float | None = Field(default=0.05, ge=0, le=1)
    """Share of unseen problems on which the VerifyRM of a champion may pay the red team's best universal
    text, where `promote` has the report of one. None: what the red team found does not decide."""
    mlflow: str | None = Field(default=None, min_length=1)
    """Tracking address of MLflow, a server or `sqlite:///FILE`. `promote` registers each new champion there,
    as a version of the model `mlflow_model` with the alias `champion`. A failure of it is a warning: the
    registry at `uri` decides. Needs the extra `mlflow`."""
    mlflow_model: str = Field(default="cooper-rl", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    """Name of the model in MLflow's model registry."""

    def needed_uri(self) -> str:
        """The address of the registry.

        Raises:
            ConfigError: nobody said so.
        """
        if self.uri is None:
            raise ConfigError(
                "registry.uri is not set: give s3://bucket/prefix, or a folder that outlives runs"
            )
        return self.uri


class LaunchConfig(Section):
    """The place where `train_cooper` works: in this process, or as a Kubeflow TrainJob on other nodes."""

    kind: Literal["here", "trainjob"] = "here"
    """`trainjob` needs `image`, `storage_secret` and `storage.uri=s3://...`: inputs and weights travel
    through the store."""
    image: Image | None = None
    """Image of the GPU stages, by digest or version."""
    storage_secret: ObjectName | None = None
    """Secret with the keys `access_key` and `secret_key`, which the job reads in place of
    `storage.credentials`."""
    runtime: ObjectName = "torch-distributed"
    """TrainingRuntime or ClusterTrainingRuntime of the framework torch."""
    namespace: Namespace | None = None
    """Namespace of the job. None: that of this pod, or of the current context of kubectl."""
    nodes: int = Field(default=1, ge=1)
    """Nodes of the job, each with one pod."""
    gpus_per_node: int = Field(default=1, ge=0)
    """GPUs of a node; each gets a process. 0: one process a node, on CPUs."""
    cpu: CpusOrNumber | None = None
    """CPUs of a node's pod, e.g. `16`; None: as the runtime or the namespace says."""
    memory: Memory | None = None
    """Memory of a node's pod, shared memory included, e.g. `120Gi`; None: as the runtime or the namespace
    says."""
    ephemeral_storage: Memory | None = None
    """Disk of a node's pod for models, data and the checkpoint that is being stored, e.g. `220Gi`; None: as
    the runtime or the namespace says, so that the job itself reserves nothing."""
    shared_memory: Memory = "8Gi"
    """Size of /dev/shm, which NCCL and data loaders use."""
    queue: QueueName | None = None
    """LocalQueue of Kueue that the job waits in; None: it starts at once."""
    node_selector: dict[LabelKey, LabelValue] = {}
    """Labels that the job's nodes must have. The flavor of a queue adds its own."""
    secrets: tuple[ObjectName, ...] = ()
    """More secrets, each mounted as the folder /var/run/cooper-rl/NAME."""
    image_pull_secrets: tuple[ObjectName, ...] = ()
    """Secrets of the registry that holds the job's image."""
    environment: dict[VariableName, str] = {}
    """Environment variables of every process. The TrainJob shows them to everybody who can read it, so put no
    secrets here."""
    poll_seconds: float = Field(default=5.0, gt=0)
    """Interval at which the job's state is polled."""
    retry_seconds: float = Field(default=300.0, ge=0)
    """The longest time that the cluster's API server may be away while a job is followed."""

    @property
    def processes_per_node(self) -> int:
        """One process for each GPU."""
        return max(1, self.gpus_per_node)

    @model_validator(mode="after")
    def _job_is_described(self) -> Self:
        missing = [key for key in ("image", "storage_secret") if not getattr(self, key)]
        if self.kind == "trainjob" and missing:
            raise ValueError(f"launch.kind=trainjob needs launch.{' and launch.'.join(missing)}")
        return self


class DistributedConfig(Section):
    """`train_cooper` in several processes (torchrun), or in one with DeepSpeed."""

    trainer: Annotated[str | None, AfterValidator(lambda name: name and names.TRAINERS.check(name))] = None
    """The trainer that steps both models. None: `zero` (DeepSpeed) where `zero_stage` is set, else `single`.
    A program can register its own (docs/how-to/extending.md)."""
    zero_stage: Literal[0, 1, 2, 3] = 0
    """ZeRO's stage, which says what is divided over the processes. 1: the optimiser's state; 2: gradients
    too; 3: weights too. 0: one process without DeepSpeed; stages 1 to 3 need the extra `deepspeed`. With
    them, if `cooper.precision` is bf16, the models hold bf16 weights beside the fp32 weights that are
    stepped."""
    offload_optimizer: bool = False
    """Keep the optimiser's state and its weights in the CPU's memory: slower, but 12 bytes less GPU memory
    for each weight."""
    timeout_seconds: float = Field(default=1800.0, gt=0)
    """The longest time that a process waits for another one before the job ends with an error."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.offload_optimizer and self.zero_stage == 0:
            raise ValueError("distributed.offload_optimizer needs distributed.zero_stage=1, 2 or 3")
        if (self.trainer == "zero" and self.zero_stage == 0) or (
            self.trainer == "single" and self.zero_stage
        ):
            raise ValueError(
                f"distributed.trainer={self.trainer} and distributed.zero_stage={self.zero_stage} do not "
                "fit: zero divides by stage 1, 2 or 3, and single by none; leave trainer out"
            )
        return self

    @property
    def trainer_name(self) -> str:
        """The trainer that is meant."""
        return self.trainer or ("zero" if self.zero_stage else "single")


class TrackerConfig(Section):
    """A second place for the numbers of metrics.jsonl; the run's name there is `storage.run_key`."""

    kind: Literal["tensorboard", "mlflow", "wandb"]
    """Each is an extra: `pip install '.[tensorboard]'` in a clone. A tracker that fails never stops
    training."""
    uri: str
    """TensorBoard: folder of runs. MLflow: tracking URI (a server, or `sqlite:///FILE`;
    it refuses plain folders). W&B: folder of its local files."""
    project: str = "cooper-rl"
    """Name of the experiment (MLflow) or project (W&B)."""
