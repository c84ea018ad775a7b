"""The policy as plain Hugging Face folders: load, save, prompt (row 6)."""

import logging
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import deepspeed
from transformers.utils.logging import disable_progress_bar

from cooper_rl.errors import DataError, ModelError
from cooper_rl.machine.drafts import draft_beside, replaced_folders
from cooper_rl.machine.memory import explains_memory
from cooper_rl.machine.threads import keep_freed_memory, limit_kept_kernels, limit_threads
from cooper_rl.models.hub import ask_hub
from cooper_rl.models.lora import merged_weights
from cooper_rl.models.precision import Compute
from cooper_rl.outgoing import hub_obstacle
from cooper_rl.records.written import check_replaceable, put_in_place, remove_written
from cooper_rl.schema.texts import in_one_line

FIXED_DATE = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
"""Before a chat template: whoever asks for today's date (Llama 3 does) gets the day that Llama's own template
falls back to. A run that is continued tomorrow has the same prompts."""

ADAPTER = "adapter_config.json"
"""Beside weights, transformers adds peft's layers to the model, which could not be saved as a plain one."""
BATCH_DEPENDENT_ROPE = frozenset({"dynamic", "longrope"})


@dataclass(frozen=True)
class Policy:
    """A causal language model with its tokenizer."""

    model: Any
    """Weights in fp32, also when the forward runs in bf16 under autocast."""
    tokenizer: Any
    end_ids: frozenset[int]
    """Token ids that end a completion."""
    pad_id: int
    compute: Compute = "auto"
    """Precision of the forward pass; see `CooperConfig.compute`."""
    is_bare: bool = False
    """Computes without the adapters that its model may have."""
    prompt_template: str | None = None
    """A text in place of the tokenizer's chat template; see `Config.prompt_template`."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    def encode_prompt(self, question: str, instruction: str | None) -> list[int]:
        """Token ids of the prompt, through the template given or the tokenizer's own chat template."""
        content = question if instruction is None else f"{question}\n{instruction}"
        if self.prompt_template is not None:
            text = self.prompt_template.replace("{question}", content)
            made = self.tokenizer(text, return_special_tokens_mask=True)
            # A tokenizer may add an end token too, after which a policy has nothing to say.
            length = len(made["input_ids"]) - sum(takewhile(bool, reversed(made["special_tokens_mask"])))
            return check_tokens(list(made["input_ids"][:length]), self.model)
        messages = [{"role": "user", "content": content}]
        encoded = self.tokenizer.apply_chat_template(
            messages,
            # A macro of the template shadows the function of this name that transformers gives to Jinja.
            chat_template=FIXED_DATE + self.tokenizer.get_chat_template(),
            add_generation_prompt=True,
            return_dict=True,
        )
        return check_tokens(list(encoded["input_ids"]), self.model)

    def decode(self, token_ids: tuple[int, ...]) -> str:
        """The completion's text, without its end token and other special tokens."""
        # Many tokenizers were saved with the clean-up on. It takes spaces away before `.`, `,` and `'s`.
        return self.tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and tensors for `Engine.load_weights`."""
        return merged_weights(self.model)


def load_policy(
    path: str | Path, *, device: torch.device, is_trained: bool = True, prompt_template: str | None = None
) -> Policy:
    """Load a causal LM folder (or hub id), prompted by its chat template or by the one given.

    Raises:
        ModelError: missing, of another architecture, incomplete, without tokenizer or chat template.
    """
    name = check_architecture(path, suffix="ForCausalLM")
    model = load_model(AutoModelForCausalLM, name, device=device)
    tokenizer = load_tokenizer(name)
    end_ids = find_end_ids(name, model.generation_config, tokenizer, prompt_template=prompt_template)
    _let_sample(model.generation_config)
    # A frozen model keeps nothing for a backward, in every pass that it computes.
    model.requires_grad_(is_trained)
    return Policy(
        model=model,
        tokenizer=tokenizer,
        end_ids=end_ids,
        pad_id=tokenizer.pad_token_id,
        prompt_template=prompt_template,
    )


def _let_sample(generation: Any) -> None:
    """Let a model with a temperature sample, as whoever gave it one meant.

    transformers 5.19, which vLLM brings into the image for GPUs, does not save one beside `do_sample` off or
    absent, so that the first checkpoint would fail.
    """
    given = generation.do_sample
    for do_sample in (given, True):
        generation.do_sample = do_sample
        with suppress(ValueError):
            generation.validate(strict=True)
            return
    generation.do_sample = given  # it is not valid for another reason


def save_policy(policy: Policy, path: Path) -> None:
    """Write a folder that `AutoModelForCausalLM`, `AutoTokenizer` and `vllm serve` load as it is."""
    save_folder(policy.model, policy.tokenizer, path)


def save_folder(model: Any, tokenizer: Any, path: Path) -> None:
    """Write a model and its tokenizer as one folder that is either the old one or complete.

    Raises:
        DataError: something else is in the way, or the disk refuses; what stood there before stays.
    """
    disable_progress_bar()  # a bar breaks the progress lines
    try:
        if path.is_file():
            raise FileExistsError(17, "a file of this name is in the way")
        with draft_beside(path, remove_old=remove_written) as draft:
            check_replaceable(path)
            draft.partial.mkdir()
            model.save_pretrained(draft.partial)
            tokenizer.save_pretrained(draft.partial)
            share_weights(draft.partial, like=draft.partial / "config.json")
            put_in_place(draft)
    except (OSError, SafetensorError) as error:
        raise DataError(
            f"{path}: cannot be written ({error}); free space or choose another folder"
        ) from error


def share_weights(folder: Path, *, like: Path) -> None:
    """Let weights be read by whoever may read the file beside them.

    safetensors writes for the owner alone, whatever the umask, and a server may run as another user.
    """
    mode = like.stat().st_mode
    for path in folder.rglob("*.safetensors"):
        if path.stat().st_mode != mode:
            path.chmod(stat.S_IMODE(mode))


def explain_unreadable(name: str, error: Exception) -> ModelError:
    """The error for a model whose configuration the library cannot read."""
    if (found := hub_obstacle(error)) is not None:
        return ModelError(
            f"{name}: {found.reason}; {found.remedy}, or give a folder, or s3://bucket/prefix in the object "
            "store"
        )
    reason = in_one_line(error)[:300]
    if not Path(name).is_dir() and (why := ask_hub()) is not None:
        reason = f"{why}, and the cache of this machine does not have it"
    return ModelError(
        f"{name}: cannot be read as a Hugging Face model ({reason}); without a way to the hub give a folder, "
        "or s3://bucket/prefix in the object store"
    )


def check_architecture(path: str | Path, *, suffix: str) -> str:
    """The model's name, once its config says that it is of the wanted kind.

    Raises:
        ModelError: missing, with an adapter, or a checkpoint of another architecture.
    """
    name = str(path)
    # Before the library is asked: it would take a path without a config.json for the name of a model on the
    # hub.
    if (name.startswith(("/", ".")) or isinstance(path, Path)) and not (Path(name) / "config.json").is_file():
        moved = "".join(
            f"; it was moved to {old}, by a run that was killed" for old in replaced_folders(Path(name))
        )
        raise ModelError(
            f"{name}: no config.json there{moved}; give a folder in Hugging Face format or a hub id"
        )
    if (Path(name) / ADAPTER).is_file():
        raise ModelError(
            f"{name}: has an adapter beside its weights ({ADAPTER}), which transformers would add to them; "
            "merge it into them (merge_and_unload of peft), or move its files away"
        )
    if not Path(name).is_dir():
        ask_hub()
    try:
        architectures = AutoConfig.from_pretrained(name, trust_remote_code=False).architectures or []
    except (OSError, RecursionError, ValueError) as error:
        raise explain_unreadable(name, error) from error
    if not any(architecture.endswith(suffix) for architecture in architectures):
        found = ", ".join(architectures) or "none named"
        raise ModelError(f"{name}: architecture {found}; a ...{suffix} checkpoint is needed in this place")
    return name


def load_model(kind: Any, name: str, *, device: torch.device, **options: Any) -> Any:
    """`from_pretrained` in fp32, eval mode, refusing weights that are missing from the checkpoint.

    A small model on the CPU also sets torch to one thread, see `limit_threads`.

    Raises:
        ModelError: unreadable, or weights missing that `options` do not allow to be new.
        TrainingError: out of memory.
    """
    new_weights = options.pop("new_weights", ())
    disable_progress_bar()  # a bar breaks the progress lines
    remedy = "end what else runs on this device, or take a larger one"
    try:
        with (
            explains_memory(name, remedy),
            _undivided(),
            _without_load_report() if new_weights else nullcontext(),
        ):
            model, info = kind.from_pretrained(
                name,
                dtype=torch.float32,
                trust_remote_code=False,
                use_safetensors=True,  # the older format is a pickle
                output_loading_info=True,
                **options,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        if hub_obstacle(error) is not None:
            raise explain_unreadable(name, error) from error
        raise ModelError(f"{name}: cannot be loaded: {error}") from error
    # transformers fills missing weights with random ones and only warns.
    missing = sorted(set(info["missing_keys"]) - set(new_weights))
    if missing:
        raise ModelError(
            f"{name}: {len(missing)} weights are missing, the first is {missing[0]}; copy the folder again"
        )
    with explains_memory(name, remedy):
        model = model.to(device).eval()
    limit_threads(model)
    if device.type == "cpu":
        keep_freed_memory()
        limit_kept_kernels()
    return model


@contextmanager
def _undivided() -> Iterator[None]:
    """In the block models are loaded whole, also in a trainer with ZeRO 3, whose models the library divides.

    The first of its processes alone loads VerifyRM, and would wait for the others' parts.
    """
    held = deepspeed._hf_deepspeed_config_weak_ref  # pyright: ignore[reportPrivateUsage] no question asks for it
    deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        deepspeed._hf_deepspeed_config_weak_ref = held  # pyright: ignore[reportPrivateUsage] as above


@contextmanager
def _without_load_report() -> Iterator[None]:
    """The library's table of missing weights advises to train them, which is what is going to happen."""

    def is_no_report(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    # A filter and no level: under one the library also reports which layers a tensor-parallel plan leaves
    # whole, although there is only one process.
    reporter = logging.getLogger("transformers.modeling_utils")
    reporter.addFilter(is_no_report)
    try:
        yield
    finally:
        reporter.removeFilter(is_no_report)


def load_tokenizer(name: str) -> Any:
    """The tokenizer beside a model, with a padding token that no text can contain.

    Raises:
        ModelError: there is none, or it has neither padding nor end token.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        if hub_obstacle(error) is not None:
            raise explain_unreadable(name, error) from error
        raise ModelError(f"{name}: no tokenizer beside the model: {error}") from error
    if not tokenizer("1", add_special_tokens=False)["input_ids"]:  # transformers makes an empty one
        raise ModelError(f"{name}: no tokenizer beside the model; copy tokenizer.json there")
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ModelError(f"{name}: the tokenizer has neither pad_token nor eos_token; set pad_token")
        # Padding is masked wherever it stands, so that any known token serves; a new one would need a row
        # in the embedding.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def check_tokens(token_ids: list[int], model: Any) -> list[int]:
    """The same ids, all of which the model knows.

    Raises:
        ModelError: the tokenizer is another model's, or the model has a table of positions and this text is
            longer.
    """
    num_positions = _table_size(model.config)
    if num_positions is not None and len(token_ids) > num_positions:
        raise ModelError(
            f"{model.name_or_path}: its table holds {num_positions} positions, and a text has "
            f"{len(token_ids)} tokens; use a model with rotary positions, or shorter texts"
        )
    size = model.config.vocab_size
    # On a GPU an id past the embedding fails in a kernel, and with it every later call of the process.
    if max(token_ids, default=0) >= size:
        raise ModelError(
            f"{model.name_or_path}: its tokenizer writes token {max(token_ids)}, and the model knows {size}; "
            "copy this model's own tokenizer there"
        )
    return token_ids


def check_lengths(model: Any, longest: int, *, remedy: str) -> None:
    """Refuse sequences whose positions the model does not have, or turns by the longest one of a batch.

    Args:
        model: A causal LM.
        longest: Tokens of the longest sequence that the model reads.
        remedy: What to do, in words.

    Raises:
        ModelError: a table of positions is shorter, or rotary positions change where a sequence is so long.
    """
    config = model.config
    num_positions = _table_size(config)
    # As above: on a GPU such a position fails in a kernel.
    if num_positions is not None and longest > num_positions:
        raise ModelError(
            f"{model.name_or_path}: its table holds {num_positions} positions, and a prompt with its "
            f"completion takes up to {longest}: {remedy}, or use a model with rotary positions"
        )
    for entry in batch_dependent_rope(config):
        name = str(entry["rope_type"])
        limit = config.max_position_embeddings
        if name == "longrope":
            limit = entry.get("original_max_position_embeddings", limit)
        if longest > limit:
            raise ModelError(
                f"{model.name_or_path}: rope_type={name!r} in config.json turns all texts of a batch in "
                f"another way where one has more than {limit} tokens, so that their log-probabilities depend "
                f"on it, and a prompt with its completion takes up to {longest}: {remedy}, or use a model "
                "with another one, such as default, linear, yarn or llama3"
            )


def batch_dependent_rope(config: Any) -> list[dict[str, Any]]:
    """The rotary parameters, of all kinds of layers, whose frequencies follow from the longest sequence."""
    parameters: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    # Some models have one entry for each kind of layer.
    entries = [parameters, *(each for each in parameters.values() if isinstance(each, dict))]
    return [entry for entry in entries if entry.get("rope_type") in BATCH_DEPENDENT_ROPE]


def _table_size(config: Any) -> int | None:
    """Positions that a model has in a table; None: rotary ones, which have no table and no end."""
    has_table = getattr(config, "rope_parameters", None) is None
    return getattr(config, "max_position_embeddings", None) if has_table else None


def find_end_ids(
    name: str, generation: Any, tokenizer: Any, *, prompt_template: str | None = None
) -> frozenset[int]:
    """Token ids that end a completion, once the model can be prompted too.

    Raises:
        ModelError: neither a chat template nor one of the configuration, or no end token.
    """
    if tokenizer.chat_template is None and prompt_template is None:
        raise ModelError(
            f"{name}: the tokenizer has no chat template; use an instruct model, or set prompt_template "
            "for a base model"
        )
    configured = generation.eos_token_id
    listed = configured if isinstance(configured, list) else [configured]
    # Both sources: a chat model's end of a turn and its end of a text may be named in one of them alone.
    end_ids = frozenset(int(token) for token in [*listed, tokenizer.eos_token_id] if token is not None)
    if not end_ids:
        raise ModelError(f"{name}: no end token; set eos_token_id in generation_config.json")
    return end_ids
