"""Every text that a model is conditioned on: VerifyRM's template, the judge's and the assistant's prompts.

Row 5 of the walk. The template stands here once; training, scoring and serving all call `verify_rm_text`.
"""

MAX_FIELD_CHARS = 1500
HEAD_CHARS = 500
TAIL_CHARS = 1000


def verify_rm_text(question: str, reference_answer: str, completion: str) -> str:
    """The one input of VerifyRM, for training and scoring; no chat template round it.

    Source: ZJU-REAL/Cooper train_VerifyRM/train.py. The release truncates the reference answer and the
    completion only; the question is cut by the same rule here, so that the input is bounded.
    """
    return (
        f"<question>{truncate(question)}</question>\n"
        f"<reference_answer>{truncate(reference_answer)}</reference_answer>\n"
        f"<completion>{truncate(completion)}</completion>"
    )


def truncate(text: str) -> str:
    """Text over 1500 characters keeps its first 500 and last 1000, where the final answer stands.

    Source: ZJU-REAL/Cooper recipe/cooper/fsdp_workers.py.
    """
    if len(text) <= MAX_FIELD_CHARS:
        return text
    return text[:HEAD_CHARS] + text[-TAIL_CHARS:]
