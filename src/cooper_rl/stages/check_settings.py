"""Stage: the configuration, and the stores and chat servers that it names; the first task of every pipeline.

Every later stage reads the same configuration, so a wrong key, or a judge that is down, ends the run here, in
seconds, instead of in a GPU's pod hours later. Models and problems are looked at by the two stages that come
next.
"""

import logging
from pathlib import Path
from typing import Annotated

from cooper_rl.checkpoints.registry import open_registry
from cooper_rl.comparison.arms import check_arms
from cooper_rl.config.root import Config
from cooper_rl.records.files import write_report
from cooper_rl.schema.paths import OutputFile
from cooper_rl.schema.runs import SettingsReport
from cooper_rl.servers.open import servers_of, try_servers
from cooper_rl.storage.open import open_store
from cooper_rl.storage.probe import check_conditional_writes

logger = logging.getLogger(__name__)


def run(
    config: Config, *, report: Annotated[Path, OutputFile("Where to write the report (JSON)")]
) -> SettingsReport:
    """Check access to the stores of checkpoints and champions, ask each chat server for one word, and report
    the run's name.

    Raises:
        ConfigError: storage.uri is set, and no run_key; a chat server's address cannot be used; or an arm of
            experiment.runs is unknown or does not fit.
        DamagedObjectError: the registry's champion is damaged.
        DataError: the report cannot be written.
        ServerError: a chat server does not answer, or refuses.
        StorageError: a store cannot be read, or that of checkpoints cannot be written safely.
    """
    check_arms(config)
    checkpoints = config.storage.run_uri()
    if checkpoints is not None:
        check_conditional_writes(open_store(config.storage, checkpoints))
    champion = open_registry(config).champion() if config.registry.uri is not None else None
    servers = servers_of(config)
    try_servers(servers)
    result = SettingsReport(
        seed=config.seed,
        checkpoints=checkpoints,
        champion=champion.name if champion else None,
        servers=[key for keys, _ in servers for key in keys],
    )
    logger.info("check_settings checkpoints=%s champion=%s", result.checkpoints, result.champion)
    write_report(report, result)
    return result
