"""Texts made with VerifyRM's gradients, for an attacker who has its weights (HotFlip and GCG style).

The gradient of the loss with respect to the embeddings of a text's tokens says, to first order, which tokens
would raise the logit (Ebrahimi et al. 2018, arXiv 1712.06751); candidates are drawn from the best of them
(Zou et al. 2023, arXiv 2307.15043). What is found is a text: ids are decoded, and the search scores the text,
encoded again by VerifyRM's own rendering.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

from cooper_rl.models.verify_rm import VerifyItem, VerifyRM
from cooper_rl.redteam.journal import Journal
from cooper_rl.redteam.library import QUESTION
from cooper_rl.redteam.oracle import Oracle
from cooper_rl.redteam.seeds import fill
from cooper_rl.schema.data import Problem

TOP_TOKENS = 32
"""Tokens by gradient from which a place's new token is drawn."""
MEAN_RANK = 6.0
"""Mean rank of the token that is drawn, about: better ones are drawn more often."""
INSERT_SHARE = 0.25
"""Share of new texts that gain a token, so that a short text has room for an attack."""
MAX_SWAPS = 2


class CompletionSpan(NamedTuple):
    """An encoded item, and where its completion's tokens stand in it."""

    token_ids: list[int]
    start: int
    end: int


def find_span(verify_rm: VerifyRM, item: VerifyItem) -> CompletionSpan:
    """The span of the completion's tokens in `VerifyRM.encode`, whatever the template puts round them.

    What two other completions leave unchanged, before and after, is the template's. A completion that is cut
    keeps the tokens of what is left of it.
    """
    # No completion begins or ends like both.
    encoded = verify_rm.encode([item, item._replace(completion="0"), item._replace(completion="x")])
    whole = encoded[0]
    start = min(_common(whole, other) for other in encoded[1:])
    end = len(whole) - min(_common(whole[start:][::-1], other[start:][::-1]) for other in encoded[1:])
    return CompletionSpan(whole, start, max(start, end))


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning."""
    for place, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return place
    return min(len(first), len(second))


def token_gradient(verify_rm: VerifyRM, items: Sequence[VerifyItem]) -> tuple[list[int], torch.Tensor] | None:
    """Token ids (T,) of one completion put to several problems, and what each token of the vocabulary would
    change of the loss in each place, (T, V), to first order.

    The loss is the mean of softplus(-logit), of the logit that scores count: problems that pay already count
    little. None where the completion has no tokens of its own.
    """
    token_ids = _completion(find_span(verify_rm, items[0]))
    if not token_ids:
        return None
    weight = verify_rm.model.get_input_embeddings().weight
    total = torch.zeros(len(token_ids), weight.shape[1], device=verify_rm.device)
    for item in items:
        if verify_rm.is_vetoed(item):
            continue  # no logit of it is paid
        spans = [find_span(verify_rm, each) for each in verify_rm.compared(item)]
        # A tokenizer may join the completion's edge with the template; such a problem has other tokens. The
        # rival without a completion has none.
        if all(_completion(span) in (token_ids, []) for span in spans):
            # Added up over problems: one gradient for a text that is to be paid on all of them.
            total += _loss_gradient(verify_rm, spans)
    with torch.no_grad():
        return token_ids, total @ weight.float().T / len(items)


def _completion(span: CompletionSpan) -> list[int]:
    return span.token_ids[span.start : span.end]


def _loss_gradient(verify_rm: VerifyRM, spans: Sequence[CompletionSpan]) -> torch.Tensor:
    """(T, H) gradient of one problem's loss with respect to the embeddings of the completion's tokens.

    Each rival is a sequence of its own; what one logit does to the loss weighs its gradient.
    """
    with torch.no_grad():
        logits = torch.cat([verify_rm.logits([span.token_ids]) for span in spans])
    with torch.enable_grad():
        logits.requires_grad_()
        counted = logits[0] if verify_rm.decoys is None else verify_rm.decoys.compare(logits)
        (shares,) = torch.autograd.grad(functional.softplus(-counted), logits)
    parts = [
        share * _logit_gradient(verify_rm, span)
        for share, span in zip(shares, spans, strict=True)
        # A backward only where the loss depends on the logit, and the logit on the completion.
        if share != 0 and span.end > span.start
    ]
    if not parts:  # of a logit above about 104 the slope of the loss, exp(-logit), is 0 in fp32
        length = spans[0].end - spans[0].start
        return torch.zeros(length, verify_rm.model.get_input_embeddings().embedding_dim, device=logits.device)
    return torch.stack(parts).sum(dim=0)


def _logit_gradient(verify_rm: VerifyRM, span: CompletionSpan) -> torch.Tensor:
    """(T, H) gradient of a logit with respect to the embeddings of the completion's tokens."""
    leaves: list[torch.Tensor] = []

    def make_leaf(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> torch.Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    # Token ids have no gradient. The embeddings become the leaf, whatever the forward does with them
    # afterwards.
    handle = verify_rm.model.get_input_embeddings().register_forward_hook(make_leaf)
    try:
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(verify_rm.logits([span.token_ids]).sum(), leaves)
    finally:
        handle.remove()
    return gradient.reshape(len(span.token_ids), -1).float()[span.start : span.end]


class GradientGuide:
    """Makes texts from a text by the gradient; counts every gradient as a query of each problem."""

    def __init__(self, verify_rm: VerifyRM, oracle: Oracle, journal: Journal) -> None:
        self._verify_rm = verify_rm
        self._oracle = oracle
        self._journal = journal
        known = set(verify_rm.tokenizer.get_vocab().values())
        self._written = sorted(known - set(verify_rm.tokenizer.all_special_ids))
        """Tokens that a text can have; the template's separators are beyond the tokenizer."""

    def vary(self, text: str, problems: Sequence[Problem], count: int, rng: random.Random) -> list[str]:
        """Up to `count` different texts, each with one or two tokens replaced, or one inserted.

        Empty where the text holds `{question}`, whose tokens differ from problem to problem, or is so long
        that VerifyRM cuts it.
        """
        if QUESTION in text:
            return []
        seed = rng.getrandbits(62)  # drawn also where the texts are recorded ones
        self._oracle.charge(len(problems))
        items = [VerifyItem(p.question, p.reference_answer, fill(text, p)) for p in problems]
        return self._journal.result(f"gradient {seed}", lambda: self._vary(items, count, random.Random(seed)))

    def _vary(self, items: Sequence[VerifyItem], count: int, rng: random.Random) -> list[str]:
        found = token_gradient(self._verify_rm, items)
        if found is None:
            return []
        token_ids, change = found
        if not set(token_ids) <= set(
            self._written
        ):  # the mark of a cut: what is left out has no place in ids
            return []
        # A tokenizer may know ids past the embedding, for which the gradient has no column.
        written = torch.tensor([token for token in self._written if token < change.shape[1]])
        # The least first: what lowers the loss raises the logit.
        order = change[:, written].topk(min(TOP_TOKENS, len(written)), largest=False).indices
        best = written[order.cpu()].tolist()
        texts: dict[str, None] = {}
        for _ in range(count):
            ids = list(token_ids)
            if rng.random() < INSERT_SHARE:
                place = rng.randrange(len(ids))
                ids.insert(place, _draw(best[place], rng))
            else:
                for place in rng.sample(range(len(ids)), min(len(ids), rng.randint(1, MAX_SWAPS))):
                    ids[place] = _draw(best[place], rng)
            # A text and not ids: ids that no text encodes to could not be sent to anybody.
            texts[self._verify_rm.tokenizer.decode(ids)] = None
        return [text for text in texts if text]


def _draw(ordered: Sequence[int], rng: random.Random) -> int:
    return ordered[min(int(rng.expovariate(1 / MEAN_RANK)), len(ordered) - 1)]
