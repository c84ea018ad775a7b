"""The answer that a completion states, in each way to state it; `answers/extraction.py` chooses among them.

json_fields  answers in JSON            last_line  an answer that no marker points at
doubt        words that deny or hedge   braces     where braces close
tags         answers in `<answer>`          factors    mathematics that goes on beside a box
"""
