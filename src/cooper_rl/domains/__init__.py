"""Subjects of problems: everything that a step has to know about mathematics, or about another subject.

base         what a domain bundles          open  the domain of a configuration
mathematics  short final answers, compared by value
programs     short programs, verified by running their tests
veto         whose rules can refuse what a model scores
"""
