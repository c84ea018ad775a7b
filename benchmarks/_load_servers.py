"""The servers that `service_load.py` asks, as processes; one is what a user writes alone."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

import httpx

MAX_WAITING = 1024
"""Completions that the servers of ours let wait."""


class Servers:
    """The three servers as processes, in a `with` block."""

    def __init__(self, verify_rm: Path, folder: Path) -> None:
        names: list[str] = ["serve", "serve-verify-rm", "plain"]
        self.ports = dict(zip(names, free_ports(3), strict=True))
        own = [sys.executable, "-m", "cooper_rl"]
        limit = f"max_waiting_items={MAX_WAITING}", "max_items_per_request=512"
        self._commands = {
            "serve": [
                *own,
                "serve",
                "--learn",
                "--verify-rm",
                str(verify_rm),
                "--state",
                str(folder / "state"),
            ],
            "serve-verify-rm": [*own, "serve-verify-rm", "--verify-rm", str(verify_rm)],
            "plain": [
                sys.executable,
                __file__,
                str(verify_rm),
                str(self.ports["plain"]),
            ],
        }
        for name in ("serve", "serve-verify-rm"):
            for setting in (f"port={self.ports[name]}", *limit):
                self._commands[name] += ["--set", setting]
        self._log = folder / "log"

    def __enter__(self) -> Self:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        with self._log.open("w") as log:
            self._processes = [
                subprocess.Popen(command, stderr=log, env=environment) for command in self._commands.values()
            ]
        for port in self.ports.values():
            self._wait(port)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=60)

    def _wait(self, port: int) -> None:
        for _ in range(600):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=20).status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.2)
            if any(process.poll() is not None for process in self._processes):
                break
        raise RuntimeError(f"a server did not start: {self._log.read_text()[-2000:]}")


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def serve_plain(verify_rm: Path, port: int) -> None:
    """What a user writes: the folder by transformers, one padded batch a request, one request at a time.

    The token ids are made by our template, which plain transformers calls cannot (docs/how-to/verify_rm.md).
    """
    import torch
    import uvicorn
    from fastapi import FastAPI
    from pydantic import BaseModel
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from cooper_rl.models.packed.batching import pad_right
    from cooper_rl.models.verify_rm import VerifyItem, VerifyRM

    torch.set_num_threads(1)
    model = AutoModelForSequenceClassification.from_pretrained(verify_rm, dtype=torch.float32).eval()
    loaded = VerifyRM(model, AutoTokenizer.from_pretrained(verify_rm))
    app = FastAPI()

    class Items(BaseModel):
        items: list[dict[str, str]]

    @app.get("/readyz")
    def readyz() -> str:
        return "ready"

    @app.post("/v1/score")
    async def score(request: Items) -> dict[str, list[float]]:
        # In the event loop: with `def`, FastAPI makes each answer in its pool of threads too, behind every
        # request that waits for one, so that under too many nobody is answered before all are.
        sequences = loaded.encode([VerifyItem(**item) for item in request.items])
        batch = pad_right(sequences, pad_id=0, device=torch.device("cpu"))
        with torch.inference_mode():
            out = model(input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False)
        return {"scores": out.logits[:, 0].sigmoid().tolist()}

    uvicorn.run(app, port=port, log_level="warning")


if __name__ == "__main__":
    serve_plain(Path(sys.argv[1]), int(sys.argv[2]))
