"""The comparison of arms, whoever trained them: the command `experiment`, or the pipeline of that name.

arms      what each arm sets               summary   curves, intervals, hacked or not, alarms
texts     what the policies wrote          page      one HTML file
files     what is read
"""
