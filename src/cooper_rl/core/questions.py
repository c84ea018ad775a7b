"""When two questions are the same one: the rule that every split and every check of a split goes by."""


def question_key(question: str) -> str:
    """Equal for questions that differ in case and white space only."""
    return " ".join(question.casefold().split())
