"""The page and the summary of a run.

text  sentences      plots  figures      verify_rm  what VerifyRM is worth      changes  before and after
red_team  texts that VerifyRM pays
"""
