"""The search for completions that VerifyRM pays without a right answer.

attack       one attack: searched on some problems, measured on others
library      seeds  known attacks; canaries and paid wrong rollouts
search       genetic search on the score alone      mutation     changes of a text
gradients    token search with VerifyRM's weights   per_problem  texts for single problems
oracle       scores, counted as queries             journal      a stopped search goes on
negatives    the texts as wrong completions         hostile      others of the same kinds
findings     what is reported
"""
