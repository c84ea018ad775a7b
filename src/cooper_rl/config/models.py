"""Configuration of what a run starts from, and of VerifyRM's training and server."""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cooper_rl.config.section import Section


class Decoder(Section):
    """Size of a decoder whose heads are rotated (RoPE), which needs an even head size."""

    hidden_size: int = Field(default=128, ge=16)
    """Width of the residual stream; a multiple of `num_heads`."""
    num_layers: int = Field(default=4, ge=1)
    """Transformer blocks."""
    num_heads: int = Field(default=4, ge=1)
    """Attention heads per block."""

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        if self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size={self.hidden_size} must be a multiple of twice num_heads={self.num_heads}"
            )
        return self


class TinyModel(Decoder):
    """Size and supervised warm-up of one laptop model (Qwen2 architecture, random start)."""

    intermediate_size: int | None = Field(default=None, ge=16)
    """Width inside the MLP; None: three and a half times `hidden_size`."""
    num_updates: int = Field(default=270, ge=1)
    """Warm-up optimiser updates."""
    batch_size: int = Field(default=32, ge=1)
    """Solutions per update."""
    lr: float = Field(default=5e-3, gt=0)
    """Learning rate of supervised training."""


class TinyBackbone(TinyModel):
    """Size and warm-up of VerifyRM's backbone, which first learns to match closing statements with
    answers."""

    hidden_size: int = Field(default=96, ge=16)
    """Width of the residual stream."""
    num_layers: int = Field(default=3, ge=1)
    """Transformer blocks."""
    num_matching_updates: int = Field(default=120, ge=0)
    """Updates on bare closing statements, before `num_updates` on whole solutions."""
    num_updates: int = Field(default=140, ge=1)
    """Updates on solutions, after the matching updates."""
    batch_size: int = Field(default=64, ge=1)
    """Texts per update."""


