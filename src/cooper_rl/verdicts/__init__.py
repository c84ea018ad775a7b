"""Is a completion correct? Verifiers, judges and how their verdicts become labels.

rule     the rule verifier, in worker processes that can be killed (worker)
hybrid   rule verdict and judge verdict become a label
votes    third votes on disagreements                journal  verdicts that survive a kill
answers  comparing two answers: extraction, parsing, equality
"""
