"""Negatives of preference pairs: texts with a wrong answer.

pairs     what a pair must be; the sources and the order in which they are asked
perturb   a positive with another number as its answer
canaries  known attacks on graders
mention   does a text mention the reference answer at all?
"""