class TinyModels(Section):
    """The laptop's model hub, trained from scratch in `prepare_models`."""

    policy: TinyModel = TinyModel()
    snapshots: dict[str, float] = {}
    """Samplers kept from the policy's warm-up: name -> share of its updates done, between 0 and 1."""
    samplers: dict[str, TinyModel] = {}
    """Other models for data collection, by name. The policy is always a sampler too."""
    backbone: TinyBackbone = TinyBackbone()
    """Causal LM that VerifyRM is made from; its training text teaches when two answers mean the same."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        for name in (*self.snapshots, *self.samplers):
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name) or name in {"policy", "backbone"}:
                raise ValueError(
                    f"sampler name {name!r}: use letters, digits, - and _, and neither policy nor backbone"
                )
        twice = sorted(set(self.snapshots) & set(self.samplers))
        if twice:
            raise ValueError(f"{twice[0]!r} is both a snapshot and a sampler: rename one")
        for name, share in self.snapshots.items():
            if not 0 < share < 1:
                raise ValueError(f"snapshots.{name}={share} must lie between 0 and 1")
        return self


class ModelsConfig(Section):
    """`prepare_models`: where the run starts from. Either `tiny`, or names of existing checkpoints."""

    tiny: TinyModels | None = None
    """Train the laptop's models from scratch; exclusive with the three fields below."""
    policy: str | None = None
    """Causal LM to be trained: a folder in Hugging Face format, a hub id, or `s3://bucket/prefix` of such a
    folder with a SHA256SUMS, in the object store that `storage` reaches. `samplers` and `backbone` take the
    same addresses."""
    samplers: dict[str, str] = {}
    """Name -> causal LM whose completions VerifyRM learns from; empty: the policy alone."""
    backbone: str | None = None
    """Causal LM that VerifyRM is made from."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        named = self.policy is not None or self.backbone is not None or bool(self.samplers)
        if self.tiny is not None and named:
            raise ValueError(
                "models.tiny excludes models.policy, models.samplers and models.backbone: keep one"
            )
        if self.tiny is None and (self.policy is None or self.backbone is None):
            raise ValueError("set models.policy and models.backbone, or models.tiny for the laptop world")
        return self


class ScratchModel(Decoder):
    """A from-scratch VerifyRM for data without a backbone: its own byte-level BPE tokenizer."""

    vocab_size: int = Field(default=2048, ge=300)
    """Entries of the byte-level BPE tokenizer."""
    num_layers: int = Field(default=2, ge=1)
    """Transformer blocks."""
    num_matching_examples: int = Field(default=0, ge=0)
    """Generated pairs of a reference answer and a stated answer that are learned first. They teach what a
    pre-trained backbone already knows. 0: none."""
    matching_lr: float = Field(default=1e-3, gt=0)
    """Peak learning rate on the matching examples."""


class VerifyRMConfig(Section):
    """`train_verify_rm`: binary cross-entropy on labelled examples."""

    scratch: ScratchModel = ScratchModel()
    """Used only when the stage is given no backbone."""
    answer_spans: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Curriculum of growing suffixes, in characters: one pass for each, over every completion cut to its last
    so many characters, before `num_epochs` over whole completions. A model from scratch learns where the
    final answer is, if each suffix is two or three times as long as the one before."""
    swapped_references: bool = False
    """Also train on every completion with another reference answer: a correct one with another problem's
    answer (label 0), an incorrect one with the answer that it states itself (label 1), so that the label
    cannot be told from the completion alone."""
    num_canary_problems: int = Field(default=0, ge=0)
    """Training problems whose canaries are learned as wrong completions. 0: none."""
    hostile_fraction: float = Field(default=0.0, ge=0, le=1)
    """Number of hostile texts for each training example, learned as wrong completions: repetitions, random
    characters and words, solutions of other problems."""
    matching_fraction: float = Field(default=0.0, ge=0)
    """Number of generated texts for each training example. Half of them state the reference answer; the
    others state another one, deny it, hedge or say nothing. They teach VerifyRM what a text commits to, and
    kinds of answers that are rare in the examples."""
    num_attack_problems: int = Field(default=8, ge=1)
    """Training problems for which every text of `--attacks` is learned as a wrong completion."""
    num_decoys: int = Field(default=0, ge=0)
    """Number of decoys: other problems' reference answers that every completion is scored against too, beside
    the answer that it states itself and a blank completion. The log odds of the right answer among all of
    these then bound its logit, in training and wherever the model scores. With decoys the model reads the
    reference answer last, so that a decoy costs its own few tokens. 0: none, as in the paper."""
    veto: bool = False
    """The score of a completion is 0 where the domain's rules find it wrong: it states another answer, the
    reference answer is a number that stands nowhere in it, or it lists answers and states none. Training, its
    validation and the gate look at the scores without the veto."""
    num_epochs: int = Field(default=3, ge=1)
    """Passes over the training examples."""
    batch_size: int = Field(default=128, ge=1)
    """Examples per optimiser update."""
    max_tokens_per_batch: int = Field(default=16384, ge=1)
    """Token budget of one forward and backward pass; a batch is split to fit, its loss does not change."""
    lr: float = Field(default=2e-5, gt=0)
    """Peak learning rate."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Weight decay. Biases and norms have none; with `muon` matrices have none, and all else has it."""
    warmup_fraction: float = Field(default=0.03, ge=0, lt=1)
    """Share of the updates over which the learning rate rises."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are clipped to this norm."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon`: for models from scratch; matrices by Muon at four times `lr`, the rest by AdamW."""
    class_balance: Literal["none", "weights"] = "none"
    """`weights`: the rarer label counts more in the loss, so that both labels have the same total weight.
    Scores are then no longer probabilities on data with the original balance."""
    gradient_checkpointing: bool = False
    """Keep one layer's activations and recompute the others: less memory, about a third more time."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Forward pass of training and scoring; weights stay in fp32. `auto`: bf16 where the hardware multiplies
    faster in it, except for models under 10M parameters on a CPU."""
    validate_every: int | None = Field(default=None, ge=1)
    """Updates between validations; None: at the end of every epoch."""
    max_canary_problems: int = Field(default=50, ge=1)
    """Problems that `evaluate_verify_rm` makes canaries from."""
    checkpoint_seconds: float = Field(default=60.0, ge=0)
    """Seconds between the states that a training which was stopped goes on from. They become longer where one
    takes more than a twentieth of them to write. 0: after every update."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after this many validations in a row without a better one; None: never. The weights of the best
    validation are kept in any case."""
