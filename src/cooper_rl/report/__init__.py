"""The page and the summary of a run.

text       sentences                        changes    from one evaluation to another
numbers    how a number is written          objections what speaks against a promotion
figure     how a figure is drawn            plots      which figures there are
verify_rm  what VerifyRM is worth           red_team   texts that VerifyRM pays
samples    what the policy writes           provenance machine, command, commit
page       what all pages share             live       a run's page while it goes on
watch      the server that shows it
"""
