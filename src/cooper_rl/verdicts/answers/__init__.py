"""Comparing a completion's answer with the reference answer; `verify` is the way in.

extraction  the answer in a completion      text        one spelling for characters and spacing
numbers  units  arithmetic  symbols         algebra     what math-verify reads, and drawn values
parts  structure   lists, intervals, tuples
comparison                  equality         stated      the ways to state an answer
notation  plain             spellings of mathematics     question  its hints
"""
