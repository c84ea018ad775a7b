"""Is a completion correct? Verifiers, judges and how their verdicts become labels.

rule     the rule verifier of mathematics          programs  the one of programs, which runs their tests
worker   what its processes do                    program_worker  what those do
pool     worker processes that can be killed
hybrid   rule verdict and judge verdict become a label
votes    third votes on disagreements                journal  verdicts that survive a kill
answers  comparing two answers: extraction, parsing, equality
"""
