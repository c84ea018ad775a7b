"""Parts that all pages share: the template's frame and filters, the one script, settings and versions.

A page is one HTML file without anything from elsewhere. Its policy for the browser names the hash of its own
script, so that nothing else in it can run; whatever comes from data is escaped besides.
"""

import base64
import hashlib
import json
from functools import cache
from importlib import metadata, resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from cooper_rl.addresses import redact_values
from cooper_rl.config.root import Config
from cooper_rl.config.section import flatten
from cooper_rl.report.changes import direction, verdict
from cooper_rl.report.figure import Figure
from cooper_rl.report.numbers import name_steps, percent, points, shorten, span
from cooper_rl.schema.reports import BinaryScores

LIBRARIES = ("cooper-rl", "torch", "transformers", "math-verify", "numpy")
OPENING_CHARS = 80


def render(template: str, **context: Any) -> str:
    """Fill a page's template, named by its path in the package."""
    environment = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "percent": percent,
        "points": points,
        "span": span,
        "shorten": shorten,
        "opening": _opening,
        "verdict": verdict,
        "direction": direction,
        "name_steps": name_steps,
        "lift": _lift,
        "quoted": lambda text: json.dumps(text, ensure_ascii=False),
        "humanise": lambda text: text.replace("_", " "),
        "svg": lambda figure: Markup(figure.svg),  # our own, without text from data
        "plot": _attribute,
    }
    script = _read("report/page.js")
    return environment.get_template(template).render(
        style=Markup(_read("report/page.css")),  # our own, as the script
        script=Markup(script),
        policy=content_policy(script),
        **context,
    )


def content_policy(script: str) -> str:
    """The page's policy for a browser: run this script, draw, and ask the page's own address again."""
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{hashed}'; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


def settings(config: Config) -> list[tuple[str, str]]:
    """Every setting as (dotted key, value), as `--set` takes them; passwords and queries in
    URLs are blanked."""
    dumped = redact_values(config.model_dump(mode="json"))
    return [(key, json.dumps(value, ensure_ascii=False)) for key, value in flatten(dumped)]


def versions() -> list[tuple[str, str]]:
    """Installed versions of what a result depends on; a library that is not installed is left out."""
    found: list[tuple[str, str]] = []
    for name in LIBRARIES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def _read(name: str) -> str:
    return (resources.files("cooper_rl") / name).read_text(encoding="utf-8")


def _attribute(figure: Figure) -> Markup:
    """JSON between single quotes, where its own many double quotes may stay as they are."""
    return Markup(figure.data.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;"))


def _opening(text: str) -> str:
    """The first words, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= OPENING_CHARS else f"{line[:OPENING_CHARS]}…"


def _lift(scores: BinaryScores) -> str:
    """Accuracy over the majority baseline, in points."""
    return points(scores.accuracy.value - scores.majority_accuracy)
