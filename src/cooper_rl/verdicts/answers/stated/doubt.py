r"""Words that take an answer back (row 3): `not 5`, `maybe 5`, `if the answer is 5`, `\boxed{5} is wrong`.

A doubted answer is none, and nothing else takes its place: the verdict is an abstention.
"""

import re

REACH = 80
"""Characters before and after an answer in which a word can take it back."""


def _ends_with(words: str) -> re.Pattern[str]:
    """Text that ends with one of the words, or two words after it."""
    return re.compile(rf"(?:\b(?:{words})|n't)\b(?:\s+[A-Za-z]+){{0,2}}[\s:*]*$", re.IGNORECASE)


DENIED_VERB = _ends_with("not|cannot|never")
DENIED = re.compile(
    _ends_with(
        "not|cannot|never|than|at most|at least|exceeds?|unequal"
        "|(?:any|every)thing but|nothing like|(?:far|different) from|short of"
    ).pattern
    + r"|\b(?:nearly|almost|under|below|above|over|around|near|close to|more like)\s*$",
    re.IGNORECASE,
)
HEDGE = re.compile(
    r"\b(?:may ?be|might|perhaps|possibly|probably not|could|roughly|either|somewhere|guess|not sure)\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"(?:\b(?:if|suppose|supposing|assume|assuming|imagine|unless|whether|wrong|incorrect|mistaken|doubt"
    r"|claims?|claimed|thinks?|pretend)|^[\s\W]*(?:is|are|was|could))"
    r"(?:\s+(?:that|the|my|this|our|final|correct|possible)){0,3}\s{0,9}$"
    r"|(?:如果|假如|假设|若|不是|并非)(?:最终|正确)?$",
    re.IGNORECASE,
)
_NOT_THE_BOX = re.compile(
    r"(?:\b(?:not|cannot|never|anything but|instead of|rather than)|n't)(?: [a-z]{1,12})?[\s$\\(]{0,4}$"
    r"|\b(?:wrong(?:ly)?|incorrect(?:ly)?|mistaken?(?:ly)?|erroneous(?:ly)?|had we"
    r"|would have (?:got|gotten|been|obtained|answered))\b[^.!?:\n]*$"
    r"|\b(?:might (?:think|say|guess|expect|answer)|tempt(?:ing|ed)|most people)\b[^.!?:\n]*$"
    r"|\b(?:suppose|imagine|pretend|says?|said|claims?|claimed|thinks?|guess(?:es|ed)?|if we had)"
    r"(?: that)?(?: (?:it|the answer|this))?(?: (?:is|was))?[\s$]{0,4}$"
    r"|(?:不是|不为|不等于|并非)[\s$\\(]{0,4}$|^%",
    re.IGNORECASE,
)
_TAKEN_BACK = re.compile(
    r"[\s$.)\\\]*]{0,6},?\s?(?:(?:wait|no|hmm|oops|actually|sorry)[,.!:]*\s){0,2}"
    r"(?:which|but (?:this|that|it)|and (?:this|that)|this|that|it)?\s?"
    r"(?:(?:is|was|were|would be|seems?)\s(?:(?:clearly|certainly|obviously|an?|the)\s){0,2}"
    r"(?:wrong|incorrect|not|false|mistaken?|erroneous|error|far from|impossible)\b"
    r"|(?:cannot|can'?t|could not|couldn'?t) be\b|(?:is|was)n't (?:right|correct|true|the answer))"
    r"|[\s$.)\\\]*,\-…—–]{0,12}(?:(?:but|oh),? )?(?:(?:wait|hmm+|oops|actually|sorry|scratch that"
    r"|(?:correction|edit)(?=:)|or rather|hold on|hang on|never ?mind|my (?:mistake|bad)|on second thoughts?"
    r"|apologies|i (?:was wrong|take (?:that|it) back|made an? (?:mistake|error)))\b"
    r"|no[,!] |no\. (?!\d)|no\W{0,3}$)"
    r"|[\s$.)\\\]*]{0,6}\((?:wrong|incorrect|false|not correct|rejected|extraneous|invalid)\b"
    r"|\$?(?:~~|</(?:del|s|strike)>|\s?-->)|[\s$.)*]{0,6}(?:[✗✘❌]|×(?!\s?[\d($\\]))"
    r"|[\s$)\\\]*]{0,6}(?:\?|,? (?:then|so)?[^.\n]{0,40}\bcontradict)"
    r"|[\s$.)\\\]*，。、,]{0,9}(?:但|不过|可是)?(?:这|那|它)?(?:个?答案)?(?:显然|并)?"
    r"(?:不对|不正确|不是|是?错|有误|等等|等一下|нет|(?:это )?неверно)",
    re.IGNORECASE,
)
_QUOTING = re.compile(
    # "In the required format" announces an answer.
    r"\b(?:such as|like|e\.g\.|for example|(?<!required )(?<!requested )formats?|form|example|template"
    r"|schema)\b[^.!?\n{<]{0,40}$",
    re.IGNORECASE,
)


def is_example(text: str, start: int) -> bool:
    """True if the words before a position give what follows as an example of a format."""
    return _QUOTING.search(text[max(0, start - REACH) : start]) is not None


def is_supposed(text: str, start: int, end: int) -> bool:
    """True if the sentence round a phrase `the answer is 5` supposes or quotes it, asks, or takes it back."""
    return _SUPPOSED.search(_before(text, start)) is not None or _is_taken_back(text, end)


def is_box_denied(text: str, start: int, end: int) -> bool:
    """True if the words round a box say that it is not the answer."""
    return _NOT_THE_BOX.search(_before(text, start)) is not None or _is_taken_back(text, end)


MAX_MENTIONS = 20
"""Mentions of an answer that are looked at, from the last one back, for one that is no part of a word."""


def is_denied_in_the_end(text: str, answer: str) -> bool:
    """True if the last mention of an answer, wherever it was stated, says that it is not the answer."""
    start = len(text)
    for _ in range(MAX_MENTIONS if answer else 0):
        start = text.rfind(answer, 0, start)
        if start < 0:
            return False
        end = start + len(answer)
        if _is_whole(text, start, end):
            before, after = text[max(0, start - REACH) : start], text[end : end + REACH]
            opened = start - len(before) + len(_OPENING.sub("", before))
            is_denied = is_box_denied(text, opened, end + len(after) - len(after.lstrip("$*)}")))
            return is_denied or _CORRECTED.search(text, end) is not None
    return False


_CORRECTED = re.compile(
    r"\b(?:should (?:[a-z]+ )?(?:be|have been|read|say)|i mean|i meant|make (?:it|that)"
    r"|(?:corrected|revised|correction)\b[^.\n]{0,20}:"
    r"|(?:correct|corrected|revised|actual|right|true|real) (?:final )?(?:answer|value|result|number|total)"
    r" (?:is|was)|(?:wait|hmm|oops|sorry|actually),?(?: (?:it|that|this)(?: is|'s))?)"
    r"[\s:$*\\(]{1,9}(?:boxed\{)?[-−]?\d",
    re.IGNORECASE,
)
"""What states another number behind the last mention of an answer."""


_OPENING = re.compile(r"(?:\\(?:boxed|fbox|text)\{|[\s$*({]){0,9}$")


def _is_whole(text: str, start: int, end: int) -> bool:
    """True if a stretch of text is no part of a longer word or number."""
    before, after = text[start - 1 : start], text[end : end + 2]
    return not (before.isalnum() or before in ("-", ".", "_") or after[:1].isalnum() or _GOES_ON.match(after))


_GOES_ON = re.compile(r"[.,]\d")


def _before(text: str, start: int) -> str:
    """The sentence's words before a position; a full stop ends a sentence, a decimal point does not."""
    return _SENTENCE.split(text[max(0, start - REACH) : start])[-1]


_SENTENCE = re.compile(r"[.!?]\s|\n")


def _is_taken_back(text: str, end: int) -> bool:
    return _TAKEN_BACK.match(text[end : end + REACH]) is not None
