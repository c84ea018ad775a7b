"""Preparation and replacement of math-verify's algebra.

commands  LaTeX that it reads      letters  capitals and small ones told apart
sampling  values at drawn points
"""
