"""A champion as a version in MLflow's model registry, for people who look there (row 14).

The registry in the store (`checkpoints/registry.py`) decides and has the weights; a version here is its
address, numbers and run. It is written after the pointer, and nothing here undoes a promotion. A second start
finds the version by its tag and registers nothing twice.
"""

import logging
import os
from importlib import import_module
from typing import Any

from cooper_rl.addresses import redact, redact_all
from cooper_rl.config.infrastructure import RegistryConfig
from cooper_rl.errors import how_to_install
from cooper_rl.schema.runs import PromoteReport
from cooper_rl.waiting import Waiting

logger = logging.getLogger(__name__)

ALIAS = "champion"
LIMITS = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""MLflow's variables for the tries of a request after the first, and for the seconds of each."""
WORDS = "MLFLOW_HTTP_REQUEST_MAX_RETRIES and MLFLOW_HTTP_REQUEST_TIMEOUT limit it"
VERSION = "cooper_rl.version"
"""Tag with the version's name in the registry in the store."""


def register_champion(
    config: RegistryConfig, decision: PromoteReport, *, place: str, run_key: str | None
) -> bool:
    """Make the champion a version of `registry.mlflow_model`, and give it the alias `champion`.

    Args:
        config: `mlflow` None: nothing is registered.
        decision: on the champion.
        place: Address of the registry in the store.
        run_key: Name of the run that trained it.

    Returns:
        Whether MLflow has it; a failure is a warning in the log.
    """
    if config.mlflow is None:
        return False
    waiting = Waiting(f"registry.mlflow={redact(config.mlflow)}", logger, limit=WORDS)
    try:
        with waiting.asked():
            _register(config.mlflow, config.mlflow_model, decision, place=place, run_key=run_key)
    except ImportError:
        why = f"MLflow is not installed: {how_to_install('mlflow')}"
    except Exception as error:
        why = redact_all(f"{type(error).__name__}: {error}", config.mlflow)
    else:
        return True
    logger.warning(
        "registry.mlflow: %s is the champion, and MLflow does not have it (%s). Correct registry.mlflow or "
        "start its server, and run promote again with the same files: it registers the champion and changes "
        "nothing else",
        decision.candidate,
        why,
    )
    return False


def _register(address: str, model: str, decision: PromoteReport, *, place: str, run_key: str | None) -> None:
    client = open_mlflow(address)
    known = client.search_registered_models(f"name = '{model}'")
    if not known:
        client.create_registered_model(model, description="Champions of Cooper-RL: policy and VerifyRM")
    versions = client.search_model_versions(f"name = '{model}'")
    found = next((each for each in versions if each.tags.get(VERSION) == decision.candidate), None)
    if found is None:
        found = client.create_model_version(
            model,
            source=f"{place.rstrip('/')}/{decision.candidate}",
            tags=_tags(decision, run_key),
            description=" ".join(decision.reasons),
        )
    client.set_registered_model_alias(model, ALIAS, found.version)


def open_mlflow(address: str) -> Any:
    """A client of MLflow, typed Any because MLflow is an extra; nothing is sent yet.

    Its own limits are eight tries of two minutes for each request, with minutes of pauses between them, and
    what is written there is worth no such wait. A variable that is set already stays.
    """
    for name, value in LIMITS.items():
        os.environ.setdefault(name, value)
    return import_module("mlflow.tracking").MlflowClient(tracking_uri=address, registry_uri=address)


def _tags(decision: PromoteReport, run_key: str | None) -> dict[str, str]:
    tags = {
        VERSION: decision.candidate,
        "cooper_rl.run": run_key,
        "cooper_rl.previous": decision.champion,
        f"cooper_rl.{decision.accuracy_name.replace(' ', '_')}": f"{decision.accuracy.value:.4f}",
        "cooper_rl.verify_rm_accuracy": f"{decision.verify_rm_accuracy.value:.4f}",
    }
    return {key: value for key, value in tags.items() if value is not None}
