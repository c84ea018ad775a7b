"""How many threads torch uses for a model on the CPU."""

import torch

SMALL_MODEL_PARAMETERS = 10_000_000


def limit_threads(model: torch.nn.Module) -> None:
    """One thread for a model under 10M parameters on the CPU; anything else is left as it is.

    Its operations are so short that threads spend their time waking and waiting for each other: on two
    busy cores, generation with a 1M-parameter model took 2.7 s with one thread and 24 s with two.
    """
    parameters = list(model.parameters())
    is_small = sum(weight.numel() for weight in parameters) < SMALL_MODEL_PARAMETERS
    if is_small and all(weight.device.type == "cpu" for weight in parameters):
        torch.set_num_threads(1)
