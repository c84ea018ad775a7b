"""Texts with a wrong answer: negatives of preference pairs, rivals of a reference answer.

pairs           what a pair must be; the sources and the order in which they are asked
canaries        known attacks on graders, on problems of any subject
text_attacks    those that suit every subject

Of mathematics alone, for `domains/mathematics.py`:
answer_attacks  attacks on graders of final answers
near_answers    texts that name the right answer and settle on another one, or on none
perturb         a positive with another number as its answer
mention         does a text mention the reference answer at all?
spelled         numbers that a text writes in words
holding         may a text be right, doubts included?
choices         the choice of a multiple-choice question that an answer is
variants        other answers in the form of a given one
matching        texts that state an answer, and texts that evade it
"""
